"""Housekeeping: partitions for the days to come, retention by dropping whole ones, expired keys, old replays.

Runs as the tables' owner in a function of its own, which the claimer calls once an hour of work. Nothing here scans or
locks what the claimer works on.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from forbear.db import Target, make_partitions, statement

logger = logging.getLogger(__name__)

LOCK = "hashtextextended('forbear.maintenance', 0)"
EVERY = timedelta(hours=1)
KEYS_A_STEP = 5_000
# Detaching a partition waits for transactions that may still see it. Somebody's forgotten one must not hold up the
# function for long: what was begun is finished the next time.
PATIENCE_S = 20


def maintain(target: Target | str, retention_days: int) -> list[str]:
    """Make partitions ahead, drop those whose retention is over, purge old idempotency keys and replays.

    Args:
        target: the database, or just its URL, as the tables' owner.
        retention_days: days to keep what has ended.

    Returns:
        The names of the partitions that were dropped.
    """
    target = Target(target) if isinstance(target, str) else target
    with psycopg.connect(**target.arguments(options=f"-c statement_timeout={PATIENCE_S}s")) as connection:
        if connection.execute(f"SELECT pg_try_advisory_lock({LOCK})").fetchone() != (True,):
            return []  # somebody else is at it
        try:
            make_partitions(connection)
            # Noted before the rest, which may fail: that is tried again in an hour, and not every few minutes.
            connection.execute("UPDATE forbear.control SET maintained_at = forbear.now()")
            purge_keys(connection)
            connection.execute(
                "DELETE FROM forbear.replays WHERE ended_at < forbear.now() - %s", (timedelta(days=retention_days),)
            )
            return drop_old_partitions(connection, retention_days)
        finally:
            # The server notices a closed connection a moment later: until then the next one would find it locked.
            if not connection.closed:
                connection.execute(f"SELECT pg_advisory_unlock({LOCK})")


def drop_old_partitions(connection: psycopg.Connection[Any], retention_days: int) -> list[str]:
    """Drop the daily partitions that ended more than `retention_days` days ago and that nothing needs.

    DETACH … CONCURRENTLY waits for nobody's row locks and blocks no reader or writer of the parent; one that was
    interrupted is finished first.

    Returns:
        The names of those dropped; the others' turn comes next time if somebody had to be waited for in vain.
    """
    cursor = connection.cursor(row_factory=tuple_row)
    dropped: list[str] = []
    try:
        for parent, partition, rest in cursor.execute(statement("leftover_partitions")).fetchall():
            _drop(connection, parent, partition, rest)
            dropped.append(partition)
        # Asked anew each time: a detach waits for those who use the table, and a replay among them may have put back a
        # delivery whose event lies in a partition that nothing needed before.
        while found := cursor.execute(
            "SELECT parent, partition FROM forbear.droppable_partitions(%s) LIMIT 1", (timedelta(days=retention_days),)
        ).fetchone():
            parent, partition = found
            _drop(connection, parent, partition, "CONCURRENTLY")
            dropped.append(partition)
    except psycopg.errors.QueryCanceled:
        logger.warning("a transaction that has been open for long keeps partitions from being dropped")
    return dropped


def _drop(connection: psycopg.Connection[Any], parent: str, partition: str, detach: LiteralString | None) -> None:
    names = {"parent": sql.Identifier("forbear", parent), "partition": sql.Identifier("forbear", partition)}
    if detach is not None:
        how = sql.SQL(detach)
        connection.execute(sql.SQL("ALTER TABLE {parent} DETACH PARTITION {partition} {how}").format(**names, how=how))
    connection.execute(sql.SQL("DROP TABLE {partition}").format(**names))
    logger.info("dropped partition %s", partition)


def purge_keys(connection: psycopg.Connection[Any]) -> None:
    """Delete idempotency keys older than 24 hours, in small steps along their index."""
    while (
        connection.execute(
            "DELETE FROM forbear.idempotency_keys WHERE (tenant, key) IN ("
            "  SELECT tenant, key FROM forbear.idempotency_keys WHERE created_at <= forbear.now() - interval '24 hours'"
            "  ORDER BY created_at LIMIT %s FOR UPDATE SKIP LOCKED)",
            (KEYS_A_STEP,),
        ).rowcount
        == KEYS_A_STEP
    ):
        pass
