"""Builds finished deliveries: by the thousand as rows, or by a claimer's own calls."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from forbear.store import Attempt, Result, Store
from infra.local.deployment import url_as
from tests.functions.builders import data_keys, run

type Connection = psycopg.Connection[Any]

READS = """
    SELECT relid, seq_tup_read, coalesce(idx_tup_fetch, 0), (
        SELECT coalesce(sum(pg_stat_get_xact_blocks_fetched(i.indexrelid)), 0)::int
        FROM pg_index i WHERE i.indrelid = relid)
    FROM pg_stat_xact_user_tables
    WHERE schemaname = 'forbear' AND relname ~ '^(history|events|queue|endpoints|lanes)'
"""
MAKE = """
    WITH clock AS MATERIALIZED (
        SELECT forbear.now() AS now
    ), delivery AS MATERIALIZED (
        SELECT uuidv7(d.made - clock_timestamp()) AS id, uuidv7(d.made - clock_timestamp()) AS event_id, d.made, d.ended
        FROM (SELECT c.now - make_interval(secs => %(made_ago_s)s) + n * interval '1 millisecond' AS made,
                     c.now - make_interval(secs => %(ended_ago_s)s) AS ended
              FROM clock c, generate_series(1, %(number)s) AS n) d
    ), events AS (
        INSERT INTO forbear.events (id, tenant, type, content_type, payload)
        SELECT d.event_id, e.tenant, %(type)s, 'application/json', 'payload'
        FROM delivery d JOIN forbear.endpoints e ON e.id = %(endpoint)s
    ), attempts AS (
        INSERT INTO forbear.history_attempts (
            delivery_id, number, generation, started_at, latency_ms, url, request_headers, status, verdict, ended_at)
        SELECT d.id, n, 1, d.made, 1, 'https://receiver.example/', '', 500, 'retry', d.ended
        FROM delivery d, generate_series(1, %(attempts)s) AS n
    )
    INSERT INTO forbear.history (
        id, event_id, endpoint_id, payload_bytes, state, reason, generation, attempts, ended_at)
    SELECT d.id, d.event_id, %(endpoint)s, 7, %(state)s, %(reason)s, 1, %(attempts)s, d.ended
    FROM delivery d
    RETURNING id
"""


@dataclass(frozen=True)
class Reads:
    """What a transaction has read: rows by sequential scans, rows by indexes, and blocks of indexes, by table."""

    by_table: dict[int, tuple[int, int, int]]

    def __sub__(self, before: Reads) -> Reads:
        return Reads(
            {
                table: (scanned - one[0], fetched - one[1], blocks - one[2])
                for table, (scanned, fetched, blocks) in self.by_table.items()
                for one in [before.by_table.get(table, (0, 0, 0))]
            }
        )

    @property
    def scanned(self) -> int:
        """Rows read by sequential scans, of all tables."""
        return sum(scanned for scanned, _, _ in self.by_table.values())

    @property
    def most_fetched(self) -> int:
        """Rows fetched by indexes, of the table with the most."""
        return max(fetched for _, fetched, _ in self.by_table.values())

    @property
    def index_blocks(self) -> int:
        """Index blocks looked at, of all tables."""
        return sum(blocks for _, _, blocks in self.by_table.values())


def reads(connection: Connection) -> Reads:
    """Read the counters of the transaction that is open. They may go on from earlier ones: take the difference."""
    return Reads({table: (scanned, *rest) for table, scanned, *rest in connection.execute(READS)})


def make_finished(
    connection: Connection,
    endpoint_id: UUID,
    number: int = 1,
    *,
    state: str = "dead",
    reason: str | None = "exhausted",
    event_type: str = "order.paid",
    attempts: int = 2,
    made_ago_s: float = 600,
    ended_ago_s: float = 300,
) -> list[UUID]:
    """Store events and their finished deliveries, made a millisecond apart from `made_ago_s` seconds ago on.

    Gives the deliveries' ids, which are in that order.
    """
    for ago_s in (made_ago_s, ended_ago_s):
        connection.execute("SELECT forbear.make_partitions(forbear.now() - make_interval(secs => %s), 2)", (ago_s,))
    rows = connection.execute(
        MAKE,
        {
            "endpoint": endpoint_id,
            "number": number,
            "state": state,
            "reason": reason if state == "dead" else None,
            "type": event_type,
            "attempts": attempts,
            "made_ago_s": made_ago_s,
            "ended_ago_s": ended_ago_s,
        },
    ).fetchall()
    return sorted(row[0] for row in rows)


def attempt_all(database_url: str, outcome: str) -> list[UUID]:
    """Claim what is due, 500 deliveries at most, and settle all of it as delivered, dead or retry. Gives their ids."""

    async def work() -> list[UUID]:
        store = Store(url_as(database_url, "forbear_claimer"), data_keys())
        leases = await store.claim(500, 1 << 20)
        reason = "permanent" if outcome == "dead" else None
        verdict = {"delivered": "success", "dead": "permanent", "retry": "retry"}[outcome]
        made = Attempt(
            *(verdict, time.monotonic(), 1.0, "https://receiver.example/", None, b""),
            *(200 if outcome == "delivered" else 500, b"", b"", None, "", None),
            retry_after_honoured=False,
        )
        await store.settle([Result(lease, outcome, reason, 60.0, limited=False, attempt=made) for lease in leases])
        await store.aclose()
        return sorted(lease.delivery_id for lease in leases)

    return run(work())
