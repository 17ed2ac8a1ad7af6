from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from forbear.leases import parse_breaker
from forbear.policy.breaker import Breaker, BreakerState
from tests.functions.builders import make_endpoint, one, post
from tests.functions.queue.leasing import (
    attempts,
    breaker,
    claim,
    close_to,
    count,
    delivery,
    fetch,
    freeze,
    keep_late,
    open_breaker,
    ready_in_s,
    reap,
    settle,
)

type Connection = psycopg.Connection[tuple[Any, ...]]

LEASE_S = 15 + 30


@pytest.fixture(autouse=True)
def _standing_clock(connection: Connection) -> None:
    """Times are compared to the microsecond."""
    freeze(connection)


def limits(**limits: object) -> dict[str, Any]:
    return {"limits": limits}


def several(connection: Connection, number: int, **endpoint: Any) -> list[UUID]:
    """Endpoints that subscribe to types of their own: t0, t1, …"""
    return [make_endpoint(connection, event_types=(f"t{n}",), **endpoint) for n in range(number)]


def test_a_lease_carries_all_that_is_needed_to_send(connection: Connection) -> None:
    url = "https://r.example/x?y=%2F"
    endpoint_id = make_endpoint(connection, url=url, headers={"x-one": "1"}, secret="whsec_MQ==")
    (event_id,) = post(connection, b'{"z":1,"a":2}', event_type="order.paid")
    (lease,) = claim(connection)
    now = fetch(connection, "SELECT forbear.now() AS now").now
    assert (lease.event_id, lease.endpoint_id) == (event_id, endpoint_id)
    assert (lease.payload, lease.event_type, lease.content_type) == (b'{"z":1,"a":2}', "order.paid", "application/json")
    assert (lease.generation, lease.attempt, lease.tries, lease.limited, lease.held_s) == (1, 1, 0, 0, 0.0)
    assert lease.started_at is None, "no attempt came before this one"
    assert (lease.lease_until - now).total_seconds() == LEASE_S
    assert not lease.probe
    endpoint = json.loads(lease.endpoint)
    assert endpoint["url"] == url
    assert (endpoint["headers"], endpoint["secrets"]) == ({"x-one": "1"}, ["whsec_MQ=="])
    assert endpoint["policy"]["timeout_s"] == 15
    assert json.loads(lease.breaker)["state"] == "closed"


@pytest.mark.parametrize("timeout_s", [1, 7.5, 30])
def test_a_lease_outlasts_the_request_by_thirty_seconds_whatever_its_timeout(
    connection: Connection, timeout_s: float
) -> None:
    make_endpoint(connection, policy={"timeout_s": timeout_s})
    post(connection, b"1")
    (lease,) = claim(connection)
    now = fetch(connection, "SELECT forbear.now() AS now").now
    assert (lease.lease_until - now).total_seconds() == timeout_s + 30


def test_the_endpoint_comes_once_a_lane_and_secrets_that_sign_come_in_order(connection: Connection) -> None:
    endpoint_id = make_endpoint(connection, secret="whsec_new")
    for name, age in (("whsec_old", "1 hour"), ("whsec_gone", "-1 second")):
        connection.execute(
            "INSERT INTO forbear.secrets (endpoint_id, secret, created_at, expires_at)"
            " VALUES (%s, %s, forbear.now() - interval '1 day' - %s::interval, forbear.now() + %s::interval)",
            (endpoint_id, name, age, age),
        )
    post(connection, *[b"1"] * 5)
    leases = claim(connection)
    assert [lease.endpoint is None for lease in leases].count(False) == 1
    assert [lease.breaker is None for lease in leases].count(False) == 1
    (first,) = [lease.endpoint for lease in leases if lease.endpoint is not None]
    assert json.loads(first)["secrets"] == ["whsec_new", "whsec_old"]


