from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from forbear.leases import Lease
from forbear.policy.breaker import Breaker, BreakerState
from forbear.store import Attempt, BreakerChange, Result, Settled, Store
from tests.functions.builders import make_endpoint, move_clock, one, post, run
from tests.functions.queue.leasing import (
    attempts,
    breaker,
    claim,
    count,
    delivery,
    fetch,
    freeze,
    keep_late,
    ready_in_s,
    reap,
    settle,
)

type Connection = psycopg.Connection[tuple[Any, ...]]

LEASE_S = 15 + 30


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

    @pytest.mark.parametrize("reason", ["exhausted", "permanent", "gone", "unsendable", "circuit_open"])
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


def attempt_made(verdict: str, status: int | None, **changes: Any) -> Attempt:
    made = Attempt(
        *(verdict, time.monotonic(), 5.0, "https://receiver.example/", "192.0.2.1:443", b"h: v"),
        *(status, b"", b"", None, "", None),
        retry_after_honoured=False,
    )
    return replace(made, **changes)


async def settle_with_store(
    connection: Connection,
    results: list[tuple[Any, str, str | None, Attempt | None]],
    changes: list[BreakerChange] | None = None,
) -> Settled:
    """Settle rows of a claim through the store."""
    store = Store(url_of(connection))
    try:
        return await store.settle(
            [
                Result(lease_of(row), outcome, reason, 60.0, limited=False, attempt=attempt)
                for row, outcome, reason, attempt in results
            ],
            changes or [],
        )
    finally:
        await store.aclose()


def url_of(connection: Connection) -> str:
    info = connection.info
    return f"postgresql://{info.user}:{info.password}@{info.host}:{info.port}/{info.dbname}"


def lease_of(row: Any) -> Lease:
    """A lease as far as a settle looks at it."""
    fields: dict[str, Any] = dict.fromkeys(Lease.__dataclass_fields__)
    return Lease(**(fields | {"delivery_id": row.delivery_id, "token": row.lease_token, "number": row.attempt}))


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


class TestFence:
    def test_a_result_counts_to_the_last_instant_of_the_lease(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, b"1", b"2")
        first, second = claim(connection)
        freeze(connection, forward_s=LEASE_S - 0.001)
        assert settle(connection, [first]).late == []
        freeze(connection, forward_s=0.001)
        assert settle(connection, [second]).late == [1]
        assert delivery(connection, second.delivery_id).state == "leased"

    @pytest.mark.parametrize("outcome", ["delivered", "retry", "dead", "return"])
    def test_a_stranger_to_the_lease_changes_nothing(
        self, connection: Connection, endpoint_id: UUID, outcome: str
    ) -> None:
        post(connection, b"1")
        (old,) = claim(connection)
        freeze(connection, forward_s=LEASE_S)
        reap(connection)
        (new,) = claim(connection)
        before = queued(connection, old.delivery_id)
        assert settle(connection, [old], outcome, reason="permanent").late == [1]
        assert queued(connection, old.delivery_id) == before
        assert settle(connection, [new]).late == []

    def test_of_a_batch_only_the_late_results_are_left_out(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, *[b"1"] * 6)
        leases = claim(connection)
        settle(connection, leases[1:4:2])
        assert settle(connection, leases).late == [2, 4]
        assert count(connection, "forbear.history") == 6

    def test_two_leases_of_one_delivery_in_one_batch_are_told_apart(
        self, connection: Connection, endpoint_id: UUID
    ) -> None:
        post(connection, b"1")
        (old,) = claim(connection)
        freeze(connection, forward_s=LEASE_S)
        reap(connection)
        (new,) = claim(connection)
        assert settle(connection, [old, new]).late == [1]
        assert [(a.number, a.verdict) for a in attempts(connection, new.delivery_id)] == [(1, "lost"), (2, "success")]

    @pytest.mark.parametrize("outcome", ["delivered", "retry", "dead", "return"])
    def test_settling_the_same_batch_twice_does_no_harm(
        self, connection: Connection, endpoint_id: UUID, outcome: str
    ) -> None:
        def everything() -> list[Any]:
            tables = ("queue", "history", "queue_attempts", "history_attempts", "wakes")
            return [connection.execute(f"SELECT * FROM forbear.{table} ORDER BY 1, 2").fetchall() for table in tables]

        post(connection, *[b"1"] * 3)
        leases = claim(connection)
        attempt = None if outcome == "return" else attempt_made("retry", 500)
        reason = "permanent" if outcome == "dead" else None
        batch = [(lease, outcome, reason, attempt) for lease in leases]
        assert run(settle_with_store(connection, batch)).late == set()
        before = everything()
        assert run(settle_with_store(connection, batch)).late == {0, 1, 2}
        assert everything() == before


