from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from forbear.policy.breaker import Breaker, BreakerState
from forbear.policy.control import Control
from tests.functions.builders import make_endpoint, one, post, run
from tests.functions.queue.leasing import (
    AT_ONCE,
    LEASE_S,
    attempts,
    breaker,
    claim,
    control,
    count,
    delivery,
    failing,
    fetch,
    freeze,
    ready_in_s,
    reap,
    settle,
)
from tests.functions.queue.storing import attempt_made, settle_with_store

GONE = "gone: the receiver answered 410"

type Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def endpoint_id(connection: Connection) -> UUID:
    freeze(connection)
    return make_endpoint(connection)


def queued(connection: Connection, delivery_id: UUID) -> Any:
    return fetch(connection, "SELECT * FROM forbear.queue WHERE id = %s", delivery_id)


def ended(connection: Connection, delivery_id: UUID) -> Any:
    return fetch(connection, "SELECT * FROM forbear.history WHERE id = %s", delivery_id)


class TestOutcomes:
    def test_a_delivered_one_moves_to_the_history_with_its_evidence(
        self, connection: Connection, endpoint_id: UUID
    ) -> None:
        (event_id,) = post(connection, b"12345")
        (lease,) = claim(connection)
        assert settle(connection, [lease], status=204, headers=b"x: y", body=b"fine").late == []
        row = ended(connection, lease.delivery_id)
        assert (row.state, row.reason, row.attempts, row.generation) == ("delivered", None, 1, 1)
        assert (row.event_id, row.endpoint_id, row.payload_bytes) == (event_id, endpoint_id, 5)
        now = fetch(connection, "SELECT forbear.now() AS at").at
        assert row.ended_at == now
        assert count(connection, "forbear.queue") == count(connection, "forbear.queue_attempts") == 0
        (attempt,) = attempts(connection, lease.delivery_id)
        assert (attempt.number, attempt.generation, attempt.verdict, attempt.status) == (1, 1, "success", 204)
        assert (attempt.response_headers, attempt.response_body) == (b"x: y", b"fine")
        assert (attempt.url, attempt.address) == ("https://receiver.example/hook", "192.0.2.1:443")
        assert (attempt.started_at, attempt.latency_ms) == (now - timedelta(seconds=0.25), 250.0)
        assert (attempt.next_due_at, attempt.late, attempt.error) == (None, False, None)

    def test_a_retry_stays_in_the_queue_until_it_is_due(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, b"1")
        (lease,) = claim(connection)
        settle(connection, [lease], "retry", delay_s=77, error="timeout", retry_after_s=70)
        row = queued(connection, lease.delivery_id)
        assert (row.tries, row.limited, row.lost, row.attempts) == (1, 0, 0, 1)
        assert (row.lease_token, row.lease_until, row.claimed_at) == (None, None, None)
        assert row.due_at == fetch(connection, "SELECT forbear.now() AS at").at + timedelta(seconds=77)
        (attempt,) = attempts(connection, lease.delivery_id)
        assert (attempt.verdict, attempt.status, attempt.error, attempt.error_detail) == (
            *("retry", None, "timeout", "it broke"),
        )
        assert (attempt.retry_after_s, attempt.retry_after_honoured) == (70, True)
        assert attempt.next_due_at == row.due_at

    @pytest.mark.parametrize("reason", ["exhausted", "permanent", "gone", "unsendable"])
    def test_a_dead_one_says_why(self, connection: Connection, endpoint_id: UUID, reason: str) -> None:
        post(connection, b"1")
        (lease,) = claim(connection)
        settle(connection, [lease], "dead", reason=reason)
        row = ended(connection, lease.delivery_id)
        assert (row.state, row.reason, row.attempts) == ("dead", reason, 1)

    def test_one_that_ends_without_an_attempt_has_none(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, b"1")
        settle(connection, claim(connection), "retry", delay_s=0)
        (lease,) = claim(connection)
        run(settle_with_store(connection, [(lease, "dead", "expired", None)]))
        row = ended(connection, lease.delivery_id)
        assert (row.state, row.reason, row.attempts) == ("dead", "expired", 1)
        assert [attempt.number for attempt in attempts(connection, lease.delivery_id)] == [1]

    def test_one_given_back_is_due_at_once_as_if_it_had_not_been_claimed(
        self, connection: Connection, endpoint_id: UUID
    ) -> None:
        post(connection, b"1")
        (lease,) = claim(connection)
        settle(connection, [lease], "return")
        row = queued(connection, lease.delivery_id)
        assert (row.attempts, row.tries, row.started_at, row.held_mark) == (0, 0, None, None)
        (again,) = claim(connection)
        assert (again.attempt, again.started_at) == (1, None)
        assert again.lease_token != lease.lease_token

    def test_giving_back_keeps_when_the_generation_began(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, b"1")
        (lease,) = claim(connection)
        began = fetch(connection, "SELECT forbear.now() AS at").at
        settle(connection, [lease], "retry", delay_s=10)
        freeze(connection, forward_s=10)
        settle(connection, claim(connection), "return")
        (again,) = claim(connection)
        assert (again.attempt, again.tries, again.started_at) == (2, 1, began)

    def test_limited_verdicts_are_counted_apart(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, b"1")
        for limited in (True, False, True):
            (lease,) = claim(connection)
            settle(connection, [lease], "retry", delay_s=0, limited=limited, verdict="limited" if limited else "retry")
        (lease,) = claim(connection)
        assert (lease.tries, lease.limited) == (3, 2)

    def test_all_outcomes_at_once(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, *[b"1"] * 8)
        settle(connection, claim(connection), "retry", delay_s=0)
        leases = claim(connection)
        made = attempt_made
        run(
            settle_with_store(
                connection,
                [
                    (leases[0], "delivered", None, made("success", 200)),
                    (leases[1], "retry", None, made("retry", 500)),
                    (leases[2], "dead", "permanent", made("permanent", 301)),
                    (leases[3], "dead", "expired", None),
                    (leases[4], "return", None, None),
                    (leases[5], "delivered", None, made("success", 299)),
                ],
            )
        )
        states = [delivery(connection, lease.delivery_id) for lease in leases]
        assert [state.state for state in states] == [
            *("delivered", "pending", "dead", "dead", "pending", "delivered", "leased", "leased")
        ]
        assert [state.attempts for state in states] == [2, 2, 2, 1, 1, 2, 2, 2]
        assert [len(attempts(connection, lease.delivery_id)) for lease in leases] == [2, 2, 2, 1, 1, 2, 1, 1]