def test_what_is_leased_is_not_leased_again(connection: Connection) -> None:
    make_endpoint(connection)
    post(connection, *[b"1"] * 20)
    assert len(claim(connection)) == 20
    connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now(), low_water = '-infinity'")
    assert claim(connection) == []


def test_a_lane_is_looked_at_when_its_next_delivery_is_due(connection: Connection) -> None:
    endpoint_id = make_endpoint(connection)
    post(connection, b"1")
    (lease,) = claim(connection)
    assert ready_in_s(connection, endpoint_id) == math.inf, "an empty lane waits to be woken"
    settle(connection, [lease], "retry", delay_s=60)
    assert claim(connection) == []
    assert ready_in_s(connection, endpoint_id) == 60
    freeze(connection, forward_s=59.9)
    assert claim(connection) == []
    freeze(connection, forward_s=0.1)
    (again,) = claim(connection)
    assert (again.attempt, again.tries) == (2, 1)


def test_deliveries_of_a_lane_go_in_the_order_in_which_they_are_due(connection: Connection) -> None:
    make_endpoint(connection)
    post(connection, *[b"%d" % n for n in range(30)])
    taken = 0
    while leases := claim(connection, slots=20):
        settle(connection, leases)
        assert {int(lease.payload) for lease in leases} == set(range(taken, taken + len(leases)))
        taken += len(leases)
    assert taken == 30


class TestFairness:
    def test_lanes_take_turns_when_slots_are_few(self, connection: Connection) -> None:
        endpoints = several(connection, 10)
        post(connection, *[b"1"] * 50, event_type="t0")
        for n in range(1, 10):
            post(connection, b"1", b"2", event_type=f"t{n}")
        leases = claim(connection, slots=30)
        taken = Counter(lease.endpoint_id for lease in leases)
        assert set(taken) == set(endpoints)
        assert max(taken.values()) <= 2

    def test_when_slots_run_out_every_lane_had_its_first_before_any_had_its_second(
        self, connection: Connection
    ) -> None:
        several(connection, 8)
        for n in range(8):
            post(connection, *[b"1"] * 5, event_type=f"t{n}")
        # 8 lanes of a share of one each, but only five slots: the five that were ready first.
        assert set(Counter(lease.endpoint_id for lease in claim(connection, slots=5)).values()) == {1}
        rest = claim(connection, slots=5)
        assert len({lease.endpoint_id for lease in rest}) == len(rest)

    def test_who_was_left_out_comes_first_the_next_time(self, connection: Connection) -> None:
        several(connection, 6)
        for n in range(6):
            post(connection, *[b"1"] * 5, event_type=f"t{n}")
        first = {lease.endpoint_id for lease in claim(connection, slots=3)}
        freeze(connection, forward_s=0.01)
        second = {lease.endpoint_id for lease in claim(connection, slots=3)}
        assert len(first) == len(second) == 3
        assert not first & second

    def test_a_noisy_lane_does_not_keep_a_quiet_one_waiting(self, connection: Connection) -> None:
        noisy, *quiet = several(connection, 100)
        for _ in range(4):
            post(connection, *[b"1"] * 500, event_type="t0")
        claim(connection, slots=200)
        for n in range(1, 100):
            post(connection, b"1", event_type=f"t{n}")
        taken = Counter(lease.endpoint_id for _ in range(2) for lease in claim(connection, slots=200))
        assert set(quiet) <= set(taken)
        assert taken[noisy] < 60

    def test_no_lane_fills_the_slots_however_slow_it_is(self, connection: Connection) -> None:
        # Ten endpoints that never answer, one after the other, each with all the slots that are left.
        several(connection, 11, policy=limits(concurrency=1000))
        free = 1000
        for n in range(10):
            post(connection, *[b"1"] * 500, event_type=f"t{n}")
            while leases := claim(connection, slots=min(free, 500)):
                free -= len(leases)
        assert free > 10
        post(connection, b"1", event_type="t10")
        assert len(claim(connection, slots=free)) == 1

    def test_at_most_so_many_lanes_are_taken_at_a_time(self, connection: Connection) -> None:
        several(connection, 12)
        for n in range(12):
            post(connection, b"1", event_type=f"t{n}")
        assert [len(claim(connection, lanes=5)) for _ in range(4)] == [5, 5, 2, 0]


