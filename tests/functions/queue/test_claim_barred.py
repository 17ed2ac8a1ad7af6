from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg
import pytest

from forbear.leases import parse_control
from forbear.policy.breaker import Breaker, BreakerState
from tests.functions.builders import make_endpoint, post
from tests.functions.queue.leasing import (
    LEASE_S,
    breaker,
    claim,
    control,
    fetch,
    freeze,
    open_breaker,
    ready_in_s,
    reap,
    settle,
)

type Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def _standing_clock(connection: Connection) -> None:
    """Times are compared to the microsecond."""
    freeze(connection)


class TestBars:
    """Whatever made a lane ready too early: what bars it is looked at when it is claimed."""

    def test_a_lane_told_to_wait_gives_nothing_before_its_time(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1")
        settle(connection, [], waits={endpoint_id: 20.0})
        connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now()")
        assert claim(connection) == []
        assert ready_in_s(connection, endpoint_id) == 20
        freeze(connection, forward_s=20)
        assert len(claim(connection)) == 1

    def test_an_open_breaker_gives_nothing_before_its_time(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1")
        opened = open_breaker(connection, endpoint_id, for_s=30)
        connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now()")
        assert claim(connection) == []
        assert ready_in_s(connection, endpoint_id) == 30
        assert breaker(connection, endpoint_id) == opened

    def test_a_lane_that_is_let_go_stays_barred_by_its_breaker(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1")
        open_breaker(connection, endpoint_id, for_s=30)
        connection.execute("UPDATE forbear.lanes SET paused_at = forbear.now()")
        freeze(connection, forward_s=10)
        connection.execute("UPDATE forbear.lanes SET paused_at = NULL")
        assert ready_in_s(connection, endpoint_id) == 20


class TestProbes:
    def probe(self, connection: Connection, endpoint_id: UUID) -> Any:
        """Open the breaker, wait, and take the probe."""
        open_breaker(connection, endpoint_id, for_s=30)
        freeze(connection, forward_s=30)
        (lease,) = claim(connection)
        assert lease.probe
        return lease

    def test_exactly_one_probe_goes(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 50)
        opened = open_breaker(connection, endpoint_id, for_s=30)
        freeze(connection, forward_s=29)
        assert claim(connection) == []
        freeze(connection, forward_s=1)
        (lease,) = claim(connection)
        assert lease.probe
        half_open = breaker(connection, endpoint_id)
        assert (half_open.state, half_open.epoch) == (BreakerState.HALF_OPEN_PROBE, opened.epoch + 1)
        assert (half_open.until, half_open.trips, half_open.failures) == (None, 1, 5)
        assert parse_control(lease.control).breaker == half_open
        assert ready_in_s(connection, endpoint_id) == LEASE_S
        connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now()")
        assert claim(connection) == []

    def test_a_probe_whose_lease_lapsed_frees_its_place(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1", b"2")
        lost = self.probe(connection, endpoint_id)
        freeze(connection, forward_s=LEASE_S - 1)
        assert claim(connection) == []
        freeze(connection, forward_s=1)
        (second,) = claim(connection)
        assert second.probe
        assert second.delivery_id != lost.delivery_id
        assert json.loads(second.control)["epoch"] == json.loads(lost.control)["epoch"] + 1

    def test_a_lost_probe_of_a_lanes_only_delivery_comes_again(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1")
        lost = self.probe(connection, endpoint_id)
        freeze(connection, forward_s=LEASE_S)
        assert reap(connection) == 1
        (second,) = claim(connection)
        assert (second.delivery_id, second.probe, second.attempt) == (lost.delivery_id, True, 2)

    def test_an_open_breaker_with_nothing_due_stays_open(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        opened = open_breaker(connection, endpoint_id, for_s=30)
        freeze(connection, forward_s=100)
        assert claim(connection) == []
        assert breaker(connection, endpoint_id) == opened
        post(connection, b"1")
        assert claim(connection)[0].probe

    def test_new_events_do_not_call_a_second_probe(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1")
        self.probe(connection, endpoint_id)
        for _ in range(3):
            post(connection, b"1")
            assert claim(connection) == []
        assert ready_in_s(connection, endpoint_id) == LEASE_S

    def test_when_the_probe_is_answered_the_rest_goes_at_once(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 5)
        lease = self.probe(connection, endpoint_id)
        seen = control(connection, endpoint_id)
        was = seen.breaker
        closed = Breaker(BreakerState.CLOSED, was.since, 0, 0, None, was.epoch + 1, "answered: 200")
        settle(connection, [lease], changes=[(endpoint_id, seen, closed)])
        leases = claim(connection)
        assert len(leases) == 4
        assert not any(lease.probe for lease in leases)

    def test_a_failed_probe_bars_the_lane_for_the_cool_down_and_not_for_the_probes_lease(
        self, connection: Connection
    ) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 5)
        lease = self.probe(connection, endpoint_id)
        seen = control(connection, endpoint_id)
        was = seen.breaker
        until = fetch(connection, "SELECT forbear.now() + interval '3 seconds' AS at").at
        opened = Breaker(BreakerState.OPEN, was.since, 6, 2, until, was.epoch + 1, "the probe failed: 500")
        settle(connection, [lease], "retry", delay_s=3600, changes=[(endpoint_id, seen, opened)])
        claim(connection)
        assert ready_in_s(connection, endpoint_id) == 3
        freeze(connection, forward_s=3)
        assert [lease.probe for lease in claim(connection)] == [True]

    def test_a_probe_that_could_not_be_sent_makes_room_for_another_at_once(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1", b"2")
        lease = self.probe(connection, endpoint_id)
        seen = control(connection, endpoint_id)
        was = seen.breaker
        now = fetch(connection, "SELECT forbear.now() AS at").at
        again = Breaker(BreakerState.OPEN, now, 5, 1, now, was.epoch + 1, "the probe could not be sent")
        settle(connection, [lease], "dead", reason="unsendable", changes=[(endpoint_id, seen, again)])
        assert [lease.probe for lease in claim(connection)] == [True]


@pytest.mark.parametrize("concurrency", [100, 1000, None])
def test_a_lane_that_had_more_than_the_claimers_slots_is_gone_on_with_at_once(
    connection: Connection, concurrency: int | None
) -> None:
    """Without a rate there is no token to wait for, however few slots there were."""
    policy = {"limits": {"concurrency": concurrency}, "adaptive": None}
    endpoint_id = make_endpoint(connection, policy=policy)
    post(connection, *[b"1"] * 50)
    assert connection.execute("SELECT count(*) FROM forbear.claim(10, 1000000, 200, 1000)").fetchone() == (10,)
    assert ready_in_s(connection, endpoint_id) == 0
