"""The text form of Forbear's ids: TypeIDs 0.3 (github.com/jetify-com/typeid/tree/main/spec).

An id is a prefix, an underscore and the 128 bits of a UUID as 26 characters of Crockford's base32 in lower case. This
module turns UUIDs into that text and back. It makes no ids (the database does, as UUIDv7), and does not know what they
stand for.
"""

import re
from enum import StrEnum
from typing import Final
from uuid import UUID

_DIGITS: Final = "0123456789abcdefghjkmnpqrstvwxyz"  # crockford.com/base32.html
_TO_PYTHONS_DIGITS: Final = bytes.maketrans(_DIGITS.encode("ascii"), b"0123456789abcdefghijklmnopqrstuv")
_PAIRS: Final = tuple(high + low for high in _DIGITS for low in _DIGITS)  # two digits at once, by ten bits

# 26 characters hold 130 bits: the first two are always zero, so the first character is at most 7.
_SUFFIX: Final = re.compile("[0-7][0-9a-hjkmnp-tv-z]{25}")

_SHOWN_CHARS: Final = 60  # of a text that is no id, in an error message


class Prefix(StrEnum):
    """What an id stands for."""

    EVENT = "evt"
    ENDPOINT = "ep"
    DELIVERY = "dlv"
    REPLAY = "rpl"
    API_KEY = "key"


class InvalidId(ValueError):
    """A text that is not an id of the expected kind; the message says what is expected."""


def encode(prefix: Prefix, value: UUID) -> str:
    """Write a UUID as an id.

    Args:
        prefix: What the id stands for.
        value: The UUID, of any version.

    Returns:
        The TypeID, such as ``evt_01h455vb4pex5vsknk084sn02q``.
    """
    # Written out, and cut into numbers of 30 bits first, which Python keeps in one of its digits: each delivery needs
    # two ids, and a loop over the 26 characters takes two and a half times as long. (Added, since formatting an enum's
    # member is slow.)
    number, pairs = value.int, _PAIRS
    a, b, c, d = number >> 90 & 0x3FFFFFFF, number >> 60 & 0x3FFFFFFF, number >> 30 & 0x3FFFFFFF, number & 0x3FFFFFFF
    return (
        prefix + f"_{pairs[number >> 120]}"
        f"{pairs[a >> 20]}{pairs[a >> 10 & 0x3FF]}{pairs[a & 0x3FF]}"
        f"{pairs[b >> 20]}{pairs[b >> 10 & 0x3FF]}{pairs[b & 0x3FF]}"
        f"{pairs[c >> 20]}{pairs[c >> 10 & 0x3FF]}{pairs[c & 0x3FF]}"
        f"{pairs[d >> 20]}{pairs[d >> 10 & 0x3FF]}{pairs[d & 0x3FF]}"
    )


def decode(prefix: Prefix, text: str) -> UUID:
    """Read an id of one kind.

    Strict, as the specification demands: upper case and Crockford's lenient letters (i, l, o, u) are refused, so that
    each id has one spelling only.

    Args:
        prefix: What the id must stand for.
        text: The id as somebody wrote it.

    Returns:
        The UUID.

    Raises:
        InvalidId: The text is not an id with this prefix.
    """
    kind, _, suffix = text.rpartition("_")
    if kind != prefix or not _SUFFIX.fullmatch(suffix):
        if text.startswith("fbk_"):
            raise InvalidId("this is an API key itself, which belongs into no path: name its id, key_…")
        shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
        raise InvalidId(
            f"expected an id of the form {prefix}_01h455vb4pex5vsknk084sn02q "
            f"({prefix}_ and 26 characters out of 0-9 and a-z without i, l, o, u, the first at most 7), got {shown!r}"
        )
    return UUID(int=int(suffix.encode("ascii").translate(_TO_PYTHONS_DIGITS), 32))