class TestBatches:
    def test_payload_bytes_bound_a_batch(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, *[b"x" * 100] * 30)
        assert [len(claim(connection, payload_bytes=1000)) for _ in range(4)] == [10, 10, 10, 0]

    def test_one_delivery_always_goes_however_large(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, b"x" * 5000, b"x" * 10, b"x" * 5000)
        assert [[len(lease.payload) for lease in claim(connection, payload_bytes=100)] for _ in range(3)] == [
            *([5000], [10], [5000])
        ]

    def test_slots_bound_a_batch(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 10)
        assert len(claim(connection, slots=4)) in (1, 2), "a lane alone gets no more than half of the slots"
        assert ready_in_s(connection, endpoint_id) == 1, "what it has in flight counts against its share"

    def test_a_lane_that_was_cut_short_by_bytes_is_ready_at_once(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"x" * 100] * 30)
        claim(connection, payload_bytes=1000)
        assert ready_in_s(connection, endpoint_id) == 0


class TestConcurrency:
    def test_no_more_are_in_flight_than_the_endpoint_allows(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(concurrency=3))
        post(connection, *[b"1"] * 10)
        leases = claim(connection)
        assert len(leases) == 3
        connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now()")
        assert claim(connection) == []
        settle(connection, leases[:2])
        assert ready_in_s(connection, endpoint_id) == 1
        assert len(claim(connection)) == 2, "the settle woke the saturated lane"

    @pytest.mark.parametrize("waiting", [0, 1])
    def test_a_lane_that_gave_exactly_its_quota(self, connection: Connection, waiting: int) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(concurrency=3))
        post(connection, *[b"1"] * (3 + waiting))
        assert len(claim(connection)) == 3
        assert ready_in_s(connection, endpoint_id) == (1 if waiting else math.inf)
        assert fetch(connection, "SELECT saturated FROM forbear.lanes").saturated == bool(waiting)

    def test_a_lapsed_lease_frees_its_place(self, connection: Connection) -> None:
        make_endpoint(connection, policy=limits(concurrency=1))
        post(connection, b"1", b"2")
        assert len(claim(connection)) == 1
        freeze(connection, forward_s=LEASE_S)
        assert len(claim(connection)) == 1

    def test_a_second_later_a_saturated_lane_is_looked_at_again_even_if_no_settle_woke_it(
        self, connection: Connection
    ) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(concurrency=1))
        post(connection, b"1", b"2")
        claim(connection)
        for _ in range(3):
            assert ready_in_s(connection, endpoint_id) == 1
            freeze(connection, forward_s=1)
            assert claim(connection) == []


