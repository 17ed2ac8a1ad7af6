"""Brings a database's schema up to date: numbered SQL files, applied in order, each once.

Owns the ledger `forbear.migrations`. Knows nothing of what the files hold.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import psycopg
from psycopg.rows import tuple_row

PARTITIONS_AHEAD_DAYS = 8
OLDEST_SERVER = 18_00_00

LEDGER = """
    CREATE SCHEMA IF NOT EXISTS forbear;
    CREATE TABLE IF NOT EXISTS forbear.migrations (
        version    int         PRIMARY KEY,
        name       text        NOT NULL,
        checksum   text        NOT NULL,
        applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
    )
"""


class MigrationError(Exception):
    """The database cannot be brought up to date; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A numbered SQL file: its version, its name, its text and the SHA-256 of that text."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        """SHA-256 of the text, in hex."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def known_migrations() -> tuple[Migration, ...]:
    """The migrations that this version of Forbear knows, in order."""
    folder = files("forbear") / "sql" / "migrations"
    found = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".sql")), key=lambda entry: entry.name)
    return tuple(
        Migration(int(entry.name[:4]), entry.name[5:].removesuffix(".sql"), entry.read_text(encoding="utf-8"))
        for entry in found
    )


def migrate(connection: psycopg.Connection[Any], migrations: tuple[Migration, ...] | None = None) -> list[Migration]:
    """Apply what is missing, all of it in one transaction, and make the partitions of the days to come.

    Safe to run twice and from several processes at once: an advisory lock lets one through, the others find nothing
    to do.

    Args:
        connection: to the database, in autocommit mode.
        migrations: what to apply; by default `known_migrations()`.

    Returns:
        The migrations that this call applied.

    Raises:
        MigrationError: the server is too old, an applied migration's text has changed since, or the database has
            migrations that this version does not know.
    """
    if connection.info.server_version < OLDEST_SERVER:
        raise MigrationError(
            f"PostgreSQL {connection.info.server_version // 10000} is too old: Forbear needs 18 or later (uuidv7)"
        )
    migrations = known_migrations() if migrations is None else migrations
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('forbear.migrations', 0))")
        connection.execute(LEDGER)
        with connection.cursor(row_factory=tuple_row) as cursor:
            rows = cursor.execute("SELECT version, checksum FROM forbear.migrations").fetchall()
        applied: dict[int, str] = dict(rows)
        unknown = applied.keys() - {migration.version for migration in migrations}
        if unknown:
            raise MigrationError(f"the database is newer than this Forbear (migration {max(unknown)}): upgrade Forbear")
        fresh = []
        for migration in migrations:
            if migration.version not in applied:
                connection.execute(migration.sql)
                connection.execute(
                    "INSERT INTO forbear.migrations (version, name, checksum) VALUES (%s, %s, %s)",
                    (migration.version, migration.name, migration.checksum),
                )
                fresh.append(migration)
            elif applied[migration.version] != migration.checksum:
                raise MigrationError(
                    f"migration {migration.version:04} ({migration.name}) was applied with another text:"
                    " restore the file, and put changes into a new migration"
                )
        connection.execute("SELECT forbear.make_partitions(forbear.now(), %s)", (PARTITIONS_AHEAD_DAYS,))
    return fresh
