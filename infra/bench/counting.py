"""What work costs PostgreSQL in statements, rows and WAL: counted, so that it is the same from run to run.

While it is counted, full-page images are off (how many there are depends on when checkpoints happen) and nothing is
vacuumed; images that hint bits cause are left out. Statements are counted by pg_stat_statements, rows by the statistics
of tables, WAL by pg_walinspect.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql

from infra.bench.world import World

_OFF: Final = ("full_page_writes", "autovacuum")
_PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Counted:
    """What work came to.

    Attributes:
        statements: that came from clients.
        nested: that functions ran within these.
        rows: inserted, updated or deleted.
        wal_bytes: without full-page images.
    """

    statements: int
    nested: int
    rows: int
    wal_bytes: int


def counted(world: World, work: Callable[[], None]) -> Counted:
    """Do work, and count what it cost. Nothing else may use the world's database meanwhile.

    Args:
        world: with a database that has been used for nothing but filling.
        work: opens connections of its own, and closes them.

    Raises:
        TimeoutError: a connection was left open, or the settings do not take effect.
    """
    # This connection is older than what has statements counted, so its own are not.
    with world.connect() as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        _until(lambda: _alone(connection), "connections to close")
        database = sql.Identifier(connection.info.dbname)
        connection.execute(sql.SQL("ALTER DATABASE {} SET pg_stat_statements.track = 'all'").format(database))
        for name in _OFF:
            connection.execute(sql.SQL("ALTER SYSTEM SET {} = off").format(sql.Identifier(name)))
        connection.execute("SELECT pg_reload_conf()")
        try:
            _until(lambda: _images_off(connection), "full-page images to be off")
            connection.execute("SELECT pg_stat_statements_reset()")
            rows, start = _one(connection, _ROWS), _one(connection, _WAL_END)
            work()
            _until(lambda: _alone(connection), "the work's connections to close")
            end = _one(connection, _WAL_END)
            return Counted(
                int(_one(connection, _STATEMENTS, True)),
                int(_one(connection, _STATEMENTS, False)),
                int(_one(connection, _ROWS) - rows),
                int(_one(connection, _WAL_BYTES, start, end)),
            )
        finally:
            for name in _OFF:
                connection.execute(sql.SQL("ALTER SYSTEM RESET {}").format(sql.Identifier(name)))
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(sql.SQL("ALTER DATABASE {} RESET pg_stat_statements.track").format(database))


_STATEMENTS: Final = """
    SELECT coalesce(sum(s.calls), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
    WHERE d.datname = current_database() AND s.toplevel = %s"""
_ROWS: Final = """
    SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_stat_user_tables WHERE schemaname = 'forbear'"""
_WAL_END: Final = "SELECT pg_current_wal_flush_lsn()"
_WAL_BYTES: Final = "SELECT coalesce(sum(record_size), 0) FROM pg_get_wal_stats(%s, %s)"
_OTHERS: Final = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"""


def _alone(connection: psycopg.Connection[Any]) -> bool:
    # Whoever has closed a connection has told the statistics of it before it is gone from this view.
    return bool(_one(connection, _OTHERS) == 0)


def _images_off(connection: psycopg.Connection[Any]) -> bool:
    connection.execute("CHECKPOINT")
    return not _one(connection, "SELECT full_page_writes FROM pg_control_checkpoint()")


def _one(connection: psycopg.Connection[Any], statement: str, *parameters: object) -> Any:
    row = connection.execute(statement.encode(), parameters or None).fetchone()
    return row[0] if row else None


def _until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"gave up waiting for {what}")
        time.sleep(0.02)
