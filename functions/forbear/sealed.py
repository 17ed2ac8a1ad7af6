"""What of an endpoint lies sealed in the database: its signing secrets, one by one, and its headers as one text.

Owns what each text is sealed about, the endpoint's id among it: put where another endpoint's was, it cannot be opened.
Knows no SQL, and not where the keys come from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from uuid import UUID

from forbear.vault import CannotOpen, Keyring


def seal_secret(keyring: Keyring, endpoint_id: UUID, secret: str) -> str:
    """A signing secret as the database keeps it."""
    return keyring.seal(secret, f"secret {endpoint_id}")


def open_secret(keyring: Keyring, endpoint_id: UUID, sealed: str) -> str:
    """A signing secret of an endpoint, from what the database keeps.

    Raises:
        CannotOpen: the message says what to do.
    """
    try:
        return keyring.open(sealed, f"secret {endpoint_id}")
    except CannotOpen as error:
        raise CannotOpen(f"the endpoint's signing secret cannot be opened ({error}): rotate it") from None


def seal_headers(keyring: Keyring, endpoint_id: UUID, headers: Mapping[str, str]) -> str | None:
    """An endpoint's headers as the database keeps them; None if there is none."""
    return keyring.seal(json.dumps(dict(headers)), f"headers {endpoint_id}") if headers else None


def open_headers(keyring: Keyring, endpoint_id: UUID, sealed: str | None) -> dict[str, str]:
    """The headers of an endpoint, from what the database keeps.

    Raises:
        CannotOpen: the message says what to do.
    """
    if sealed is None:
        return {}
    try:
        return dict(json.loads(keyring.open(sealed, f"headers {endpoint_id}")))
    except CannotOpen as error:
        raise CannotOpen(f"the endpoint's headers cannot be opened ({error}): set them anew") from None
