"""Cursors: where a list goes on, as text that means nothing to its reader.

Owns their form: a letter for the list, then UUIDs and numbers, in base64url. Knows no list.
"""

from __future__ import annotations

import base64
import binascii
from uuid import UUID

from forbear.api import Problem

_SIZES = {UUID: 16, int: 8}


def write(kind: str, *parts: UUID | int) -> str:
    """Write a cursor.

    Args:
        kind: one letter for the list that it belongs to.
        parts: UUIDs and signed 64-bit numbers.
    """
    raw = b"".join(part.bytes if isinstance(part, UUID) else part.to_bytes(8, signed=True) for part in parts)
    return base64.urlsafe_b64encode(kind.encode("ascii") + raw).rstrip(b"=").decode("ascii")


def read(kind: str, text: str, *types: type[UUID | int]) -> list[UUID | int]:
    """Read a cursor.

    Args:
        kind: the list's letter.
        text: what somebody sent.
        types: the types of its parts.

    Raises:
        Problem: 400, it is none of this list's.
    """
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if not raw.startswith(kind.encode("ascii")) or len(raw) != 1 + sum(_SIZES[one] for one in types):
        raise foreign()
    parts: list[UUID | int] = []
    at = 1
    for one in types:
        piece = raw[at : at + _SIZES[one]]
        parts.append(UUID(bytes=piece) if one is UUID else int.from_bytes(piece, signed=True))
        at += len(piece)
    return parts


def foreign() -> Problem:
    """The problem with a cursor that no list gave, or another one."""
    return Problem(400, "the cursor is not one of this list: take `next` from its last page, or leave it out")


def read_id(kind: str, text: str | None) -> UUID | None:
    """Read a cursor that is one UUID; None if there is none.

    Raises:
        Problem: 400, it is none of this list's.
    """
    if text is None:
        return None
    (found,) = read(kind, text, UUID)
    return found if isinstance(found, UUID) else None
