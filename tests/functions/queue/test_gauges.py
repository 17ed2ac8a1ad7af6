"""What a claimer measures of the database, and that it costs the same whatever the tables hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from forbear.metrics import GAUGES
from tests.functions.builders import make_endpoint, one, post
from tests.functions.queue.explaining import explained
from tests.functions.queue.leasing import LEASE_S, claim, freeze, open_breaker, reap, settle, several
from tests.functions.queue.test_plans import fill

type Connection = psycopg.Connection[tuple[Any, ...]]


def measure(connection: Connection) -> dict[str, Any]:
    """What the claimer is told."""
    row = connection.cursor(row_factory=dict_row).execute("SELECT * FROM forbear.measure()").fetchone()
    assert row is not None
    return row


def test_the_columns_are_named_as_the_gauges(connection: Connection) -> None:
    assert measure(connection).keys() == {gauge.name for gauge in GAUGES} | {"overdue_s", "uncounted_dead"}


def test_nothing_is_zero(connection: Connection) -> None:
    measured = measure(connection)
    assert {name: value or 0 for name, value in measured.items()} == dict.fromkeys(measured, 0)


def test_the_backlog_is_about_what_is_unfinished(connection: Connection) -> None:
    make_endpoint(connection)
    fill(connection, 5000)
    connection.execute("SELECT pg_stat_force_next_flush()")
    assert measure(connection)["backlog_deliveries"] == 5000


class TestTheOldestReadyLane:
    def test_waits_since_it_was_ready(self, connection: Connection) -> None:
        freeze(connection)
        several(connection, 2)
        post(connection, b"1", event_type="t0")
        claim(connection, lanes=0)  # takes the wake row in, and leaves the lane
        freeze(connection, forward_s=100)
        post(connection, b"1", event_type="t1")
        measured = measure(connection)
        assert (measured["oldest_ready_age_seconds"], measured["overdue_s"]) == (100, 100)

    def test_may_be_one_that_nobody_has_looked_at_since_its_event_came(self, connection: Connection) -> None:
        freeze(connection)
        make_endpoint(connection)
        post(connection, b"1")
        freeze(connection, forward_s=100)
        assert measure(connection)["oldest_ready_age_seconds"] == 100

    def test_is_none_that_is_held_barred_or_not_due(self, connection: Connection) -> None:
        freeze(connection)
        paused, broken, later = several(connection, 3)
        for n in range(3):
            post(connection, b"1", event_type=f"t{n}")
        claim(connection, lanes=0)
        connection.execute("UPDATE forbear.lanes SET paused_at = forbear.now() WHERE endpoint_id = %s", (paused,))
        open_breaker(connection, broken, for_s=3600)
        settle(connection, [], waits={later: 3600.0})
        freeze(connection, forward_s=100)
        measured = measure(connection)
        assert (measured["oldest_ready_age_seconds"], measured["overdue_s"]) == (0, 0)

    def test_is_none_while_everything_is_paused(self, connection: Connection) -> None:
        freeze(connection)
        make_endpoint(connection)
        post(connection, b"1")
        connection.execute("UPDATE forbear.control SET paused_at = forbear.now()")
        freeze(connection, forward_s=100)
        measured = measure(connection)
        assert (measured["oldest_ready_age_seconds"] or 0, measured["overdue_s"] or 0) == (0, 0)


def test_the_oldest_lease_ages_from_its_claim_and_is_overdue_from_its_lapse(connection: Connection) -> None:
    freeze(connection)
    make_endpoint(connection)
    post(connection, b"1")
    assert len(claim(connection)) == 1
    freeze(connection, forward_s=LEASE_S - 5)
    measured = measure(connection)
    assert (measured["oldest_lease_age_seconds"], measured["overdue_s"]) == (LEASE_S - 5, 0)
    freeze(connection, forward_s=65)
    measured = measure(connection)
    assert (measured["oldest_lease_age_seconds"], measured["overdue_s"]) == (LEASE_S + 60, 60)


def test_breakers_are_counted_while_they_are_not_closed_and_their_endpoints_are_there(connection: Connection) -> None:
    freeze(connection)
    first, second, _ = several(connection, 3)
    open_breaker(connection, first, for_s=60)
    open_breaker(connection, second, for_s=60)
    assert measure(connection)["breakers_open"] == 2
    connection.execute("UPDATE forbear.lanes SET deleted_at = forbear.now() WHERE endpoint_id = %s", (first,))
    assert measure(connection)["breakers_open"] == 1


def test_claimers_are_counted_while_their_marks_last_but_not_one_that_was_only_called(connection: Connection) -> None:
    freeze(connection)
    assert one(connection, "SELECT forbear.call_claimer()") is True
    assert measure(connection)["claimers_awake"] == 0
    for _ in range(2):
        one(connection, "SELECT marked FROM forbear.stay_awake(gen_random_uuid(), '5 seconds', NULL)")
    assert measure(connection)["claimers_awake"] == 2
    freeze(connection, forward_s=5)
    assert measure(connection)["claimers_awake"] == 0


def test_the_claimer_sees_anybodys_oldest_snapshot(
    connection: Connection, connect: Callable[[], Connection], url_of: Callable[[str], str]
) -> None:
    """Other roles' sessions show their times to it, which takes membership in pg_read_all_stats."""
    holder = connect()
    holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    holder.execute("SELECT FROM forbear.queue")
    since = "SELECT extract(epoch FROM clock_timestamp() - now())::float8"
    before = one(holder, since)
    with psycopg.connect(url_of("forbear_claimer"), autocommit=True) as claimer:
        assert before <= measure(claimer)["oldest_snapshot_age_seconds"] <= one(holder, since)
        holder.execute("COMMIT")
        assert not measure(claimer)["oldest_snapshot_age_seconds"]


