"""The plans of the claimer's statements hold whatever the tables hold, and whatever they held when they were made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.functions.builders import make_endpoint, one, post
from tests.functions.queue.explaining import Plans, explained
from tests.functions.queue.leasing import claim, control, fetch, freeze, keep_late, open_breaker, reap, settle

type Connection = psycopg.Connection[tuple[Any, ...]]

TINY = {"clock", "control", "claimers", "replays"}
LANES = 20
BATCH = 100


def fill(connection: Connection, pending: int, *, endpoint_ids: list[UUID] | None = None, due: str = "0") -> None:
    """Put many deliveries in the queue at once, spread over endpoints (all of them, unless some are named)."""
    connection.execute(
        "WITH lanes AS (SELECT array_agg(endpoint_id ORDER BY endpoint_id) AS ids FROM forbear.lanes"
        "               WHERE %(ids)s::uuid[] IS NULL OR endpoint_id = ANY (%(ids)s::uuid[])),"
        " event AS (INSERT INTO forbear.events SELECT forbear.new_id(), 'acme', 'x', 'text/plain', 'payload'"
        "           FROM generate_series(1, 1) RETURNING id),"
        " filled AS (INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes)"
        "            SELECT forbear.new_id(), event.id, ids[1 + n %% cardinality(ids)],"
        "                   forbear.now() + %(due)s::interval - n * interval '1 microsecond', 7"
        "            FROM generate_series(1, %(pending)s) AS n, lanes, event RETURNING endpoint_id, due_at)"
        " INSERT INTO forbear.wakes (endpoint_ids, due_ats) SELECT array_agg(w.e), array_agg(w.d)"
        " FROM (SELECT endpoint_id AS e, min(due_at) AS d FROM filled GROUP BY 1) w HAVING count(*) > 0",
        {"ids": endpoint_ids, "due": due, "pending": pending},
    )


def endpoints(connection: Connection) -> list[UUID]:
    """All endpoints."""
    return [row[0] for row in connection.execute("SELECT id FROM forbear.endpoints WHERE tenant = 'acme'").fetchall()]


def work(connection: Connection) -> Plans:
    """Everything that a claimer asks of the database, once; 100 deliveries of 20 lanes."""
    for n in range(LANES):
        post(connection, *[b"1"] * 10, event_type=f"t{n}")
    leases: list[Any] = []
    befores = {endpoint_id: control(connection, endpoint_id) for endpoint_id in endpoints(connection)}
    with explained(connection) as plans:
        while len(leases) < BATCH and (more := claim(connection)):
            leases += more
        parts = [leases[first::4] for first in range(4)]
        endpoint_id = leases[0].endpoint_id
        before = befores[endpoint_id]
        settle(connection, parts[0], changes=[(endpoint_id, before, before)], waits={endpoint_id: 0.001})
        settle(connection, parts[1], "retry", delay_s=0.001)
        settle(connection, parts[2], "dead", reason="exhausted")
        freeze(connection, forward_s=45)
        reap(connection)
        for lease in leases[:3]:
            keep_late(connection, lease)
        settle(connection, claim(connection)[:BATCH])
        fetch(connection, "SELECT * FROM forbear.outlook(gen_random_uuid())")
        one(connection, "SELECT forbear.cancel_lane(%s, 100)", endpoint_id)
    return plans


def check(plans: Plans) -> None:
    """Every table is read by an index and a condition on it, and no more of it than the work at hand."""
    scans = [scan for scan in plans.scans if scan.table not in TINY]
    assert {"queue", "lanes", "wakes", "queue_attempts", "endpoints", "secrets"} <= {scan.table for scan in scans}
    for scan in scans:
        assert scan.node in ("Index Scan", "Index Only Scan", "Tid Scan"), scan
        in_order = scan.index in ("wakes_pkey", "lanes_ready", "queue_leased")
        assert scan.condition is not None or in_order, scan
        assert scan.rows <= 1200, scan
        # Of an index that the id does not lead, such a condition reads the whole.
        if scan.condition is not None and scan.condition.startswith("(id = "):
            assert scan.index is not None, scan
            assert scan.index.endswith("_pkey"), scan


@pytest.fixture
def lanes(connection: Connection) -> list[UUID]:
    freeze(connection)
    return [make_endpoint(connection, event_types=(f"t{n}",)) for n in range(LANES)]


def test_on_empty_tables(connection: Connection, lanes: list[UUID]) -> None:
    check(work(connection))


def test_on_tables_that_were_vacuumed_while_they_were_empty(connection: Connection, lanes: list[UUID]) -> None:
    """Then the planner knows for sure, and wrongly, that they have no rows."""
    connection.execute("VACUUM ANALYZE")
    check(work(connection))
    connection.execute("DELETE FROM forbear.queue")
    connection.execute("DELETE FROM forbear.wakes")
    connection.execute("VACUUM ANALYZE")
    check(work(connection))


def test_plans_made_on_empty_tables_hold_when_they_fill(
    connection: Connection, lanes: list[UUID], connect: Callable[[], Connection]
) -> None:
    connection.execute("VACUUM ANALYZE")
    work(connection)
    fill(connect(), 20_000)
    check(work(connection))
    fill(connect(), 20_000, due="1 day")
    check(work(connection))


def test_plans_made_on_yesterdays_partitions_hold_in_the_empty_ones_of_a_new_day(
    connection: Connection, lanes: list[UUID]
) -> None:
    check(work(connection))
    freeze(connection, forward_s=86_400)
    check(work(connection))


def test_plans_made_on_just_filled_tables(connection: Connection, lanes: list[UUID]) -> None:
    fill(connection, 20_000)
    check(work(connection))


def test_plans_made_on_large_analysed_tables(
    connection: Connection, lanes: list[UUID], connect: Callable[[], Connection]
) -> None:
    fill(connection, 20_000)
    connection.execute("VACUUM ANALYZE")
    check(work(connection))
    check(work(connect()))


def test_with_many_lanes(connection: Connection, lanes: list[UUID]) -> None:
    connection.execute(
        "WITH e AS (INSERT INTO forbear.endpoints (tenant, url, event_types, policy)"
        "           SELECT 'crowd', 'https://r.example/', '{x}', '{}' FROM generate_series(1, 5000) RETURNING id)"
        " INSERT INTO forbear.lanes (endpoint_id, tenant, timeout_s, concurrency) SELECT id, 'crowd', 15, 10 FROM e"
    )
    check(work(connection))
    connection.execute("VACUUM ANALYZE forbear.lanes")
    check(work(connection))


class TestABlockedBacklogCostsNothing:
    """Counted in rows that a claim looks at: the same with a hundred thousand behind it as with none."""

    def block(self, connection: Connection, how: str, endpoint_id: UUID) -> None:
        match how:
            case "an open breaker":
                open_breaker(connection, endpoint_id, for_s=3600)
            case "a pause":
                connection.execute("UPDATE forbear.lanes SET paused_at = now() WHERE endpoint_id = %s", (endpoint_id,))
            case "a Retry-After":
                settle(connection, [], waits={endpoint_id: 3600.0})
            case "full concurrency":
                connection.execute("UPDATE forbear.lanes SET concurrency = 1 WHERE endpoint_id = %s", (endpoint_id,))
                fill(connection, 1, endpoint_ids=[endpoint_id])
                assert len(claim(connection)) == 1
            case "a rate":
                connection.execute(
                    "UPDATE forbear.lanes SET rate_per_s = 0.001, tokens = 0, visited_at = forbear.now()"
                    " WHERE endpoint_id = %s",
                    (endpoint_id,),
                )

    @pytest.mark.parametrize("how", ["an open breaker", "a pause", "a Retry-After", "full concurrency", "a rate"])
    def test_behind(self, connection: Connection, lanes: list[UUID], how: str) -> None:
        blocked = make_endpoint(connection, event_types=("blocked",))
        self.block(connection, how, blocked)

        def rows_looked_at() -> int:
            for n in range(LANES):
                post(connection, *[b"1"] * 5, event_type=f"t{n}")
            with explained(connection) as plans:
                leases = claim(connection)
            assert len(leases) == LANES * 5
            settle(connection, leases)
            return plans.rows

        without = rows_looked_at()
        fill(connection, 100_000, endpoint_ids=[blocked])
        claim(connection)  # the wake row goes once
        assert rows_looked_at() <= without + 10

    def test_retries_that_want_a_token_cost_the_first_attempts_nothing(
        self, connection: Connection, lanes: list[UUID]
    ) -> None:
        budget = {"ratio": 0, "floor_per_s": 0.001, "window_s": 1}
        busy = make_endpoint(connection, event_types=("busy",), policy={"budget": budget})

        def rows_looked_at() -> int:
            post(connection, *[b"1"] * 5, event_type="busy")
            with explained(connection) as plans:
                leases = claim(connection)
            assert len(leases) == 5
            settle(connection, leases)
            return plans.rows

        connection.execute("UPDATE forbear.lanes SET budget_tokens = 0")
        without = rows_looked_at()
        fill(connection, 100_000, endpoint_ids=[busy])
        connection.execute(
            "UPDATE forbear.queue SET tries = 1, attempts = 1, started_at = forbear.now(), held_mark = interval '0'"
        )
        claim(connection)  # the wake row goes once
        assert rows_looked_at() <= without + 10

    def test_probing_a_lane_looks_at_the_probe_and_not_at_the_backlog(
        self, connection: Connection, lanes: list[UUID]
    ) -> None:
        blocked = make_endpoint(connection, event_types=("blocked",))
        fill(connection, 100_000, endpoint_ids=[blocked])
        open_breaker(connection, blocked, for_s=30)
        freeze(connection, forward_s=30)
        with explained(connection) as plans:
            assert [lease.probe for lease in claim(connection)] == [True]
        assert plans.rows < 30
