"""Policies at their bounds, and pauses of everything, through the claim."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from pydantic import ValidationError

from forbear.policy.model import Limits
from tests.functions.builders import make_endpoint, move_clock, one, post

type Connection = psycopg.Connection[tuple[Any, ...]]


def claimed(connection: Connection) -> list[tuple[Any, ...]]:
    return connection.execute("SELECT delivery_id, held_s FROM forbear.claim(100, 1000000, 200)").fetchall()


@pytest.mark.parametrize("rate", [0.001, 10_000])
def test_the_slowest_and_the_fastest_rate_let_other_tenants_through(connection: Connection, rate: float) -> None:
    make_endpoint(connection, tenant="odd", policy={"limits": {"rate_per_s": rate, "burst": 1}})
    make_endpoint(connection, tenant="fine")
    post(connection, b"1", b"2", tenant="odd")
    post(connection, b"3", tenant="fine")
    assert len(claimed(connection)) == 2
    assert one(connection, "SELECT count(*) FROM forbear.lanes WHERE ready_at > forbear.now() + interval '2 days'") <= 1


def test_a_stored_rate_below_all_bounds_stops_nobody(connection: Connection) -> None:
    make_endpoint(connection, tenant="odd", policy={"limits": {"rate_per_s": 1}})
    connection.execute("UPDATE forbear.lanes SET rate_per_s = 1e-300")
    make_endpoint(connection, tenant="fine")
    post(connection, b"1", b"2", tenant="odd")
    post(connection, b"3", tenant="fine")
    assert len(claimed(connection)) == 2
    with pytest.raises(ValidationError):
        Limits(rate_per_s=1e-300)


def test_time_in_which_everything_was_paused_does_not_count(connection: Connection) -> None:
    make_endpoint(
        connection, policy={"schedule": {"kind": "ladder", "gaps_s": [30], "repeat_last": True, "window_s": 60.0}}
    )
    post(connection, b"1")
    ((delivery, held_s),) = claimed(connection)
    assert held_s == 0
    connection.execute(
        "UPDATE forbear.queue SET lease_token = NULL, lease_until = NULL, claimed_at = NULL, tries = 1, due_at = now()"
    )
    connection.execute("UPDATE forbear.lanes SET ready_at = now(), low_water = '-infinity'")
    connection.execute("UPDATE forbear.control SET paused_at = forbear.now()")
    move_clock(connection, hours=1)
    assert claimed(connection) == []
    connection.execute(
        "UPDATE forbear.control SET held_total = held_total + (forbear.now() - paused_at), paused_at = NULL"
    )
    ((again, held_s),) = claimed(connection)
    assert again == delivery
    assert held_s == pytest.approx(3600, abs=30)


def test_one_lane_alone_may_take_much_and_many_leave_room(connection: Connection) -> None:
    wide = {"limits": {"concurrency": 1000}}
    make_endpoint(connection, tenant="t0", policy=wide)
    post(connection, *[b"1"] * 500, tenant="t0")
    alone = connection.execute("SELECT count(*) FROM forbear.claim(500, 1000000, 200, 1000)").fetchone()
    assert alone == (333,)  # half of 1,000 / 1.5
    for n in range(1, 11):
        make_endpoint(connection, tenant=f"t{n}", policy=wide)
        post(connection, *[b"1"] * 500, tenant=f"t{n}")
    free = 1000 - 333
    for _ in range(20):
        row = connection.execute("SELECT count(*) FROM forbear.claim(500, 10000000, 200, %s)", (free,)).fetchone()
        assert row is not None
        free -= row[0]
        connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now()")
    assert 60 <= free <= 250
