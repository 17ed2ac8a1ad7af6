from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.functions.builders import make_endpoint, one, post
from tests.functions.queue.leasing import (
    HOLDS,
    LEASE_S,
    claim,
    count,
    fetch,
    freeze,
    limits,
    open_breaker,
    ready_in_s,
    settle,
    several,
)

type Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def _standing_clock(connection: Connection) -> None:
    """Times are compared to the microsecond."""
    freeze(connection)


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
                    " WHERE q.lease_token IS NULL"
                    " AND q.due_at < CASE WHEN q.retry THEN l.retry_low_water ELSE l.low_water END"
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
