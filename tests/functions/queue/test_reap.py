from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.functions.builders import make_endpoint, post
from tests.functions.queue.leasing import (
    LEASE_S,
    attempts,
    claim,
    count,
    delivery,
    fetch,
    freeze,
    ready_in_s,
    reap,
    settle,
)

type Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def endpoint_id(connection: Connection) -> UUID:
    freeze(connection)
    return make_endpoint(connection, url="https://receiver.example/hook")


def lapse(connection: Connection) -> int:
    """Let all leases lapse and take them over. Gives the number."""
    freeze(connection, forward_s=LEASE_S)
    return reap(connection)


def test_a_live_lease_is_left_alone(connection: Connection, endpoint_id: UUID) -> None:
    post(connection, b"1")
    (lease,) = claim(connection)
    freeze(connection, forward_s=LEASE_S - 0.001)
    assert reap(connection) == 0
    assert settle(connection, [lease]).late == []


def test_a_lapsed_lease_leaves_a_lost_attempt_and_the_delivery_goes_on(
    connection: Connection, endpoint_id: UUID
) -> None:
    post(connection, b"1")
    (lease,) = claim(connection)
    began = fetch(connection, "SELECT forbear.now() AS at").at
    assert lapse(connection) == 1
    (attempt,) = attempts(connection, lease.delivery_id)
    assert (attempt.number, attempt.generation, attempt.verdict, attempt.error) == (1, 1, "lost", "lost")
    assert (attempt.status, attempt.late, attempt.url) == (None, False, "https://receiver.example/hook")
    assert (attempt.started_at, attempt.latency_ms) == (began, LEASE_S * 1000)
    assert attempt.next_due_at == began + timedelta(seconds=LEASE_S)
    assert "may have got it" in attempt.error_detail
    (again,) = claim(connection)
    assert (again.attempt, again.tries, again.limited) == (2, 0, 0), "it does not move the schedule on"
    assert again.started_at == began, "but the generation's first attempt it was"
    assert reap(connection) == 0


def test_taking_over_wakes_the_lane(connection: Connection, endpoint_id: UUID) -> None:
    post(connection, b"1")
    claim(connection)
    assert ready_in_s(connection, endpoint_id) == float("inf")
    lapse(connection)
    assert len(claim(connection)) == 1


def test_after_the_fifth_loss_the_delivery_is_dead_with_all_its_evidence(
    connection: Connection, endpoint_id: UUID
) -> None:
    post(connection, b"kills its sender")
    for _ in range(5):
        (lease,) = claim(connection)
        lapse(connection)
    row = delivery(connection, lease.delivery_id)
    assert (row.state, row.reason, row.attempts) == ("dead", "lost", 5)
    kept = attempts(connection, lease.delivery_id)
    assert [(attempt.number, attempt.verdict) for attempt in kept] == [(number, "lost") for number in range(1, 6)]
    assert kept[-1].next_due_at is None
    assert {attempt.ended_at for attempt in kept} == {row.ended_at}
    assert count(connection, "forbear.queue_attempts") == 0
    assert claim(connection) == []


def test_losses_do_not_add_to_other_verdicts(connection: Connection, endpoint_id: UUID) -> None:
    post(connection, b"1")
    for step in ("lose", "retry", "lose", "retry", "lose", "lose"):
        (lease,) = claim(connection)
        if step == "lose":
            lapse(connection)
        else:
            settle(connection, [lease], "retry", delay_s=0)
    (lease,) = claim(connection)
    assert (lease.tries, lease.attempt) == (2, 7)
    assert fetch(connection, "SELECT lost FROM forbear.queue").lost == 4


def test_a_crash_during_the_last_attempt_still_ends_in_a_verdict(connection: Connection, endpoint_id: UUID) -> None:
    """Another attempt is made in its place, and that one's verdict ends the delivery."""
    post(connection, b"1")
    settle(connection, claim(connection), "retry", delay_s=0)
    (last,) = claim(connection)
    lapse(connection)
    (instead,) = claim(connection)
    assert instead.tries == last.tries
    settle(connection, [instead], "dead", reason="exhausted")
    assert delivery(connection, last.delivery_id).reason == "exhausted"


def test_what_is_being_settled_this_instant_is_not_waited_for(
    connection: Connection, endpoint_id: UUID, connect: Callable[[], Connection]
) -> None:
    post(connection, b"1", b"2")
    leases = claim(connection)
    freeze(connection, forward_s=LEASE_S - 1)
    other = connect()
    with other.transaction():
        settle(other, leases[:1])
        connection.execute("SET lock_timeout = '1s'")
        connection.execute("UPDATE forbear.clock SET frozen_at = frozen_at + interval '1 second'")
        assert reap(connection) == 1
    assert reap(connection) == 0
    assert [delivery(connection, lease.delivery_id).state for lease in leases] == ["delivered", "pending"]


def test_two_takers_share_the_work_and_take_nothing_twice(
    connection: Connection, endpoint_id: UUID, connect: Callable[[], Connection]
) -> None:
    post(connection, *[b"1"] * 40)
    claim(connection)
    freeze(connection, forward_s=LEASE_S)
    other = connect()
    with other.transaction():
        assert fetch(other, "SELECT forbear.reap(15) AS number").number == 15
        assert reap(connection) == 25
    assert count(connection, "forbear.queue_attempts") == 40
    assert count(connection, "forbear.queue WHERE lost = 1 AND lease_token IS NULL") == 40


def test_many_are_taken_over_in_steps(connection: Connection) -> None:
    freeze(connection)
    for n in range(12):
        make_endpoint(connection, event_types=(f"t{n}",))
        post(connection, *[b"1"] * 60, event_type=f"t{n}")
    leased = len(claim(connection, slots=5000))
    freeze(connection, forward_s=LEASE_S)
    assert leased > 500
    assert [reap(connection) for _ in range(3)] == [500, leased - 500, 0]


def test_a_lapsed_lease_on_a_deleted_lane_is_cancelled(connection: Connection, endpoint_id: UUID) -> None:
    post(connection, b"1")
    (lease,) = claim(connection)
    freeze(connection, forward_s=LEASE_S)
    connection.execute("UPDATE forbear.lanes SET deleted_at = forbear.now()")
    reap(connection)
    claim(connection)
    assert delivery(connection, lease.delivery_id).state == "cancelled"


def test_a_lapsed_lease_on_a_held_lane_waits_there(connection: Connection, endpoint_id: UUID) -> None:
    post(connection, b"1")
    claim(connection)
    connection.execute("UPDATE forbear.lanes SET paused_at = forbear.now()")
    lapse(connection)
    assert claim(connection) == []
    connection.execute("UPDATE forbear.lanes SET paused_at = NULL")
    assert len(claim(connection)) == 1