class TestNumbers:
    def test_attempts_are_numbered_without_gaps_over_give_backs_losses_and_generations(
        self, connection: Connection, endpoint_id: UUID
    ) -> None:
        post(connection, b"1")
        for step in ("retry", "return", "lose", "return", "return", "retry", "lose", "end"):
            (lease,) = claim(connection)
            if step == "lose":
                freeze(connection, forward_s=LEASE_S)
                reap(connection)
            elif step == "end":
                settle(connection, [lease], "dead", reason="exhausted")
            else:
                settle(connection, [lease], step, delay_s=0)
        row = ended(connection, lease.delivery_id)
        assert row.attempts == 5
        kept = attempts(connection, lease.delivery_id)
        assert [(attempt.number, attempt.verdict) for attempt in kept] == [
            *((1, "retry"), (2, "lost"), (3, "retry"), (4, "lost"), (5, "permanent"))
        ]
        revive(connection, row)
        (lease,) = claim(connection)
        assert (lease.attempt, lease.generation, lease.tries) == (6, 2, 0)
        assert lease.started_at is None
        settle(connection, [lease])
        assert [(a.number, a.generation) for a in attempts(connection, lease.delivery_id)] == [
            *((1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 2))
        ]
        assert count(connection, "forbear.queue_attempts") == 0


