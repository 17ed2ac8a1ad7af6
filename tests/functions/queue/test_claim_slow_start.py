"""How an endpoint starts again: a trickle after a hold, its width, the adaptive concurrency; or dead letters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest

from forbear.leases import control_json, parse_control
from forbear.policy.breaker import BreakerState
from tests.functions.builders import make_endpoint, one, post
from tests.functions.queue.leasing import (
    HOLDS,
    breaker,
    claim,
    control,
    count,
    endings,
    freeze,
    open_breaker,
    ready_in_s,
    settle,
)

type Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def _standing_clock(connection: Connection) -> None:
    freeze(connection)


def hold(connection: Connection, name: str, endpoint_id: UUID) -> None:
    """Hold an endpoint's deliveries for a minute."""
    if name == "everything paused":
        connection.execute("UPDATE forbear.control SET paused_at = forbear.now()")
        assert claim(connection) == []
        freeze(connection, forward_s=60)
        connection.execute("UPDATE forbear.control SET paused_at = NULL, resumed_at = forbear.now()")
    elif name == "a Retry-After":
        settle(connection, [], waits={endpoint_id: 60.0})
        assert claim(connection) == []
        freeze(connection, forward_s=60)
    else:
        held, let_go = HOLDS[name]
        connection.execute(f"UPDATE forbear.lanes SET {held}")
        assert claim(connection) == []
        freeze(connection, forward_s=60)
        connection.execute(f"UPDATE forbear.lanes SET {let_go}")


class TestAfterAHold:
    @pytest.mark.parametrize("name", [*HOLDS, "everything paused", "a Retry-After"])
    def test_what_was_held_starts_with_one(self, connection: Connection, name: str) -> None:
        """First attempts as well as retries: a hold's end is no reason to send it all at once."""
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 5)
        settle(connection, claim(connection), "retry", delay_s=1)
        post(connection, *[b"2"] * 20)
        hold(connection, name, endpoint_id)
        leases = claim(connection)
        assert len(leases) == 1
        trickling = breaker(connection, endpoint_id)
        assert (trickling.state, trickling.allows) == (BreakerState.HALF_OPEN_TRICKLE, 1)
        assert trickling.reason == "a hold has ended: starting slowly"
        assert parse_control(leases[0].control).breaker == trickling, "the claimer knows of it"
        connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now()")
        assert claim(connection) == [], "one at a time"
        settle(connection, leases)
        assert len(claim(connection)) == 1, "and the next when it is done"

    @pytest.mark.parametrize("name", [*HOLDS, "everything paused", "a Retry-After"])
    def test_a_hold_in_the_middle_of_a_trickle_starts_it_anew(self, connection: Connection, name: str) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 20)
        seen = control(connection, endpoint_id)
        trickle = replace(seen.breaker, state=BreakerState.HALF_OPEN_TRICKLE, allows=16, passed=9, epoch=1)
        settle(connection, [], changes=[(endpoint_id, seen, trickle)])
        hold(connection, name, endpoint_id)
        assert len(claim(connection)) == 1
        anew = breaker(connection, endpoint_id)
        assert (anew.state, anew.allows, anew.passed, anew.epoch) == (BreakerState.HALF_OPEN_TRICKLE, 1, 0, 2)

    def test_what_was_in_flight_before_counts_for_nothing(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 5)
        before = breaker(connection, endpoint_id)
        hold(connection, "paused", endpoint_id)
        claim(connection)
        assert breaker(connection, endpoint_id).epoch == before.epoch + 1

    @pytest.mark.parametrize("name", [*HOLDS, "everything paused"])
    def test_a_lane_without_a_backlog_needs_no_slow_start(self, connection: Connection, name: str) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1")
        hold(connection, name, endpoint_id)
        assert len(claim(connection)) == 1
        post(connection, *[b"2"] * 30)
        assert len(claim(connection)) == 30
        assert breaker(connection, endpoint_id).state is BreakerState.CLOSED

    def test_a_lane_that_waits_on_starts_slowly_when_that_ends(self, connection: Connection) -> None:
        """Looking at it while it still waits does not use the slow start up."""
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 9)
        settle(connection, [], waits={endpoint_id: 60.0})
        for _ in range(3):
            freeze(connection, forward_s=10)
            connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now()")
            assert claim(connection) == []
        freeze(connection, forward_s=30)
        assert len(claim(connection)) == 1

    def test_a_visit_that_had_no_slot_left_does_not_use_the_slow_start_up(self, connection: Connection) -> None:
        for tenant in "abc":
            make_endpoint(connection, tenant=tenant)
            post(connection, *[b"1"] * 50, tenant=tenant)
        connection.execute("UPDATE forbear.control SET resumed_at = forbear.now() + interval '1 microsecond'")
        freeze(connection, forward_s=1)
        first = claim(connection, slots=1)
        freeze(connection, forward_s=1)
        assert len(first) + len(claim(connection)) == 3, "one of each"

    def test_a_policy_may_do_without(self, connection: Connection) -> None:
        for policy in ({"breaker": {"slow_start": False}}, {"breaker": None}):
            endpoint_id = make_endpoint(connection, tenant=str(policy), policy=policy)
            post(connection, *[b"1"] * 9, tenant=str(policy))
            hold(connection, "paused", endpoint_id)
            assert len(claim(connection)) == 9

    def test_a_new_endpoint_starts_at_once(self, connection: Connection) -> None:
        connection.execute("UPDATE forbear.control SET resumed_at = forbear.now() - interval '1 second'")
        make_endpoint(connection)
        post(connection, *[b"1"] * 9)
        assert len(claim(connection)) == 9


