"""What reading costs: every list and reading goes by an index and touches about as many rows as it shows.

Counted by PostgreSQL itself, in the transaction that reads, and not by what a plan promises: with 20,000 finished and
20,000 unfinished deliveries, just filled (no statistics) and analysed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest

from forbear.db import statement
from forbear.manage import cursors, deliveries, events
from forbear.manage.times import first_id
from forbear.models.queries import DeliveryQuery, EventQuery
from forbear.states import DeliveryState
from tests.functions.builders import make_endpoint, one

type Connection = psycopg.Connection[Any]

BIG = ("queue", "queue_attempts", "history%", "events%")


@dataclass(frozen=True)
class Touched:
    """Rows read by sequential scans of the big tables, and by their indexes."""

    sequentially: int
    by_index: int


def touched(connection: Connection, read: Callable[[], object]) -> Touched:
    with connection.transaction(force_rollback=True):
        before = counted(connection)  # what is not flushed yet of earlier transactions is in there too
        read()
        after = counted(connection)
    return Touched(after.sequentially - before.sequentially, after.by_index - before.by_index)


def counted(connection: Connection) -> Touched:
    row = connection.execute(
        "SELECT coalesce(sum(seq_tup_read), 0)::int, coalesce(sum(idx_tup_fetch), 0)::int"
        " FROM pg_stat_xact_user_tables WHERE relname LIKE ANY (%s)",
        (list(BIG),),
    ).fetchone()
    assert row is not None
    return Touched(*row)


@dataclass(frozen=True)
class Filled:
    small: UUID
    """One delivery in a hundred is this endpoint's."""
    large: UUID
    """Nearly all are this one's."""
    idle: UUID
    """None are."""


@pytest.fixture
def filled(connection: Connection) -> Filled:
    for table in ("queue", "history", "history_attempts", "events"):  # statistics would come when they like
        for (name,) in connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relname LIKE %s"
            " AND relnamespace = 'forbear'::regnamespace",
            (f"{table}%",),
        ).fetchall():
            connection.execute(f"ALTER TABLE {name} SET (autovacuum_enabled = off)")
    # At this time of day each partition has a thousand rows or more. One of a few hundred may be read as a whole, for a
    # planner that knows its size; that costs as little as a look into its index.
    connection.execute("UPDATE forbear.clock SET shift = date_trunc('day', now(), 'UTC') + interval '6 hours' - now()")
    connection.execute("SELECT forbear.make_partitions(forbear.now() - interval '6 days', 14)")
    small, large, idle = (
        make_endpoint(connection, tenant=tenant, event_types=("none",)) for tenant in ("small", "large", "idle")
    )
    for _ in range(20):
        make_endpoint(connection, tenant="small", event_types=("none",))
    connection.execute(
        "CREATE TEMPORARY TABLE made AS SELECT n,"
        " CASE WHEN n %% 100 = 0 THEN %s::uuid ELSE %s::uuid END AS endpoint_id,"
        " CASE WHEN n %% 100 = 0 THEN 'small' ELSE 'large' END AS tenant,"
        " uuidv7(c.shift - n * interval '20 seconds') AS id, forbear.now() - n * interval '20 seconds' AS at"
        " FROM generate_series(1, 20000) n, forbear.clock c",
        (small, large),
    )
    connection.execute(
        "INSERT INTO forbear.events SELECT id, tenant, CASE WHEN n % 1000 = 0 THEN 'rare' ELSE 'often' END,"
        " 'application/json', '{}', NULL FROM made;"
        "INSERT INTO forbear.history SELECT id, id, endpoint_id, 2,"
        " CASE WHEN n % 50 = 0 THEN 'dead' ELSE 'delivered' END,"
        " CASE WHEN n % 50 = 0 THEN 'exhausted' END, 1, 1, NULL, at + interval '1 second' FROM made;"
        "INSERT INTO forbear.history_attempts SELECT id, 1, 1, at, 1, '', NULL, '', 200, '', '', NULL, '', 'success',"
        " NULL, false, NULL, false, at + interval '1 second' FROM made;"
        "INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes)"
        " SELECT uuidv7(c.shift - n * interval '20 seconds'), id, endpoint_id, at, 2 FROM made, forbear.clock c"
    )
    return Filled(small, large, idle)