def revive(connection: Connection, row: Any) -> None:
    """Put a finished delivery back as a replay does."""
    sql = "INSERT INTO forbear.replays (kind, deliveries, step_at) VALUES ('replay', ARRAY[%s]::uuid[], forbear.now())"
    connection.execute(sql, (row.id,))
    one(connection, "SELECT forbear.replay_step(10)")


class TestLanes:
    def test_retries_wake_their_lanes_in_time(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, b"1", b"2")
        first, second = claim(connection)
        settle(connection, [first], "retry", delay_s=50)
        settle(connection, [second], "retry", delay_s=20)
        claim(connection)
        assert ready_in_s(connection, endpoint_id) == 20

    def test_a_success_wakes_no_lane_that_is_not_saturated(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, b"1", b"2")
        settle(connection, claim(connection))
        assert count(connection, "forbear.wakes") == 0

    def test_a_settle_wakes_a_saturated_lane_and_only_that(self, connection: Connection, endpoint_id: UUID) -> None:
        full = make_endpoint(connection, tenant="other", policy={"limits": {"concurrency": 1}})
        post(connection, b"1")
        post(connection, b"1", b"2", tenant="other")
        settle(connection, claim(connection))
        assert fetch(connection, "SELECT endpoint_ids FROM forbear.wakes").endpoint_ids == [full]
        assert len(claim(connection)) == 1

    def test_retry_after_holds_the_lane(self, connection: Connection) -> None:
        freeze(connection)
        endpoint_id = make_endpoint(connection, policy=AT_ONCE)
        post(connection, b"1", b"2", b"3")
        first, second, third = claim(connection)
        settle(connection, [first], "retry", delay_s=130, waits={endpoint_id: 120.0})
        settle(connection, [second], "retry", delay_s=5)
        claim(connection)
        assert ready_in_s(connection, endpoint_id) == 120
        settle(connection, [third], "retry", delay_s=5, waits={endpoint_id: 60.0})
        claim(connection)
        assert ready_in_s(connection, endpoint_id) == 120, "a shorter wait does not shorten the longer one"
        freeze(connection, forward_s=119)
        assert claim(connection) == []
        freeze(connection, forward_s=1)
        assert {lease.delivery_id for lease in claim(connection)} == {second.delivery_id, third.delivery_id}

    def test_retry_after_holds_a_lane_that_has_more_due_now(self, connection: Connection) -> None:
        freeze(connection)
        endpoint_id = make_endpoint(connection, policy={"limits": {"concurrency": 1}})
        post(connection, b"1", b"2")
        leases = claim(connection)
        settle(connection, leases, "retry", delay_s=30, waits={endpoint_id: 30.0})
        assert claim(connection) == []
        assert ready_in_s(connection, endpoint_id) == 30

    def test_gone_disables_the_endpoint_and_holds_the_rest(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, b"1", b"2")
        first, second = claim(connection)
        post(connection, b"3")
        settle(
            connection,
            [first],
            "dead",
            reason="gone",
            verdict="gone",
            status=410,
            disables={endpoint_id: GONE},
        )
        lane = fetch(connection, "SELECT held, disabled_reason FROM forbear.lanes")
        assert lane == (True, "gone: the receiver answered 410")
        assert ended(connection, first.delivery_id).reason == "gone"
        assert claim(connection) == []
        settle(connection, [second], "retry", delay_s=0)
        assert claim(connection) == []
        connection.execute("UPDATE forbear.lanes SET disabled_at = NULL, disabled_reason = NULL")
        assert len(claim(connection)) == 2


