"""Brings a database's schema up to date: numbered SQL files, applied in order, each once.

Owns the ledger `forbear.migrations`. Knows nothing of what the files hold.

Old and new code work side by side while a new version is rolled out, so a change comes in two phases. `NNNN_name.sql`
(pre) expands: code that does not know it goes on working. `NNNN_name.post.sql` (post) contracts, once no code is left
that needs what goes. A version's post files have numbers no lower than its pre files.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from itertools import dropwhile
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from forbear import roles
from forbear.db import GAVE_WAY, is_lost

logger = logging.getLogger(__name__)

PARTITIONS_AHEAD_DAYS = 8
OLDEST_SERVER = 18_00_00
# A change that waits for somebody's lock makes everybody else wait behind it: rather give up and try again.
LOCK_TIMEOUT = "10s"
# What can be tried again; nothing was done.
PASSING = (psycopg.errors.LockNotAvailable, *GAVE_WAY)

FILE_NAME = re.compile(r"(\d{4})_(\w+)(\.post)?\.sql")
LEDGER = """
    CREATE TABLE IF NOT EXISTS forbear.migrations (
        version    int         NOT NULL,
        phase      text        NOT NULL CHECK (phase IN ('pre', 'post')),
        name       text        NOT NULL,
        checksum   text        NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (version, phase)
    )
"""


class MigrationError(Exception):
    """The database cannot be brought up to date; the message says why and what to do."""


class Phase(StrEnum):
    """When a migration runs: before the functions are switched to new code, or after."""

    PRE = "pre"
    POST = "post"


@dataclass(frozen=True, slots=True)
class Migration:
    """A numbered SQL file: its version, its name, its text and its phase."""

    version: int
    name: str
    sql: str
    phase: Phase = Phase.PRE

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @property
    def key(self) -> tuple[int, Phase]:
        """What the ledger knows it by."""
        return self.version, self.phase

    def __str__(self) -> str:
        return f"{self.version:04} ({self.name}{', post' if self.phase is Phase.POST else ''})"


def known_migrations() -> tuple[Migration, ...]:
    """The migrations that this version of Forbear knows, in order."""
    found = []
    for entry in (files("forbear") / "sql" / "migrations").iterdir():
        if name := FILE_NAME.fullmatch(entry.name):
            phase = Phase.POST if name[3] else Phase.PRE
            found.append(Migration(int(name[1]), name[2], entry.read_text(encoding="utf-8"), phase))
    return in_order(found)


def in_order(migrations: Collection[Migration]) -> tuple[Migration, ...]:
    """Migrations by their numbers; of two with the same, the one that expands comes first."""
    return tuple(sorted(migrations, key=lambda migration: (migration.version, migration.phase is Phase.POST)))


def missing(
    migrations: Sequence[Migration], applied: Collection[tuple[int, Phase]], phase: Phase | None
) -> list[Migration]:
    """Which migrations are to be applied now.

    Before the functions switch (pre) that is everything up to the last missing one that expands. A contracting one
    before that is of an earlier version, whose deployment did not come to its end: what follows is built on it. On a
    database without any, nobody is there who could need what goes: it gets all.

    Args:
        migrations: those that are known, in order.
        applied: the keys of those that are there.
        phase: of the deployment; None: no code runs meanwhile.

    Returns:
        The migrations, in order.
    """
    absent = [migration for migration in migrations if migration.key not in applied]
    if phase is Phase.PRE and applied:
        return list(dropwhile(lambda migration: migration.phase is Phase.POST, reversed(absent)))[::-1]
    return absent


def migrate(
    connection: psycopg.Connection[Any],
    migrations: Collection[Migration] | None = None,
    phase: Phase | None = None,
) -> list[Migration]:
    """Apply what is missing, all of it in one transaction, and make the partitions of the days to come.

    As the roles' owner it grants the functions their rights, too: before they switch only more, so that the old code
    keeps what it has. Safe to run twice and from several processes at once: an advisory lock lets one through, the
    others find nothing to do.

    A database may have expanding migrations that this version does not know: it goes on working, as it does when a
    deployment is rolled back.

    Args:
        connection: to the database, in autocommit mode.
        migrations: what to apply; by default `known_migrations()`.
        phase: of the deployment; None: both.

    Returns:
        The migrations that this call applied.

    Raises:
        MigrationError: the server is too old, a migration fails, the text of an applied one has changed since, or the
            database has had a contracting migration that this version does not know.
        psycopg.Error: the connection was lost, or somebody's lock was in the way: nothing was done, it can be tried
            again.
    """
    if connection.info.server_version < OLDEST_SERVER:
        raise MigrationError(
            f"PostgreSQL {connection.info.server_version // 10000} is too old: Forbear needs 18 or later (uuidv7)"
        )
    known = known_migrations() if migrations is None else in_order(migrations)
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('forbear.migrations', 0))")
        connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
        applied = _read_ledger(connection)
        _check(known, applied)
        fresh = missing(known, applied.keys(), phase)
        for migration in fresh:
            _apply(connection, migration)
        connection.execute("SELECT forbear.make_partitions(forbear.now(), %s)", (PARTITIONS_AHEAD_DAYS,))
        if _one(connection, "SELECT current_user::text") == roles.OWNER:
            roles.grant(connection, exactly=phase is not Phase.PRE or not applied)
    return fresh


def _read_ledger(connection: psycopg.Connection[Any]) -> dict[tuple[int, Phase], tuple[str, str]]:
    """The names and checksums of what was applied, by their keys; makes the ledger if there is none."""
    # CREATE SCHEMA IF NOT EXISTS takes the right to create one even if it is there.
    if _one(connection, "SELECT to_regnamespace('forbear')::text") is None:
        connection.execute("CREATE SCHEMA forbear")
    connection.execute(LEDGER)
    with connection.cursor(row_factory=tuple_row) as cursor:
        rows = cursor.execute("SELECT version, phase, name, checksum FROM forbear.migrations").fetchall()
    return {(version, Phase(phase)): (name, checksum) for version, phase, name, checksum in rows}


def _check(known: Sequence[Migration], applied: dict[tuple[int, Phase], tuple[str, str]]) -> None:
    """Raise MigrationError unless this version can work with what was applied."""
    for migration in known:
        if migration.key in applied and applied[migration.key][1] != migration.checksum:
            raise MigrationError(
                f"migration {migration} was applied with another text: restore the file, and put changes into a new"
                " migration"
            )
    foreign = sorted(applied.keys() - {migration.key for migration in known})
    for version, phase in foreign:
        name, _ = applied[version, phase]
        if phase is Phase.POST:
            raise MigrationError(
                f"the database is newer than this Forbear: migration {version:04} ({name}, post) has taken away what"
                " this version needs. Deploy the newer version again, or restore a backup from before it"
            )
        logger.warning("the database has migration %04d (%s), which this version does not know", version, name)


def _apply(connection: psycopg.Connection[Any], migration: Migration) -> None:
    try:
        connection.execute(migration.sql)
    except PASSING:
        raise
    except psycopg.Error as error:
        if is_lost(error):
            raise
        raise MigrationError(
            f"migration {migration} failed: {error.diag.message_primary}. Nothing was changed; deploy the version from"
            " before, and report this"
        ) from error
    connection.execute(
        "INSERT INTO forbear.migrations (version, phase, name, checksum) VALUES (%s, %s, %s, %s)",
        (*migration.key, migration.name, migration.checksum),
    )


def _one(connection: psycopg.Connection[Any], query: str) -> Any:
    with connection.cursor(row_factory=tuple_row) as cursor:
        row = cursor.execute(query).fetchone()
    return row and row[0]