class TestLateResults:
    def test_before_the_takeover(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, b"1")
        (lease,) = claim(connection)
        freeze(connection, forward_s=LEASE_S)
        keep_late(connection, lease)
        (attempt,) = attempts(connection, lease.delivery_id)
        assert (attempt.number, attempt.verdict, attempt.status, attempt.late) == (1, "lost", 200, True)
        assert reap(connection) == 1
        (attempt,) = attempts(connection, lease.delivery_id)
        assert (attempt.response_body, attempt.late) == (b"late answer", True), "the takeover leaves better evidence"
        assert claim(connection)[0].attempt == 2

    def test_after_the_takeover(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, b"1")
        (lease,) = claim(connection)
        freeze(connection, forward_s=LEASE_S)
        reap(connection)
        (new,) = claim(connection)
        keep_late(connection, lease, status=503)
        (attempt,) = attempts(connection, lease.delivery_id)
        assert (attempt.number, attempt.verdict, attempt.status, attempt.error) == (1, "lost", 503, None)
        assert delivery(connection, lease.delivery_id).state == "leased"
        settle(connection, [new])
        assert [(a.number, a.late) for a in attempts(connection, lease.delivery_id)] == [(1, True), (2, False)]

    @pytest.mark.parametrize("finish", ["delivered", "cancelled"])
    def test_after_the_delivery_had_ended(self, connection: Connection, endpoint_id: UUID, finish: str) -> None:
        post(connection, b"1")
        (lease,) = claim(connection)
        if finish == "cancelled":
            one(connection, "SELECT forbear.cancel_lane(%s, 10)", endpoint_id)
        else:
            freeze(connection, forward_s=LEASE_S)
            reap(connection)
            settle(connection, claim(connection))
        before = ended(connection, lease.delivery_id)
        keep_late(connection, lease)
        assert ended(connection, lease.delivery_id) == before
        kept = attempts(connection, lease.delivery_id)
        assert (kept[0].number, kept[0].status, kept[0].late) == (1, 200, True)
        assert kept[0].ended_at == before.ended_at, "it goes when its delivery goes"

    def test_never_over_a_result_that_counted(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, b"1", b"2")
        pending, finished = claim(connection)
        settle(connection, [pending], "retry")
        settle(connection, [finished])
        before = [attempts(connection, lease.delivery_id) for lease in (pending, finished)]
        for lease in (pending, finished):
            keep_late(connection, lease, status=418)
        assert [attempts(connection, lease.delivery_id) for lease in (pending, finished)] == before

    def test_of_a_delivery_that_retention_has_dropped_are_let_go(
        self, connection: Connection, endpoint_id: UUID
    ) -> None:
        post(connection, b"1")
        (lease,) = claim(connection)
        connection.execute("DELETE FROM forbear.queue")
        keep_late(connection, lease)
        assert attempts(connection, lease.delivery_id) == []

    def test_the_store_keeps_them_by_itself(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, *[b"1"] * 3)
        leases = claim(connection)
        freeze(connection, forward_s=LEASE_S)
        reap(connection)
        batch: list[tuple[Any, str, str | None, Attempt | None]] = [
            (lease, "delivered", None, attempt_made("success", 202)) for lease in leases[:2]
        ]
        settled = run(settle_with_store(connection, [*batch, (leases[2], "return", None, None)]))
        assert settled.late == {0, 1, 2}
        kept = [attempts(connection, lease.delivery_id)[0] for lease in leases]
        assert [(attempt.status, attempt.late) for attempt in kept] == [(202, True), (202, True), (None, False)]

    def test_they_do_not_wait_for_a_claim_nor_bar_one(
        self, connection: Connection, endpoint_id: UUID, connect: Callable[[], Connection]
    ) -> None:
        post(connection, b"1")
        (lease,) = claim(connection)
        freeze(connection, forward_s=LEASE_S)
        reap(connection)
        other = connect()
        for one_connection in (connection, other):
            one_connection.execute("SET lock_timeout = '1s'")
        with other.transaction():
            keep_late(other, lease)
            (new,) = claim(connection)
        with other.transaction():
            other.execute("UPDATE forbear.queue SET due_at = due_at")
            keep_late(connection, lease)
        assert new.attempt == 2