class TestRate:
    def test_a_burst_goes_at_once_and_the_rest_as_the_tokens_come(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(rate_per_s=2, burst=4))
        post(connection, *[b"1"] * 20)
        assert len(claim(connection)) == 4
        assert close_to(ready_in_s(connection, endpoint_id), 0.5)
        taken = []
        for _ in range(8):
            freeze(connection, forward_s=0.5)
            taken.append(len(claim(connection)))
        assert taken == [1] * 8

    def test_tokens_add_up_to_the_burst_and_no_further(self, connection: Connection) -> None:
        make_endpoint(connection, policy=limits(rate_per_s=10, burst=3))
        post(connection, *[b"1"] * 10)
        claim(connection)
        freeze(connection, forward_s=3600)
        assert len(claim(connection)) == 3

    def test_looking_too_early_costs_no_token(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(rate_per_s=1, burst=1))
        post(connection, *[b"1"] * 3)
        assert len(claim(connection)) == 1
        for _ in range(9):
            freeze(connection, forward_s=0.1)
            connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now()")
            assert claim(connection) == []
        assert close_to(ready_in_s(connection, endpoint_id), 0.1)
        freeze(connection, forward_s=0.1)
        assert len(claim(connection)) == 1

    def test_a_slow_rate_is_kept_over_long(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(rate_per_s=0.01))
        post(connection, *[b"1"] * 3)
        assert len(claim(connection)) == 1
        assert close_to(ready_in_s(connection, endpoint_id), 100)

    def test_concurrency_bounds_a_lane_that_has_tokens(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(rate_per_s=100, burst=100, concurrency=2))
        post(connection, *[b"1"] * 10)
        leases = claim(connection)
        assert len(leases) == 2
        assert ready_in_s(connection, endpoint_id) == 1
        settle(connection, leases)
        assert len(claim(connection)) == 2

    def test_a_rate_that_is_set_later_starts_with_its_burst(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, *[b"1"] * 50)
        claim(connection, slots=50)
        connection.execute("UPDATE forbear.lanes SET rate_per_s = 1, burst = 5, ready_at = forbear.now()")
        assert len(claim(connection)) == 5


HOLDS = {
    "paused": ("paused_at = forbear.now()", "paused_at = NULL"),
    "tenant paused": ("tenant_paused_at = forbear.now()", "tenant_paused_at = NULL"),
    "disabled": ("disabled_at = forbear.now(), disabled_reason = 'gone'", "disabled_at = NULL, disabled_reason = NULL"),
}


