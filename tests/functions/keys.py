"""Makes API keys for tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from forbear.access import keyring
from forbear.api_keys import Mac, make
from forbear.data_keys import DataKeys
from forbear.vault import KEY_BYTES, Keyring, Purpose, wrapping
from tests.functions.builders import key_file, one

type Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class KeyMaker:
    """Makes keys as the manage function does, and worse ones."""

    connection: Connection
    mac: Mac

    def make(
        self,
        *scopes: str,
        tenant: str | None = None,
        expires_at: datetime | None = None,
        key_id: UUID | None = None,
        revoked: bool = False,
    ) -> str:
        """A key that is stored. Gives its token."""
        token, key = make(key_id or one(self.connection, "SELECT forbear.new_id()"), self.mac)
        self.connection.execute(
            "INSERT INTO forbear.api_keys (id, name, hash, scopes, tenant, expires_at, revoked_at)"
            " VALUES (%s, 'test', %s, %s, %s, %s, CASE WHEN %s THEN forbear.now() END)",
            (key.id, key.hash, list(scopes), tenant, expires_at, revoked),
        )
        return token

    def unknown(self, key_id: UUID | None = None) -> str:
        """A token with our tag that is not stored: of no key, or a second one for a key's id."""
        return make(key_id or one(self.connection, "SELECT forbear.new_id()"), self.mac)[0]

    def forged(self) -> str:
        """A token that looks like one, and was made by nobody with our data key."""
        foreign = Keyring(Purpose.API_KEYS, {1: bytes(KEY_BYTES)})
        return make(one(self.connection, "SELECT forbear.new_id()"), foreign.mac)[0]


@contextmanager
def key_maker(connection: Connection) -> Iterator[KeyMaker]:
    """What makes keys for a database."""
    keys = DataKeys(Purpose.API_KEYS, lambda: wrapping(str(key_file())))
    yield KeyMaker(connection, keys.ring(keys.rows(connection)).mac)
    keyring.cache_clear()


def bearer(token: str) -> Mapping[str, str]:
    """The header that carries a key."""
    return {"authorization": f"Bearer {token}"}