class TestBytes:
    @pytest.mark.parametrize(
        "body",
        [b"a\x00b", b"\x1f\x8b\x08\x00", bytes(range(256)), b"\xff\xfe", "Grüße".encode("latin-1"), b"", b"x" * 16384],
    )
    def test_whatever_the_receiver_sends_is_kept_byte_for_byte(
        self, connection: Connection, endpoint_id: UUID, body: bytes
    ) -> None:
        post(connection, b"1", b"2")
        first, second = claim(connection)
        settle(connection, [first], "retry", body=body, headers=b"x-odd: " + body[:300])
        settle(connection, [second], body=body, headers=b"x-odd: " + body[:300])
        for lease in (first, second):
            (attempt,) = attempts(connection, lease.delivery_id)
            assert (attempt.response_body, attempt.response_headers) == (body, b"x-odd: " + body[:300])

    def test_more_than_16_kib_of_it_is_refused_and_nothing_else_changed(
        self, connection: Connection, endpoint_id: UUID
    ) -> None:
        post(connection, b"1")
        leases = claim(connection)
        with pytest.raises(psycopg.errors.CheckViolation, match="response_body"):
            settle(connection, leases, body=b"x" * 16385)
        assert delivery(connection, leases[0].delivery_id).state == "leased"

    def test_five_hundred_full_bodies_fit_into_one_batch(self, connection: Connection) -> None:
        for n in range(5):
            make_endpoint(connection, event_types=(f"t{n}",))
            post(connection, *[b"1"] * 50, event_type=f"t{n}")
        leases = claim(connection)
        assert len(leases) > 200
        settle(connection, leases, body=bytes(range(256)) * 64)
        assert count(connection, "forbear.history_attempts WHERE octet_length(response_body) = 16384") == len(leases)


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

    def test_retry_after_holds_the_lane(self, connection: Connection, endpoint_id: UUID) -> None:
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
        settle(connection, [first], "dead", reason="gone", verdict="gone", status=410, gone=[endpoint_id])
        lane = fetch(connection, "SELECT held, disabled_reason FROM forbear.lanes")
        assert lane == (True, "gone: the receiver answered 410")
        assert ended(connection, first.delivery_id).reason == "gone"
        assert claim(connection) == []
        settle(connection, [second], "retry", delay_s=0)
        assert claim(connection) == []
        connection.execute("UPDATE forbear.lanes SET disabled_at = NULL, disabled_reason = NULL")
        assert len(claim(connection)) == 2