class TestHolding:
    @pytest.mark.parametrize("hold", HOLDS)
    def test_a_held_lane_keeps_its_deliveries_and_lets_them_go_at_once_when_it_is_let_go(
        self, connection: Connection, hold: str
    ) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"before")
        held, let_go = HOLDS[hold]
        connection.execute(f"UPDATE forbear.lanes SET {held}")
        post(connection, b"while")
        assert claim(connection) == []
        assert count(connection, "forbear.wakes") == 0, "the lane knows by now"
        freeze(connection, forward_s=100)
        connection.execute(f"UPDATE forbear.lanes SET {let_go}")
        assert ready_in_s(connection, endpoint_id) == 0
        assert {lease.payload for lease in claim(connection)} == {b"before", b"while"}

    def test_a_lane_is_held_as_long_as_anything_holds_it(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        for held, _ in HOLDS.values():
            connection.execute(f"UPDATE forbear.lanes SET {held}")
        for _, let_go in HOLDS.values():
            assert claim(connection) == []
            freeze(connection, forward_s=10)
            connection.execute(f"UPDATE forbear.lanes SET {let_go}")
        assert len(claim(connection)) == 1
        assert fetch(connection, "SELECT extract(epoch FROM held_total)::float8 AS s FROM forbear.lanes").s == 30

    def test_time_held_is_told_to_the_schedule_from_the_generations_first_attempt_on(
        self, connection: Connection
    ) -> None:
        make_endpoint(connection)

        def hold_for(seconds: float) -> None:
            connection.execute("UPDATE forbear.lanes SET paused_at = forbear.now()")
            freeze(connection, forward_s=seconds)
            connection.execute("UPDATE forbear.lanes SET paused_at = NULL")

        hold_for(100)
        post(connection, b"1")
        (lease,) = claim(connection)
        assert lease.held_s == 0
        settle(connection, [lease], "retry", delay_s=0)
        hold_for(7)
        (lease,) = claim(connection)
        settle(connection, [lease], "retry", delay_s=0)
        hold_for(5)
        assert claim(connection)[0].held_s == 12

    def test_while_everything_is_paused_nothing_goes_and_nothing_is_lost(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        connection.execute("UPDATE forbear.control SET paused_at = forbear.now()")
        assert claim(connection) == []
        connection.execute("UPDATE forbear.control SET paused_at = NULL")
        assert len(claim(connection)) == 1

    def test_another_tenants_pause_holds_nobody_else(self, connection: Connection) -> None:
        make_endpoint(connection, tenant="acme")
        make_endpoint(connection, tenant="other")
        for tenant in ("acme", "other"):
            post(connection, tenant.encode(), tenant=tenant)
        connection.execute("UPDATE forbear.lanes SET tenant_paused_at = forbear.now() WHERE tenant = 'other'")
        assert [lease.payload for lease in claim(connection)] == [b"acme"]


class TestDeletedLanes:
    def delete(self, connection: Connection, endpoint_id: UUID) -> None:
        connection.execute(
            "UPDATE forbear.lanes SET deleted_at = forbear.now(), ready_at = forbear.now() WHERE endpoint_id = %s",
            (endpoint_id,),
        )

    def test_a_deleted_lanes_deliveries_are_cancelled_in_steps(self, connection: Connection) -> None:
        gone, stays = several(connection, 2)
        for _ in range(5):
            post(connection, *[b"1"] * 500, event_type="t0")
        post(connection, b"1", event_type="t1")
        self.delete(connection, gone)
        cancelled = []
        leases = []
        for _ in range(4):
            leases += claim(connection)
            cancelled.append(count(connection, "forbear.history WHERE state = 'cancelled'"))
        assert cancelled == [1000, 2000, 2500, 2500]
        assert [lease.endpoint_id for lease in leases] == [stays]
        assert ready_in_s(connection, gone) == math.inf

    def test_a_claim_cancels_a_thousand_at_most_over_all_lanes(self, connection: Connection) -> None:
        for n, endpoint_id in enumerate(several(connection, 3)):
            for _ in range(2):
                post(connection, *[b"1"] * 300, event_type=f"t{n}")
            self.delete(connection, endpoint_id)
        for expected in (1000, 1800, 1800):
            claim(connection)
            assert count(connection, "forbear.history WHERE state = 'cancelled'") == expected
        assert count(connection, "forbear.queue") == 0

    def test_an_event_that_was_being_taken_in_when_the_endpoint_was_deleted_is_cancelled(
        self, connection: Connection
    ) -> None:
        endpoint_id = make_endpoint(connection)
        self.delete(connection, endpoint_id)
        claim(connection)
        post(connection, b"1")  # its subscription is still there in this test: the ingest read it before the deletion
        assert claim(connection) == []
        assert count(connection, "forbear.history WHERE state = 'cancelled'") == 1

    def test_a_delivery_in_flight_is_cancelled_and_its_attempts_go_with_it(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1")
        settle(connection, claim(connection), "retry", delay_s=0)
        (lease,) = claim(connection)
        self.delete(connection, endpoint_id)
        claim(connection)
        assert delivery(connection, lease.delivery_id).state == "cancelled"
        kept = attempts(connection, lease.delivery_id)
        assert [(attempt.number, attempt.verdict) for attempt in kept] == [(1, "retry"), (2, "lost")]
        assert kept[1].error_detail == "cancelled while it was in flight: the receiver may have got it"
        assert settle(connection, [lease]).late == [1]
        keep_late(connection, lease)
        assert attempts(connection, lease.delivery_id)[1].status == 200

    def test_a_delivery_that_is_being_settled_this_instant_is_not_waited_for(
        self, connection: Connection, connect: Callable[[], Connection]
    ) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1")
        leases = claim(connection)
        self.delete(connection, endpoint_id)
        other = connect()
        with other.transaction():
            settle(other, leases, "retry", delay_s=10)
            connection.execute("SET lock_timeout = '1s'")
            claim(connection)
        assert delivery(connection, leases[0].delivery_id).state == "pending"
        freeze(connection, forward_s=10)
        claim(connection)
        assert delivery(connection, leases[0].delivery_id).state == "cancelled"


class TestWakeRows:
    def test_wake_rows_go_when_their_lanes_were_in_hand(self, connection: Connection) -> None:
        several(connection, 3)
        for n in range(3):
            post(connection, b"1", event_type=f"t{n}")
        assert count(connection, "forbear.wakes") == 3
        assert len(claim(connection)) == 3
        assert count(connection, "forbear.wakes") == 0

    def test_a_wake_row_stays_while_another_claimer_has_one_of_its_lanes(
        self, connection: Connection, connect: Callable[[], Connection]
    ) -> None:
        busy, free = several(connection, 2)
        make_endpoint(connection, event_types=("both",))
        other = connect()
        with other.transaction():
            other.execute("SELECT FROM forbear.lanes WHERE endpoint_id = %s FOR NO KEY UPDATE", (busy,))
            connection.execute(
                "INSERT INTO forbear.subscriptions SELECT 'acme', 'both', e FROM unnest(%s::uuid[]) e", ([busy, free],)
            )
            post(connection, b"1", event_type="both")
            assert free in {lease.endpoint_id for lease in claim(connection)}
            assert count(connection, "forbear.wakes") == 1
        assert [lease.endpoint_id for lease in claim(connection)] == [busy]
        assert count(connection, "forbear.wakes") == 0

    def test_a_wake_row_in_another_claimers_hands_is_passed_by(
        self, connection: Connection, connect: Callable[[], Connection]
    ) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        other = connect()
        with other.transaction():
            other.execute("SELECT FROM forbear.wakes FOR UPDATE")
            connection.execute("SET lock_timeout = '1s'")
            assert claim(connection) == []
        assert len(claim(connection)) == 1

    def test_a_delivery_older_than_the_low_water_mark_is_found_by_its_wake_row(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1")
        claim(connection)
        late = fetch(connection, "SELECT forbear.now() - interval '1 hour' AS at").at
        connection.execute("UPDATE forbear.queue SET id = id")
        with connection.transaction():
            connection.execute(
                "INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes)"
                " SELECT forbear.new_id(), event_id, endpoint_id, %s, 1 FROM forbear.queue",
                (late,),
            )
            connection.execute(
                "INSERT INTO forbear.wakes (endpoint_ids, due_ats) VALUES (%s::uuid[], %s::timestamptz[])",
                ([endpoint_id], [late]),
            )
        assert len(claim(connection)) == 1

    def test_a_wake_row_does_not_lift_what_bars_a_lane(self, connection: Connection) -> None:
        waiting, opened = several(connection, 2)
        settle(connection, [], waits={waiting: 20.0})
        open_breaker(connection, opened, for_s=30)
        for n in range(2):
            post(connection, b"1", event_type=f"t{n}")
        assert claim(connection) == []
        assert count(connection, "forbear.wakes") == 0
        assert (ready_in_s(connection, waiting), ready_in_s(connection, opened)) == (20, 30)


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
        assert (half_open.state, half_open.epoch) == (BreakerState.HALF_OPEN, opened.epoch + 1)
        assert (half_open.until, half_open.trips, half_open.failures) == (None, 1, 5)
        assert parse_breaker(lease.breaker) == half_open
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
        assert json.loads(second.breaker)["epoch"] == json.loads(lost.breaker)["epoch"] + 1

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
        half_open = breaker(connection, endpoint_id)
        closed = Breaker(BreakerState.CLOSED, half_open.since, 0, 0, None, half_open.epoch + 1, "answered: 200")
        settle(connection, [lease], changes=[(endpoint_id, half_open, closed)])
        leases = claim(connection)
        assert len(leases) == 4
        assert not any(lease.probe for lease in leases)

    def test_a_failed_probe_bars_the_lane_for_the_cool_down_and_not_for_the_probes_lease(
        self, connection: Connection
    ) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 5)
        lease = self.probe(connection, endpoint_id)
        half_open = breaker(connection, endpoint_id)
        until = fetch(connection, "SELECT forbear.now() + interval '3 seconds' AS at").at
        opened = Breaker(BreakerState.OPEN, half_open.since, 6, 2, until, half_open.epoch + 1, "the probe failed: 500")
        settle(connection, [lease], "retry", delay_s=3600, changes=[(endpoint_id, half_open, opened)])
        claim(connection)
        assert ready_in_s(connection, endpoint_id) == 3
        freeze(connection, forward_s=3)
        assert [lease.probe for lease in claim(connection)] == [True]

    def test_a_probe_that_could_not_be_sent_makes_room_for_another_at_once(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1", b"2")
        lease = self.probe(connection, endpoint_id)
        half_open = breaker(connection, endpoint_id)
        now = fetch(connection, "SELECT forbear.now() AS at").at
        again = Breaker(BreakerState.OPEN, now, 5, 1, now, half_open.epoch + 1, "the probe could not be sent")
        settle(connection, [lease], "dead", reason="unsendable", changes=[(endpoint_id, half_open, again)])
        assert [lease.probe for lease in claim(connection)] == [True]


class TestLowWaterMark:
    def test_the_mark_never_passes_a_pending_delivery(self, connection: Connection) -> None:
        make_endpoint(connection, policy=limits(concurrency=7))
        for _ in range(6):
            post(connection, *[b"1"] * 9)
            leases = claim(connection, slots=20)
            settle(connection, leases[::2], "retry", delay_s=0)
            settle(connection, leases[1::2], "return")
            assert (
                one(
                    connection,
                    "SELECT count(*) FROM forbear.queue q JOIN forbear.lanes l USING (endpoint_id)"
                    " WHERE q.lease_token IS NULL AND q.due_at < l.low_water"
                    " AND NOT EXISTS (SELECT FROM forbear.wakes w, unnest(w.endpoint_ids, w.due_ats) AS u (e, d)"
                    "                 WHERE u.e = l.endpoint_id AND u.d <= q.due_at)",
                )
                == 0
            )
            freeze(connection, forward_s=0.5)

    def test_the_mark_passes_what_is_done(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, *[b"1"] * 40)
        claim(connection)
        assert fetch(connection, "SELECT low_water = forbear.now() AS passed FROM forbear.lanes").passed


class TestOutlook:
    def outlook(self, connection: Connection) -> Any:
        return fetch(
            connection,
            "SELECT others, extract(epoch FROM next_at - clock)::float8 AS next_s,"
            " extract(epoch FROM lease_at - clock)::float8 AS lease_s,"
            " extract(epoch FROM replay_at - clock)::float8 AS replay_s"
            " FROM forbear.outlook('00000000-0000-7000-8000-000000000001')",
        )

    def test_an_idle_system_has_nothing_ahead(self, connection: Connection) -> None:
        make_endpoint(connection)
        assert self.outlook(connection) == (0, None, None, None)

    def test_a_wake_row_is_work_now(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        assert self.outlook(connection).next_s == 0

    def test_a_retry_is_work_when_it_is_due(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        settle(connection, claim(connection), "retry", delay_s=300)
        claim(connection)
        assert self.outlook(connection) == (0, 300, None, None)

    def test_a_lease_is_work_when_it_lapses_but_not_while_others_are_awake(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        claim(connection)
        assert self.outlook(connection) == (0, None, LEASE_S, None)
        connection.execute("SELECT FROM forbear.stay_awake(gen_random_uuid(), '5 seconds', NULL)")
        assert self.outlook(connection) == (1, None, None, None)
        freeze(connection, forward_s=5)
        assert self.outlook(connection) == (0, None, LEASE_S - 5, None)

    @pytest.mark.parametrize("hold", [hold for hold, _ in HOLDS.values()])
    def test_what_is_held_is_no_work(self, connection: Connection, hold: str) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        connection.execute(f"UPDATE forbear.lanes SET {hold}")
        claim(connection)
        assert self.outlook(connection).next_s is None

    def test_while_everything_is_paused_there_is_no_work(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        connection.execute("UPDATE forbear.control SET paused_at = forbear.now()")
        assert self.outlook(connection).next_s is None
