"""API keys as texts: made, taken apart, and told from what Forbear never made.

Owns their form: `fbk_` and base64url of the key's id (16 bytes, a UUIDv7), a secret (25 random bytes) and a tag (16
bytes), 57 in all, so that the text has 76 characters, no padding and one spelling. The tag is an HMAC of id and secret:
what somebody made up is refused by computing, without a look into the database. The database holds another HMAC, of
the whole key. Knows neither the database nor where the HMAC's key comes from.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

PREFIX: Final = "fbk_"

_TOKEN: Final = re.compile(r"fbk_[A-Za-z0-9_-]{76}")
_ID_BYTES: Final = 16
_SECRET_BYTES: Final = 25
_TAG_BYTES: Final = 16
# One data key serves both; the labels keep one's result from ever being the other's.
_TAG: Final = b"forbear api key tag\0"
_HASH: Final = b"forbear api key hash\0"

type Mac = Callable[[bytes], bytes]
"""HMAC-SHA256 by the data key for API keys, as `vault.Keyring.mac`."""


class InvalidToken(ValueError):
    """A text that is no API key of this database."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """An API key without what must stay secret: its id, and the keyed hash by which the database knows it."""

    id: UUID
    hash: bytes = field(repr=False)


def make(key_id: UUID, mac: Mac) -> tuple[str, ApiKey]:
    """Make a key.

    Args:
        key_id: a UUID that no other key has.
        mac: by the data key.

    Returns:
        The token, which only its bearer keeps, and what the database keeps.
    """
    body = key_id.bytes + secrets.token_bytes(_SECRET_BYTES)
    raw = body + _tag(body, mac)
    return PREFIX + base64.urlsafe_b64encode(raw).decode("ascii"), _known(raw, mac)


def decode(token: str) -> bytes:
    """The bytes of a token.

    Raises:
        InvalidToken: it has not the form.
    """
    if not _TOKEN.fullmatch(token):
        raise InvalidToken("it has not the form of an API key")
    return base64.urlsafe_b64decode(token.removeprefix(PREFIX))


def verify(raw: bytes, mac: Mac) -> ApiKey:
    """The key that a token stands for, if it was made by this data key. Whether it is still valid, the database says.

    Args:
        raw: what `decode` gave.
        mac: by the data key.

    Raises:
        InvalidToken: it was made up.
    """
    body, tag = raw[:-_TAG_BYTES], raw[-_TAG_BYTES:]
    if not hmac.compare_digest(tag, _tag(body, mac)):
        raise InvalidToken("it was made up")
    return _known(raw, mac)


def _tag(body: bytes, mac: Mac) -> bytes:
    return mac(_TAG + body)[:_TAG_BYTES]


def _known(raw: bytes, mac: Mac) -> ApiKey:
    return ApiKey(UUID(bytes=raw[:_ID_BYTES]), mac(_HASH + raw))