def test_lists_and_readings_touch_little_more_than_they_show(
    connection: Connection, filled: Filled, subtests: pytest.Subtests
) -> None:
    middle = one(connection, "SELECT id FROM forbear.history ORDER BY id OFFSET 10000 LIMIT 1")
    deep = cursors.write(deliveries.LIST, middle)
    dead = DeliveryState.DEAD
    lists: list[tuple[str, DeliveryQuery, int]] = [
        ("an endpoint that has none", DeliveryQuery(endpoint=filled.idle), 0),
        ("a small one", DeliveryQuery(endpoint=filled.small), 51 + 200 + 51),
        ("a small one's tenant", DeliveryQuery(tenant="small"), 51 + 200 + 51),
        ("a small one's dead", DeliveryQuery(endpoint=filled.small, status=dead), 200 + 51),
        ("a small one's pending", DeliveryQuery(endpoint=filled.small, status=DeliveryState.PENDING), 200 + 51),
        ("a small one's by type", DeliveryQuery(endpoint=filled.small, type="rare"), 3 * (200 + 200)),
        ("a large one", DeliveryQuery(endpoint=filled.large), 51 + 5_001 + 52 + 51),
        ("a large one, deep", DeliveryQuery(endpoint=filled.large, cursor=deep), 51 + 5_001 + 52 + 51),
        ("a large one's dead", DeliveryQuery(endpoint=filled.large, status=dead), 200 + 51),
        ("a large one's leased", DeliveryQuery(endpoint=filled.large, status=DeliveryState.LEASED), 5_001 + 2 * 20_000),
        ("everybody's", DeliveryQuery(), 51 + 51 + 51),
        ("everybody's, deep", DeliveryQuery(cursor=deep), 51 + 51 + 51),
        ("everybody's dead", DeliveryQuery(status=dead), 10_000 + 51),
        ("an event's", DeliveryQuery(event=middle), 3),
    ]
    for statistics in (False, True):
        if statistics:
            connection.execute("ANALYZE")
        for name, query, bound in lists:
            with subtests.test(name=name, statistics=statistics):
                found = touched(connection, lambda query=query: read_list(connection, query))  # type: ignore[misc]
                assert found.sequentially == 0
                assert found.by_index <= bound + 20
        for endpoint_id, bound in (
            (filled.idle, 0),
            (filled.small, 4 * 200),
            (filled.large, 2_000 + 500 + 500 + 10_001),
        ):
            with subtests.test(traffic=endpoint_id, statistics=statistics):
                found = touched(connection, lambda id_=endpoint_id: read_traffic(connection, id_))  # type: ignore[misc]
                assert found.sequentially == 0
                assert found.by_index <= bound + 20
        for name, events_query, bound in (
            ("a tenant's events", EventQuery(tenant="small"), 51),
            ("a tenant's events by type", EventQuery(tenant="small", type="rare"), 200),
            ("everybody's events", EventQuery(), 51),
            ("everybody's events, deep", EventQuery(cursor=cursors.write("v", middle)), 51),
            ("everybody's events by type", EventQuery(type="rare"), 10_000),
        ):
            with subtests.test(name=name, statistics=statistics):
                found = touched(connection, lambda query=events_query: read_events(connection, query))  # type: ignore[misc]
                assert found.sequentially == 0
                assert found.by_index <= bound + 20


def test_a_step_of_cancelling_goes_by_the_due_index_from_where_it_stands(
    connection: Connection, filled: Filled
) -> None:
    middle = connection.execute(
        "SELECT due_at, id FROM forbear.queue WHERE endpoint_id = %s ORDER BY due_at OFFSET 10000 LIMIT 1",
        (filled.large,),
    ).fetchone()
    assert middle is not None
    parameters = {
        "endpoint": filled.large,
        "due_at": middle[0],
        "id": middle[1],
        "first": first_id(middle[0]),
        "end": UUID(int=(1 << 128) - 1),
        "type": None,
        "limit": 100,
    }
    found = touched(connection, lambda: connection.execute(statement("cancel_step"), parameters))
    assert found.sequentially == 0
    assert found.by_index < 1_000


def read_list(connection: Connection, query: DeliveryQuery) -> None:
    connection.execute(deliveries.page_statement(query), deliveries.page_parameters(query))


def read_events(connection: Connection, query: EventQuery) -> None:
    connection.execute(events.page_statement(query), events.page_parameters(query))


def read_traffic(connection: Connection, endpoint_id: UUID) -> None:
    connection.execute(statement("traffic"), {"id": endpoint_id, "count_to": 10_000})