class TestEndsThatOnlyTheDatabaseKnows:
    def lose(self, connection: Connection, deliveries: int) -> None:
        make_endpoint(connection)
        post(connection, *[b"1"] * deliveries)
        connection.execute("UPDATE forbear.queue SET lost = 4, attempts = 4")
        assert len(claim(connection)) == deliveries
        freeze(connection, forward_s=LEASE_S)
        assert reap(connection) == deliveries

    def test_are_told_once(self, connection: Connection) -> None:
        freeze(connection)
        self.lose(connection, 3)
        assert [measure(connection)["uncounted_dead"] for _ in range(2)] == [3, 0]
        assert one(connection, "SELECT count(*) FROM forbear.uncounted") == 0

    def test_are_told_to_one_of_several(self, connection: Connection, connect: Callable[[], Connection]) -> None:
        freeze(connection)
        self.lose(connection, 3)
        first = connect()
        first.execute("BEGIN")
        assert measure(first)["uncounted_dead"] == 3
        assert measure(connection)["uncounted_dead"] == 0
        first.execute("ROLLBACK")
        assert measure(connection)["uncounted_dead"] == 3


class TestMeasuringCostsTheSame:
    def rows(self, connection: Connection) -> int:
        """How many rows a measurement looks at, by index only."""
        with explained(connection) as plans:
            measure(connection)
        for scan in plans.scans:
            ours = scan.table not in {"clock", "control", "claimers", "replays", "pg_database", "pg_authid"}
            assert not ours or scan.node in ("Index Scan", "Index Only Scan"), scan
        return plans.rows

    @pytest.mark.parametrize("analysed", [False, True])
    def test_whatever_is_queued_finished_or_idle(self, connection: Connection, analysed: bool) -> None:
        freeze(connection)
        several(connection, 20)
        without = self.rows(connection)
        connection.execute(
            "WITH e AS (INSERT INTO forbear.endpoints (tenant, url, event_types, policy)"
            "           SELECT 'crowd', 'https://r.example/', '{x}', '{}' FROM generate_series(1, 12000) RETURNING id)"
            " INSERT INTO forbear.lanes (endpoint_id, tenant, timeout_s, ready_at)"
            " SELECT id, 'crowd', 15, forbear.now() FROM e"
        )
        fill(connection, 50_000)
        connection.execute("DELETE FROM forbear.wakes")
        connection.execute(
            "INSERT INTO forbear.history (id, event_id, endpoint_id, payload_bytes, state, reason, generation,"
            " attempts, ended_at)"
            " SELECT gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 1, 'dead', 'lost', 1, 1, forbear.now()"
            " FROM generate_series(1, 20000)"
        )
        if analysed:
            connection.execute("VACUUM ANALYZE forbear.lanes, forbear.queue, forbear.wakes")
        assert self.rows(connection) <= without + 10

    def test_but_for_the_breakers_and_leases_that_it_counts(self, connection: Connection) -> None:
        freeze(connection)
        for endpoint_id in several(connection, 20)[:5]:
            open_breaker(connection, endpoint_id, for_s=60)
        before = self.rows(connection)
        for n in range(5, 20):
            post(connection, *[b"1"] * 10, event_type=f"t{n}")
        leases = len(claim(connection))
        assert leases > 50
        assert self.rows(connection) <= before + leases + 10
