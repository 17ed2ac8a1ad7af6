"""What every operation of the management API works with: the database, the settings, and the way to wake a claimer.

Owns nothing of its own. Knows no operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from forbear.data_keys import DataKeys
from forbear.db import Connection, Database
from forbear.policy.presets import Preset, with_own
from forbear.settings import Settings
from forbear.vault import Keyring, Purpose
from forbear.waking import wake

# A file of presets is read once in the life of an execution environment, and so is a data key unwrapped.
_presets = cache(with_own)


@cache
def _data_keys(settings: Settings) -> DataKeys:
    return DataKeys.of(settings, Purpose.SECRETS)


@dataclass(frozen=True, slots=True)
class Backend:
    """What an operation works with."""

    database: Database
    settings: Settings

    @property
    def presets(self) -> Mapping[str, Preset]:
        """The presets that requests may name: the built-in ones and the stack's own."""
        return _presets(self.settings.presets)

    def keyring(self, connection: Connection | None = None) -> Keyring:
        """What seals and opens secrets and headers: all data keys there are now, and so all that rows read before name.

        Who changes something asks for it before the transaction, too: data keys that are new are waited for then, and
        not while rows are locked.

        Args:
            connection: of a transaction under way; None: there is none.

        Raises:
            KeyUnavailable: it cannot be had.
            Unavailable: the database cannot be reached.
        """
        keys = _data_keys(self.settings)
        return keys.ring(self.read(keys.rows) if connection is None else keys.rows(connection))

    def read[T](self, work: Callable[[Connection], T]) -> T:
        """Run what changes nothing, or nothing more when it runs twice.

        Raises:
            Unavailable: the database cannot be reached.
        """
        return self.database.run(work, repeatable=True)

    def change[T](self, work: Callable[[Connection], T], *, repeatable: bool) -> T:
        """Run `work` as one transaction.

        Raises:
            Unavailable: the database cannot be reached, or was lost on the way.
        """

        def transaction(connection: Connection) -> T:
            with connection.transaction():
                return work(connection)

        return self.database.run(transaction, repeatable=repeatable)

    def wake(self) -> None:
        """Have a claimer look, if none is awake: after the COMMIT that made work, in a transaction of its own.

        What was committed stands, so nothing is raised.
        """
        wake(self.database, self.settings)


def one(connection: Connection, sql: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a statement that always gives one."""
    (row,) = connection.execute(sql, parameters).fetchall()
    return row