class TestBreakers:
    def opened(self, connection: Connection, before: Breaker, until_s: float = 30.0) -> Breaker:
        now = fetch(connection, "SELECT forbear.now() AS at").at
        until = now + timedelta(seconds=until_s)
        return Breaker(BreakerState.OPEN, now, 5, before.trips + 1, until, before.epoch + 1, "5 failures in a row")

    def test_a_change_is_written_whole(self, connection: Connection, endpoint_id: UUID) -> None:
        before = breaker(connection, endpoint_id)
        after = self.opened(connection, before)
        settle(connection, [], changes=[(endpoint_id, before, after)])
        assert breaker(connection, endpoint_id) == after

    def test_counting_a_failure_leaves_the_lane_ready_when_it_was(
        self, connection: Connection, endpoint_id: UUID
    ) -> None:
        post(connection, b"1")
        settle(connection, claim(connection), "retry", delay_s=44)
        claim(connection)
        before = breaker(connection, endpoint_id)
        settle(connection, [], changes=[(endpoint_id, before, replace(before, failures=1))])
        assert ready_in_s(connection, endpoint_id) == 44

    def test_a_change_from_what_it_no_longer_is_changes_nothing_and_tells_what_it_is(
        self, connection: Connection, endpoint_id: UUID
    ) -> None:
        before = breaker(connection, endpoint_id)
        first = replace(before, failures=1)
        assert settle(connection, [], changes=[(endpoint_id, before, first)]).stale == {}
        answer = settle(connection, [], changes=[(endpoint_id, before, self.opened(connection, before))])
        assert answer.stale == {endpoint_id: first}
        assert breaker(connection, endpoint_id) == first

    def test_results_count_although_their_breakers_change_is_stale(
        self, connection: Connection, endpoint_id: UUID
    ) -> None:
        post(connection, b"1")
        (lease,) = claim(connection)
        before = replace(breaker(connection, endpoint_id), epoch=7)
        answer = settle(connection, [lease], "retry", changes=[(endpoint_id, before, replace(before, failures=1))])
        assert (answer.late, list(answer.stale)) == ([], [endpoint_id])
        assert delivery(connection, lease.delivery_id).state == "pending"

    def test_of_two_that_change_it_at_once_one_is_told(
        self, connection: Connection, endpoint_id: UUID, connect: Callable[[], Connection]
    ) -> None:
        before = breaker(connection, endpoint_id)
        changes = [(endpoint_id, before, replace(before, failures=1))]
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
        before = breaker(connection, endpoint_id)
        settle(connection, [], changes=[(endpoint_id, before, self.opened(connection, before, 30))])
        assert ready_in_s(connection, endpoint_id) == 30
        freeze(connection, forward_s=29)
        assert claim(connection) == []

    def test_the_changes_of_many_lanes_go_in_one_settle(self, connection: Connection) -> None:
        endpoints = [make_endpoint(connection, event_types=(f"t{n}",)) for n in range(30)]
        before = {endpoint: breaker(connection, endpoint) for endpoint in endpoints}
        changes = [(e, before[e], replace(before[e], failures=n)) for n, e in enumerate(sorted(endpoints))]
        assert settle(connection, [], changes=changes, waits={endpoints[3]: 9.0}, gone=[endpoints[4]]).stale == {}
        assert [breaker(connection, e).failures for e in sorted(endpoints)] == list(range(30))


def wait_for_a_waiter(connection: Connection) -> None:
    """Wait until somebody waits for a lock."""
    deadline = time.monotonic() + 10
    while not count(connection, "pg_locks WHERE NOT granted"):
        assert time.monotonic() < deadline, "nobody waited"


class TestStore:
    def test_a_claim_and_a_settle_over_a_lost_partition(self, connection: Connection, database_url: str) -> None:
        """After a long sleep the day has no partition: it is made on the way."""
        make_endpoint(connection)
        post(connection, b"1")
        move_clock(connection, days=100)

        async def work() -> Settled:
            store = Store(database_url)
            leases = await store.claim(10, 1000)
            made = attempt_made("success", 200)
            settled = await store.settle([Result(leases[0], "delivered", None, 0.0, limited=False, attempt=made)])
            await store.aclose()
            return settled

        assert run(work()) == Settled(frozenset(), {})
        assert count(connection, "forbear.history WHERE ended_at > now() + interval '99 days'") == 1

    def test_the_clock_is_the_databases(self, connection: Connection, database_url: str) -> None:
        move_clock(connection, days=3)

        async def work() -> float:
            store = Store(database_url)
            with pytest.raises(RuntimeError, match="not been asked"):
                store.now()
            await store.outlook(UUID(int=1))
            near = store.now()
            move_clock(connection, days=4)
            await store.stay_awake(UUID(int=1), 5)
            far = store.now()
            await store.aclose()
            return (far - near).total_seconds()

        assert math.isclose(run(work()), 4 * 86_400, abs_tol=60)

    def test_texts_that_the_database_cannot_hold_do_no_harm(self, connection: Connection, endpoint_id: UUID) -> None:
        post(connection, b"1", b"2")
        odd, even = claim(connection)
        made = attempt_made("retry", None, error="protocol", error_detail="a\x00b\ud800c")
        run(settle_with_store(connection, [(odd, "retry", None, made), (even, "retry", None, made)]))
        assert [attempts(connection, lease.delivery_id)[0].error for lease in (odd, even)] == ["protocol"] * 2
