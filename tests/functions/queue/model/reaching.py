"""Whether everything due can be reached: what a claimer that is alone would get, tried out and undone.

Owns the tries: they run the real claim, reap and settle in a transaction that is rolled back, or for good at the end.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

from forbear.db import make_partitions
from tests.functions.queue.leasing import claim, reap, settle

type Connection = psycopg.Connection[Any]

# A lease lasts its endpoint's timeout and 30 s, which is less than a tick with the machine's policies.
TICK = timedelta(seconds=61)
NOBODY = UUID(int=0)
# Something to do that comes to nothing, so many times in a row at the same time, is work without an end.
MOST_IDLE = 5
# What nothing holds, and what is due there.
DUE = """
    SELECT q.id, q.endpoint_id, l.breaker_state IN ('open', 'half_open_probe') AS one_at_a_time
    FROM forbear.queue q JOIN forbear.lanes l ON l.endpoint_id = q.endpoint_id
    WHERE q.lease_token IS NULL AND q.due_at <= forbear.now() AND NOT l.held
      AND (SELECT c.paused_at IS NULL FROM forbear.control c)
      AND coalesce(greatest(l.wait_until, l.breaker_until, l.probe_until) < forbear.now() + interval '10 seconds', true)
"""


def check_within_a_tick(connection: Connection) -> None:
    """Assert that every due delivery that nothing bars is handed out within a tick, though all claimers died now.

    Behind an open breaker whose cool-down is over, one of the lane's must be, as its probe.
    """
    # A claimer would make them when it misses one, and do what it was at once more.
    make_partitions(connection)
    with connection.transaction(force_rollback=True):
        due = connection.cursor(row_factory=dict_row).execute(DUE).fetchall()
        if not due:
            return
        given = work(connection, _now(connection) + TICK)
        # What a policy dead-letters, or a deleted lane cancels, is not handed out and does not wait either.
        left = {row[0] for row in connection.execute("SELECT id FROM forbear.queue WHERE lease_token IS NULL")}
        missed = [one for one in due if one["id"] in left - given]
        reached = {one["endpoint_id"] for one in due if one["id"] not in left or one["id"] in given}
        missed = [one for one in missed if not (one["one_at_a_time"] and one["endpoint_id"] in reached)]
        assert not missed, f"{missed} are due and are not handed out within a tick; {_lanes(connection)}"


def work(connection: Connection, until: datetime) -> set[UUID]:
    """Do what a claimer does that is alone, every attempt delivered, until a time or until nothing is left to do.

    Args:
        connection: the owner's; where its transaction is rolled back, all of this is.
        until: how far the clock, which stands, may be moved.

    Returns:
        The deliveries that were handed out.
    """
    connection.execute("DELETE FROM forbear.claimers")
    given: set[UUID] = set()
    idle = 0
    while idle < MOST_IDLE:
        if leases := claim(connection):
            given |= {lease.delivery_id for lease in leases}
            settle(connection, leases)
            idle = 0
            continue
        next_at = _next(connection)
        if next_at is None or next_at > until:
            return given
        if next_at > _now(connection):
            connection.execute("UPDATE forbear.clock SET frozen_at = %s", (next_at,))
            idle = 0
        reap(connection)
        idle += 1
    raise AssertionError(f"there is always something to do, and it comes to nothing: {_lanes(connection)}")


def drain(connection: Connection) -> None:
    """Let go of everything that holds something, for good, and assert that nothing is left unfinished.

    Every claimer is dead and every attempt delivers; the clock goes on as far as it must.
    """
    connection.execute("UPDATE forbear.control SET paused_at = NULL")
    connection.execute("UPDATE forbear.tenants SET paused_at = NULL")
    connection.execute(
        "UPDATE forbear.lanes SET paused_at = NULL, tenant_paused_at = NULL, disabled_at = NULL, disabled_reason = NULL"
    )
    while not_ended := connection.execute("SELECT step_at FROM forbear.replays WHERE ended_at IS NULL").fetchall():
        step_at = min(row[0] for row in not_ended)
        if step_at > _now(connection):
            connection.execute("UPDATE forbear.clock SET frozen_at = %s", (step_at,))
        make_partitions(connection)
        connection.execute("SELECT forbear.replay_step(1000)")
    end = _now(connection) + timedelta(days=4)
    make_partitions(connection)
    work(connection, end)
    left = connection.cursor(row_factory=dict_row).execute("SELECT * FROM forbear.queue").fetchall()
    assert not left, f"these are stuck: {left}; {_lanes(connection)}"


def _now(connection: Connection) -> datetime:
    row = connection.execute("SELECT forbear.now()").fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


def _next(connection: Connection) -> datetime | None:
    """When a claimer that is alone would look again for something to lease or to take over."""
    row = connection.execute("SELECT least(next_at, lease_at) FROM forbear.outlook(%s)", (NOBODY,)).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


def _lanes(connection: Connection) -> list[dict[str, Any]]:
    return (
        connection.cursor(row_factory=dict_row)
        .execute(
            "SELECT endpoint_id, held, ready_at::text, low_water::text, retry_low_water::text, breaker_state,"
            " breaker_until, probe_until, wait_until::text, saturated FROM forbear.lanes"
        )
        .fetchall()
    )
