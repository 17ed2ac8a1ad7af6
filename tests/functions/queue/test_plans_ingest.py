"""The plans of ingest's statements hold whatever the tables hold, and whatever they held when they were made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.functions.builders import make_endpoint
from tests.functions.queue.explaining import Plans, explained

type Connection = psycopg.Connection[tuple[Any, ...]]

TINY = {"clock", "control", "claimers"}
ONE = "SELECT forbear.ingest(%s, 'a.b', 'text/plain', '1'::bytea, NULL, 'a.b a.* *', %s, %s)"
SEVERAL = (
    "WITH ten AS (SELECT %s::text AS tenant, %s::text AS key, %s::bytea AS digest, n FROM generate_series(1, 10) AS n)"
    " SELECT forbear.ingest(array_agg(tenant), array_agg('a.b'::text), array_agg('text/plain'::text),"
    " array_agg('1'::bytea), array_agg(NULL::timestamptz), array_agg('a.b a.* *'::text), array_agg(key || n),"
    " array_agg(digest)) FROM ten"
)


def fill(connection: Connection) -> None:
    """Many subscriptions, keys and deliveries that have nothing to do with what is posted."""
    connection.execute(
        "INSERT INTO forbear.subscriptions SELECT 'other-' || n % 1000, 'p' || n, s.endpoint_id"
        " FROM generate_series(1, 20000) n, (SELECT endpoint_id FROM forbear.subscriptions LIMIT 1) s"
    )
    connection.execute(
        "INSERT INTO forbear.idempotency_keys SELECT 'other', 'k' || n, gen_random_uuid(), '', forbear.now()"
        " FROM generate_series(1, 20000) n"
    )
    connection.execute(
        "INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes)"
        " SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), forbear.now(), 1"
        " FROM generate_series(1, 20000)"
    )


def work(connection: Connection, key: str) -> Plans:
    """One event and ten, under new keys and again, and the question."""
    with explained(connection) as plans:
        for sql in (ONE, SEVERAL):
            for _ in range(2):
                connection.execute(sql, ("acme", key, b"1"))
            connection.execute("SELECT forbear.call_claimer(p_for_wakes => true)")
    return plans


def check(plans: Plans) -> None:
    """Every table is read by an index and a condition on it, and no more of it than there is to find."""
    scans = [scan for scan in plans.scans if scan.table not in TINY]
    assert {"subscriptions", "idempotency_keys", "queue"} <= {scan.table for scan in scans}
    for scan in scans:
        if scan.table == "wakes":  # whether there is one
            assert scan.rows <= 1, scan
            continue
        assert scan.node in ("Index Scan", "Index Only Scan", "Bitmap Heap Scan"), scan
        assert scan.rows <= 50, scan
        if scan.node != "Bitmap Heap Scan":  # whose condition stands at the scan of its index
            assert scan.condition is not None, scan


@pytest.fixture
def endpoints(connection: Connection) -> None:
    for pattern in ("a.b", "a.*", "b"):
        make_endpoint(connection, event_types=(pattern,))


@pytest.mark.usefixtures("endpoints")
def test_on_tables_that_were_vacuumed_while_they_were_empty_and_then_filled(connection: Connection) -> None:
    connection.execute("VACUUM ANALYZE")
    check(work(connection, "first"))
    fill(connection)
    check(work(connection, "second"))


@pytest.mark.usefixtures("endpoints")
def test_on_large_analysed_tables(connection: Connection, connect: Callable[[], Connection]) -> None:
    fill(connection)
    check(work(connection, "first"))
    connection.execute("VACUUM ANALYZE")
    check(work(connection, "second"))
    check(work(connect(), "third"))
