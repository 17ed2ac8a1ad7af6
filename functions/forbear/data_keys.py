"""The data keys in the database: made once for each purpose, unwrapped once in the life of an execution environment.

Owns the table `forbear.data_keys`. Knows neither what data keys encrypt, nor how (that is `vault`'s).

Another data key of a purpose may be added to the table by hand at any time: who seals does it by the newest one, and
the earlier ones open what they have sealed for as long as they are there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import psycopg
from psycopg.rows import dict_row

from forbear.db import statement
from forbear.settings import Settings
from forbear.vault import Keyring, KeyUnavailable, Purpose, Wrapping, wrapping

logger = logging.getLogger(__name__)

# The table whose rows need a purpose's data keys, and what is to be done where these are lost.
_USED_FOR: Final = {
    Purpose.SECRETS: ("forbear.secrets", "give each endpoint another secret and its headers"),
    Purpose.API_KEYS: ("forbear.api_keys", "make other API keys"),
}


class DataKeys:
    """The data keys of one purpose, as one process has them.

    Args:
        purpose: theirs.
        outside: gives the key that they are wrapped by, when it is needed.
    """

    def __init__(self, purpose: Purpose, outside: Callable[[], Wrapping]) -> None:
        self._purpose = purpose
        self._outside = outside
        # Whoever uses the key outside pays for it, and waits: what it has unwrapped once is kept.
        self._unwrapped: dict[bytes, bytes] = {}
        self._wrapped: dict[int, bytes] = {}
        self._ring: Keyring | None = None

    @classmethod
    def of(cls, settings: Settings, purpose: Purpose) -> DataKeys:
        """The data keys that are wrapped by the key which settings name."""
        return cls(purpose, lambda: wrapping(settings.key))

    @property
    def statement(self) -> tuple[str, dict[str, str]]:
        """What reads them, with its parameters."""
        return statement("data_keys"), {"purpose": self._purpose.value}

    def rows(self, connection: psycopg.Connection[Any]) -> list[dict[str, Any]]:
        """Read them from the database, as they are now."""
        with connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(*self.statement).fetchall()

    def ring(self, rows: Iterable[Mapping[str, Any]]) -> Keyring:
        """The keyring of rows of the statement `data_keys`; the same one as before if they are the same.

        It may take seconds when there are new ones: the key outside is another service's. One that cannot be unwrapped
        now is left out, and tried again the next time: what others have sealed can be opened meanwhile.

        Raises:
            KeyUnavailable: there is no row, or none can be unwrapped.
        """
        wrapped = {int(row["id"]): bytes(row["wrapped"]) for row in rows}
        if self._ring is None or wrapped != self._wrapped:
            failed = self._unwrap(wrapped)
            known = {number: self._unwrapped[one] for number, one in wrapped.items() if number not in failed}
            if failed and not known:
                raise next(iter(failed.values()))
            for number, error in failed.items():
                logger.warning("the data key %d is left out: %s", number, error)
            self._ring = Keyring(self._purpose, known)
            self._wrapped = {number: one for number, one in wrapped.items() if number not in failed}
        return self._ring

    def _unwrap(self, wrapped: Mapping[int, bytes]) -> dict[int, KeyUnavailable]:
        """Unwrap what is new. Gives why some could not be, by their numbers."""
        failed = {}
        for number, one in wrapped.items():
            if one not in self._unwrapped:
                try:
                    self._unwrapped[one] = self._outside().unwrap(one, self._purpose)
                except KeyUnavailable as error:
                    failed[number] = error
        return failed


def make_data_keys(connection: psycopg.Connection[Any], outside: Wrapping) -> None:
    """Make the data keys of purposes that have none. Of several that do this at once, one makes each.

    Args:
        connection: in autocommit mode, as the schema's owner, to a migrated database.
        outside: the key to wrap them by.

    Raises:
        KeyUnavailable: the key outside cannot be used; or what data keys were used for is there, but they are not any
            more: they are lost, and another data key would only hide that.
    """
    for purpose in Purpose:
        if DataKeys(purpose, lambda: outside).rows(connection):
            continue
        table, otherwise = _USED_FOR[purpose]
        if connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone():
            raise KeyUnavailable(
                f"the data keys for {table} are gone: put the rows of forbear.data_keys with the purpose {purpose} back"
                f" from a backup (or delete the rows of {table}, run this again, and {otherwise})"
            )
        wrapped = outside.new_key(purpose)  # before the lock: it may take seconds
        with connection.transaction():
            connection.execute("LOCK TABLE forbear.data_keys IN SHARE ROW EXCLUSIVE MODE")
            connection.execute(statement("make_data_key"), {"purpose": purpose.value, "wrapped": wrapped})
