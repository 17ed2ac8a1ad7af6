from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest

from forbear.store import Attempt, Result, Settled, Store
from tests.functions.builders import data_keys, make_endpoint, move_clock, one, post, run
from tests.functions.manage.calling import wait_for_a_waiter
from tests.functions.queue.leasing import (
    LEASE_S,
    attempts,
    claim,
    count,
    delivery,
    fetch,
    freeze,
    keep_late,
    reap,
    settle,
)
from tests.functions.queue.storing import attempt_made, settle_with_store

type Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def endpoint_id(connection: Connection) -> UUID:
    freeze(connection)
    return make_endpoint(connection)


def queued(connection: Connection, delivery_id: UUID) -> Any:
    return fetch(connection, "SELECT * FROM forbear.queue WHERE id = %s", delivery_id)


def ended(connection: Connection, delivery_id: UUID) -> Any:
    return fetch(connection, "SELECT * FROM forbear.history WHERE id = %s", delivery_id)


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

    def test_of_a_delivery_that_is_being_replayed_they_go_where_it_goes(
        self, connection: Connection, connect: Callable[[], Connection], endpoint_id: UUID
    ) -> None:
        """Evidence that stayed behind in the history would be in the way of the next replay."""
        post(connection, b"1")
        (lease,) = claim(connection)
        ended_at = one(connection, "SELECT forbear.now()")
        with connection.transaction():
            one(connection, "SELECT forbear.cancel_lane(%s, 1)", endpoint_id)
        replayer, late = connect(), connect()
        with ThreadPoolExecutor() as pool:
            with replayer.transaction():
                revive = "SELECT forbear.revive(%s::uuid[], %s, %s, forbear.new_id(), %s, '1 second')"
                assert one(replayer, revive, [lease.delivery_id], *[ended_at] * 3) == 1
                kept = pool.submit(keep_late, late, lease)
                wait_for_a_waiter(connection)
            kept.result()
        assert count(connection, "forbear.history_attempts") == 0
        assert fetch(connection, "SELECT number, status, late FROM forbear.queue_attempts") == (1, 200, True)


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


class TestStore:
    def test_a_claim_and_a_settle_over_a_lost_partition(self, connection: Connection, database_url: str) -> None:
        """After a long sleep the day has no partition: it is made on the way."""
        make_endpoint(connection)
        post(connection, b"1")
        move_clock(connection, days=100)

        async def work() -> Settled:
            store = Store(database_url, data_keys())
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
            store = Store(database_url, data_keys())
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