class TestBreakers:
    def opened(self, connection: Connection, before: Control, until_s: float = 30.0) -> Breaker:
        now = fetch(connection, "SELECT forbear.now() AS at").at
        until = now + timedelta(seconds=until_s)
        was = before.breaker
        return Breaker(BreakerState.OPEN, now, 5, was.trips + 1, until, was.epoch + 1, "5 failures in a row")

    def test_a_change_is_written_whole(self, connection: Connection, endpoint_id: UUID) -> None:
        before = control(connection, endpoint_id)
        after = self.opened(connection, before)
        settle(connection, [], changes=[(endpoint_id, before, after)])
        assert breaker(connection, endpoint_id) == after

    def test_counting_a_failure_leaves_the_lane_ready_when_it_was(
        self, connection: Connection, endpoint_id: UUID
    ) -> None:
        post(connection, b"1")
        settle(connection, claim(connection), "retry", delay_s=44)
        claim(connection)
        before = control(connection, endpoint_id)
        settle(connection, [], changes=[(endpoint_id, before, failing(before, 1))])
        assert ready_in_s(connection, endpoint_id) == 44

    def test_a_change_from_what_it_no_longer_is_changes_nothing_and_tells_what_it_is(
        self, connection: Connection, endpoint_id: UUID
    ) -> None:
        before = control(connection, endpoint_id)
        first = failing(before, 1)
        assert settle(connection, [], changes=[(endpoint_id, before, first)]).stale == {}
        answer = settle(connection, [], changes=[(endpoint_id, before, self.opened(connection, before))])
        assert answer.stale == {endpoint_id: replace(first, version=before.version + 1)}
        assert breaker(connection, endpoint_id) == first.breaker

    def test_what_is_stale_disables_nothing(self, connection: Connection, endpoint_id: UUID) -> None:
        """It is decided again, from what is there now."""
        before = replace(control(connection, endpoint_id), version=7)
        changes = [(endpoint_id, before, failing(before, 1))]
        assert settle(connection, [], changes=changes, disables={endpoint_id: "no success"}).stale
        assert not fetch(connection, "SELECT held FROM forbear.lanes").held

    def test_results_count_although_their_breakers_change_is_stale(
        self, connection: Connection, endpoint_id: UUID
    ) -> None:
        post(connection, b"1")
        (lease,) = claim(connection)
        before = replace(control(connection, endpoint_id), version=7)
        answer = settle(connection, [lease], "retry", changes=[(endpoint_id, before, failing(before, 1))])
        assert (answer.late, list(answer.stale)) == ([], [endpoint_id])
        assert delivery(connection, lease.delivery_id).state == "pending"

    def test_of_two_that_change_it_at_once_one_is_told(
        self, connection: Connection, endpoint_id: UUID, connect: Callable[[], Connection]
    ) -> None:
        before = control(connection, endpoint_id)
        changes = [(endpoint_id, before, failing(before, 1))]
        with connection.transaction():
            settle(connection, [], changes=changes)
            with ThreadPoolExecutor(1) as pool:
                second = pool.submit(settle, connect(), [], changes=changes)
                wait_for_a_waiter(connect())
                connection.execute("COMMIT")
                assert list(second.result(10).stale) == [endpoint_id]
                connection.execute("BEGIN")

    def test_an_open_breaker_bars_a_lane_that_was_ready(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, *[b"1"] * 3)
        claim(connection, slots=5)
        before = control(connection, endpoint_id)
        settle(connection, [], changes=[(endpoint_id, before, self.opened(connection, before, 30))])
        assert ready_in_s(connection, endpoint_id) == 30
        freeze(connection, forward_s=29)
        assert claim(connection) == []

    def test_the_changes_of_many_lanes_go_in_one_settle(self, connection: Connection) -> None:
        endpoints = [make_endpoint(connection, event_types=(f"t{n}",)) for n in range(30)]
        before = {endpoint: control(connection, endpoint) for endpoint in endpoints}
        changes = [(e, before[e], failing(before[e], n)) for n, e in enumerate(sorted(endpoints))]
        assert settle(connection, [], changes=changes, waits={endpoints[3]: 9.0}).stale == {}
        assert [breaker(connection, e).failures for e in sorted(endpoints)] == list(range(30))


def wait_for_a_waiter(connection: Connection) -> None:
    """Wait until somebody waits for a lock."""
    deadline = time.monotonic() + 10
    while not count(connection, "pg_locks WHERE NOT granted"):
        assert time.monotonic() < deadline, "nobody waited"
