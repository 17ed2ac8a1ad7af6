from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from forbear.db import statement
from tests.functions.builders import make_endpoint, post
from tests.functions.queue.leasing import (
    AT_ONCE,
    HOLDS,
    attempts,
    claim,
    count,
    delivery,
    fetch,
    freeze,
    keep_late,
    ready_in_s,
    settle,
    several,
)

type Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def _standing_clock(connection: Connection) -> None:
    """Times are compared to the microsecond."""
    freeze(connection)


class TestHolding:
    @pytest.mark.parametrize("hold", HOLDS)
    def test_a_held_lane_keeps_its_deliveries_and_lets_them_go_at_once_when_it_is_let_go(
        self, connection: Connection, hold: str
    ) -> None:
        endpoint_id = make_endpoint(connection, policy=AT_ONCE)
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

    @pytest.mark.parametrize("order", ["lane everything lane everything", "everything lane everything lane"])
    @pytest.mark.parametrize("nested", [False, True])
    def test_time_held_twice_over_counts_once(self, connection: Connection, order: str, nested: bool) -> None:
        """Otherwise a window would be longer by what two pauses have in common."""
        make_endpoint(connection)
        post(connection, b"1")
        settle(connection, claim(connection), "retry", delay_s=0)
        causes = order.split()
        for place, cause in enumerate([*causes[:2], *reversed(causes[2:])] if nested else causes):
            if cause == "lane":
                paused_at = "forbear.now()" if place < 2 else "NULL"
                connection.execute(f"UPDATE forbear.lanes SET paused_at = {paused_at}")
            else:
                connection.execute(statement("pause_everything"), {"paused": place < 2})
            if place < 3:
                freeze(connection, forward_s=10)
        assert claim(connection)[0].held_s == 30

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