class TestWidth:
    @pytest.mark.parametrize("width", [2, 8])
    def test_the_trickles_width_is_what_may_be_in_flight(self, connection: Connection, width: int) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 20)
        seen = control(connection, endpoint_id)
        trickle = replace(seen.breaker, state=BreakerState.HALF_OPEN_TRICKLE, allows=width, epoch=1)
        settle(connection, [], changes=[(endpoint_id, seen, trickle)])
        leases = claim(connection)
        assert len(leases) == width
        assert leases[0].in_flight == width
        settle(connection, leases[:1])
        assert [lease.in_flight for lease in claim(connection)] == [width]

    def test_the_adaptive_concurrency_is_what_may_be_in_flight(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 20)
        seen = control(connection, endpoint_id)
        settle(connection, [], changes=[(endpoint_id, seen, replace(seen, limit=3))])
        assert len(claim(connection)) == 3
        assert control(connection, endpoint_id).limit == 3

    def test_no_concurrency_in_the_policy_is_no_limit(self, connection: Connection) -> None:
        make_endpoint(connection, policy={"limits": {"concurrency": None}, "adaptive": None})
        post(connection, *[b"1"] * 300)
        assert one(connection, "SELECT count(*) FROM forbear.claim(500, 1000000, 10, 100000)") == 300

    def test_a_new_policy_finds_the_concurrency_anew(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        seen = control(connection, endpoint_id)
        settle(connection, [], changes=[(endpoint_id, seen, replace(seen, limit=3))])
        connection.execute("UPDATE forbear.endpoints SET policy = jsonb_set(policy, '{limits,concurrency}', '7')")
        post(connection, *[b"1"] * 20)
        assert len(claim(connection)) == 7

    def test_a_change_of_something_else_leaves_the_concurrency_that_was_found(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        seen = control(connection, endpoint_id)
        settle(connection, [], changes=[(endpoint_id, seen, replace(seen, limit=3))])
        connection.execute("UPDATE forbear.endpoints SET description = 'new', policy = policy")
        assert control(connection, endpoint_id).limit == 3

    def test_a_policy_without_a_breaker_closes_it(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 3)
        open_breaker(connection, endpoint_id)
        assert claim(connection) == []
        connection.execute("UPDATE forbear.endpoints SET policy = jsonb_set(policy, '{breaker}', 'null')")
        assert len(claim(connection)) == 3
        closed = breaker(connection, endpoint_id)
        assert (closed.state, closed.failures, closed.trips, closed.reason) == (BreakerState.CLOSED, 0, 0, None)
        assert closed.since == one(connection, "SELECT forbear.now()")


class TestDeadLettersWhileOpen:
    """A policy may rather end deliveries than let them wait."""

    POLICY: ClassVar = {"breaker": {"dead_letter": True}}

    def test_what_comes_due_while_it_is_open_is_dead(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=self.POLICY)
        post(connection, *[b"1"] * 4)
        settle(connection, claim(connection), "retry", delay_s=10)
        open_breaker(connection, endpoint_id, for_s=30)
        post(connection, *[b"2"] * 3)
        assert claim(connection) == []
        assert endings(connection) == {"circuit_open": 3}
        assert ready_in_s(connection, endpoint_id) == 10
        freeze(connection, forward_s=10)
        assert claim(connection) == []
        assert endings(connection) == {"circuit_open": 7}

    def test_more_than_one_visit_ends_is_gone_on_with_at_once(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=self.POLICY)
        open_breaker(connection, endpoint_id, for_s=30)
        post(connection, *[b"1"] * 1500)
        assert claim(connection) == []
        assert endings(connection) == {"circuit_open": 1000}
        assert ready_in_s(connection, endpoint_id) == 0
        assert claim(connection) == []
        assert endings(connection) == {"circuit_open": 1500}

    def test_a_policy_that_says_so_from_now_on_ends_what_waits(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 3)
        open_breaker(connection, endpoint_id, for_s=300)
        assert claim(connection) == []
        connection.execute("UPDATE forbear.endpoints SET policy = jsonb_set(policy, '{breaker,dead_letter}', 'true')")
        assert ready_in_s(connection, endpoint_id) == 0
        claim(connection)
        assert endings(connection) == {"circuit_open": 3}

    def test_the_probe_goes_when_the_cool_down_is_over(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=self.POLICY)
        open_breaker(connection, endpoint_id, for_s=30)
        freeze(connection, forward_s=30)
        post(connection, b"1", b"2")
        (lease,) = claim(connection)
        assert lease.probe
        assert count(connection, "forbear.history") == 0

    def test_dead_ones_can_be_told_from_others(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=self.POLICY)
        open_breaker(connection, endpoint_id, for_s=30)
        post(connection, b"1")
        claim(connection)
        assert connection.execute("SELECT state, reason, attempts FROM forbear.history").fetchall() == [
            ("dead", "circuit_open", 0)
        ]


def test_a_control_comes_back_as_it_was_written(connection: Connection) -> None:
    """What outcomes change survives the way through the database whole."""
    endpoint_id = make_endpoint(connection)
    seen = control(connection, endpoint_id)
    now = seen.breaker.since
    full = replace(
        seen,
        breaker=replace(
            seen.breaker,
            state=BreakerState.HALF_OPEN_TRICKLE,
            allows=4,
            passed=3,
            failures=2,
            trips=1,
            epoch=9,
            reason="why",
            failing_since=now,
            recent=(now, now),
        ),
        limit=17,
        limit_since=now,
    )
    settle(connection, [], changes=[(endpoint_id, seen, full)])
    assert control(connection, endpoint_id) == replace(full, version=seen.version + 1)
    assert "trouble" not in control_json(full)
