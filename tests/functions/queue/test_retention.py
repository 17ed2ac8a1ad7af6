from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest

from forbear import maintenance
from forbear.db import Database
from forbear.maintenance import maintain
from tests.functions.builders import make_endpoint, move_clock, one, post
from tests.functions.queue.leasing import attempts, claim, count, delivery, fetch, settle

type Connection = psycopg.Connection[tuple[Any, ...]]

DAYS = 30
TABLES = ("events", "history", "history_attempts")


def partitions(connection: Connection, table: str) -> list[str]:
    """The days, as YYYYMMDD, that a table has partitions of."""
    rows = connection.execute(
        "SELECT right(c.relname, 8) FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        " WHERE i.inhparent = ('forbear.' || %s)::regclass ORDER BY 1",
        (table,),
    ).fetchall()
    return [row[0] for row in rows]


def today(connection: Connection) -> str:
    """Forbear's day, in UTC."""
    return str(one(connection, "SELECT to_char(forbear.now() AT TIME ZONE 'UTC', 'YYYYMMDD')"))


def pass_days(connection: Connection, url: str, days: int) -> list[str]:
    """Let days pass, with maintenance every ten days and at the end. Gives the partitions dropped."""
    dropped = []
    while days:
        step = min(days, 10)
        days -= step
        move_clock(connection, days=step)
        dropped += maintain(url, DAYS)
    return dropped


@pytest.fixture
def endpoint_id(connection: Connection) -> UUID:
    return make_endpoint(connection)


def test_partitions_are_made_ahead_for_a_week(connection: Connection, database_url: str) -> None:
    move_clock(connection, days=50)
    maintain(database_url, DAYS)
    for table in TABLES:
        ahead = [day for day in partitions(connection, table) if day >= today(connection)]
        assert len(ahead) == 8
        assert ahead[0] == today(connection)


def test_what_ended_is_kept_for_its_days_and_then_dropped_with_its_partitions(
    connection: Connection, database_url: str, endpoint_id: UUID
) -> None:
    (event_id,) = post(connection, b"1")
    settle(connection, claim(connection), "retry", delay_s=0)
    (lease,) = claim(connection)
    settle(connection, [lease])
    day = today(connection)
    assert not {name for name in pass_days(connection, database_url, DAYS) if name.endswith(day)}
    assert delivery(connection, lease.delivery_id).state == "delivered"
    assert len(attempts(connection, lease.delivery_id)) == 2
    dropped = pass_days(connection, database_url, 1)
    assert {name for name in dropped if name.endswith(day)} == {f"{table}_{day}" for table in TABLES}
    assert count(connection, f"forbear.events WHERE id = '{event_id}'") == 0
    assert count(connection, "forbear.deliveries") == count(connection, "forbear.attempts") == 0


def test_an_event_is_kept_while_a_delivery_of_it_is_unfinished(
    connection: Connection, database_url: str, endpoint_id: UUID
) -> None:
    (event_id,) = post(connection, b"held")
    day = today(connection)
    connection.execute("UPDATE forbear.lanes SET paused_at = forbear.now()")
    dropped = pass_days(connection, database_url, DAYS + 10)
    assert f"events_{day}" not in dropped
    assert f"history_{day}" in dropped
    connection.execute("UPDATE forbear.lanes SET paused_at = NULL")
    (lease,) = claim(connection)
    assert (lease.event_id, lease.payload) == (event_id, b"held")
    settle(connection, [lease])
    assert f"events_{day}" not in pass_days(connection, database_url, DAYS)
    assert f"events_{day}" in pass_days(connection, database_url, 1)


def test_an_event_is_kept_as_long_as_a_delivery_that_ended_late(
    connection: Connection, database_url: str, endpoint_id: UUID
) -> None:
    """A dead letter stays replayable for its whole retention, however old its event is."""
    post(connection, b"1")
    day = today(connection)
    settle(connection, claim(connection), "retry", delay_s=20 * 86_400)
    pass_days(connection, database_url, 20)
    (lease,) = claim(connection)
    settle(connection, [lease], "dead", reason="exhausted")
    assert f"events_{day}" not in pass_days(connection, database_url, DAYS)
    assert count(connection, f"forbear.events WHERE id = '{lease.event_id}'") == 1
    assert len(attempts(connection, lease.delivery_id)) == 2
    dropped = pass_days(connection, database_url, 1)
    assert f"events_{day}" in dropped


def test_an_event_that_nobody_wanted_goes_after_its_days(connection: Connection, database_url: str) -> None:
    post(connection, b"1")
    day = today(connection)
    assert f"events_{day}" not in pass_days(connection, database_url, DAYS)
    assert f"events_{day}" in pass_days(connection, database_url, 1)


def test_a_replayed_delivery_keeps_its_earlier_attempts_when_their_days_go(
    connection: Connection, database_url: str, endpoint_id: UUID
) -> None:
    post(connection, b"1")
    (lease,) = claim(connection)
    settle(connection, [lease], "dead", reason="exhausted")
    pass_days(connection, database_url, DAYS - 1)
    sql = "INSERT INTO forbear.replays (kind, deliveries, step_at) VALUES ('replay', ARRAY[%s]::uuid[], forbear.now())"
    connection.execute(sql, (lease.delivery_id,))
    assert one(connection, "SELECT forbear.replay_step(10)") == 1
    connection.execute("UPDATE forbear.lanes SET paused_at = forbear.now()")
    pass_days(connection, database_url, 10)
    connection.execute("UPDATE forbear.lanes SET paused_at = NULL")
    (again,) = claim(connection)
    assert (again.payload, again.generation, again.attempt) == (b"1", 2, 2)
    settle(connection, [again])
    assert [attempt.number for attempt in attempts(connection, lease.delivery_id)] == [1, 2]


def test_retention_is_configurable(connection: Connection, database_url: str, endpoint_id: UUID) -> None:
    post(connection, b"1")
    settle(connection, claim(connection))
    day = today(connection)
    move_clock(connection, days=2)
    assert not {name for name in maintain(database_url, 2) if name.endswith(day)}
    assert f"events_{day}" in maintain(database_url, 1)


def test_choosing_what_to_drop_reads_no_old_row(
    connection: Connection, database_url: str, endpoint_id: UUID, connect: Callable[[], Connection]
) -> None:
    """Deliveries that ended on the event's own day go with it: that must not be found out row by row."""
    for _ in range(4):
        post(connection, *[b"1"] * 500)
    while leases := claim(connection):
        settle(connection, leases)
    day = today(connection)
    pass_days(connection, database_url, DAYS)
    move_clock(connection, days=1)
    # A connection of its own: what a connection read before may be counted with it for a while.
    counted = connect()
    with counted.transaction():
        chosen = counted.execute("SELECT partition FROM forbear.droppable_partitions('30 days')").fetchall()
        read = fetch(
            counted,
            "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int AS number FROM pg_stat_xact_user_tables"
            " WHERE relname ~ '^(events|history|queue)'",
        ).number
    assert (f"events_{day}",) in chosen
    assert read < 10


def test_two_at_once_do_it_once(connection: Connection, database_url: str) -> None:
    move_clock(connection, days=60)
    with ThreadPoolExecutor(4) as pool:
        results = [future.result() for future in [pool.submit(maintain, database_url, DAYS) for _ in range(4)]]
    dropped = [name for result in results for name in result]
    assert dropped
    assert len(dropped) == len(set(dropped))


def test_an_interrupted_detachment_is_finished_the_next_time(
    connection: Connection,
    database_url: str,
    endpoint_id: UUID,
    connect: Callable[[], Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    post(connection, b"1")
    settle(connection, claim(connection))
    day = today(connection)
    move_clock(connection, days=DAYS + 1)
    reader = connect()
    reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    reader.execute("SELECT count(*) FROM forbear.history_attempts")
    monkeypatch.setattr(maintenance, "PATIENCE_S", 1)
    dropped = maintain(database_url, DAYS)
    assert f"history_attempts_{day}" not in dropped
    assert count(connection, "pg_inherits WHERE inhdetachpending") == 1
    assert count(connection, "forbear.control WHERE maintained_at > '-infinity'") == 1
    reader.execute("COMMIT")
    post(connection, b"work goes on meanwhile")
    settle(connection, claim(connection))
    dropped += maintain(database_url, DAYS)
    assert {name for name in dropped if name.endswith(day)} == {f"{table}_{day}" for table in TABLES}
    assert count(connection, "pg_inherits WHERE inhdetachpending") == 0


def wait_for(connection: Connection, what: str) -> None:
    """Wait until there is such a row."""
    deadline = time.monotonic() + 20
    while not count(connection, what):
        assert time.monotonic() < deadline, f"no {what}"


def test_a_partition_that_was_detached_and_not_dropped_goes_the_next_time(
    connection: Connection, database_url: str
) -> None:
    day = partitions(connection, "history")[0]
    connection.execute(f"ALTER TABLE forbear.history DETACH PARTITION forbear.history_{day}")
    assert maintain(database_url, DAYS) == [f"history_{day}"]
    assert count(connection, f"pg_class WHERE relname = 'history_{day}'") == 0


def test_other_tables_are_none_of_its_business(connection: Connection, database_url: str) -> None:
    connection.execute("CREATE TABLE forbear.history_notes_20200101 (n int)")
    connection.execute("CREATE TABLE public.history_20200101 (n int)")
    connection.execute("CREATE TABLE public.parts (n int) PARTITION BY LIST (n)")
    connection.execute("CREATE TABLE public.parts_20200101 PARTITION OF public.parts FOR VALUES IN (1)")
    assert maintain(database_url, DAYS) == []
    assert count(connection, "public.history_20200101") == count(connection, "public.parts_20200101") == 0


def test_work_goes_on_while_partitions_are_dropped(
    connection: Connection, database_url: str, endpoint_id: UUID, connect: Callable[[], Connection]
) -> None:
    """Nothing that ingests, claims or settles waits for retention."""
    post(connection, b"1")
    settle(connection, claim(connection))
    move_clock(connection, days=DAYS + 1)
    connection.execute("SELECT forbear.make_partitions(forbear.now(), 1)")
    worker = connect()
    worker.execute("BEGIN")
    post(worker, b"open for a while")
    with ThreadPoolExecutor(1) as pool:
        maintaining = pool.submit(maintain, database_url, DAYS)
        wait_for(connection, "pg_locks WHERE NOT granted")
        connection.execute("SET lock_timeout = '2s'")
        post(connection, b"2")
        (lease,) = claim(connection)
        settle(connection, [lease])
        worker.execute("COMMIT")
        assert maintaining.result(20)
    assert delivery(connection, lease.delivery_id).state == "delivered"


def test_a_missing_partition_is_made_by_an_ingest_on_its_way(connection: Connection, database_url: str) -> None:
    make_endpoint(connection)
    move_clock(connection, days=400)
    database = Database(database_url)
    (event_id,) = database.run(lambda opened: post(opened, b"1"), repeatable=False)
    database.close()
    assert count(connection, f"forbear.events WHERE id = '{event_id}'") == 1
    assert claim(connection)[0].payload == b"1"


def test_idempotency_keys_go_after_a_day(
    connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance, "KEYS_A_STEP", 7)
    fresh, old = ("20 hours", 10), ("24 hours", 25)
    for age, number in (fresh, old):
        connection.execute(
            "INSERT INTO forbear.idempotency_keys"
            " SELECT 'acme', %s || n, gen_random_uuid(), '', forbear.now() - %s::interval"
            " FROM generate_series(1, %s) AS n",
            (age, age, number),
        )
    maintain(database_url, DAYS)
    assert count(connection, "forbear.idempotency_keys") == 10


def test_maintenance_is_noted(connection: Connection, database_url: str) -> None:
    maintain(database_url, DAYS)
    assert fetch(
        connection, "SELECT forbear.now() - maintained_at < interval '1 minute' AS recent FROM forbear.control"
    ).recent


def test_housekeeping_lets_its_lock_go_before_the_server_notices_that_it_has_hung_up(
    connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_open: list[Connection] = []
    with monkeypatch.context() as slow_server:
        slow_server.setattr(psycopg.Connection, "__exit__", lambda self, *_: left_open.append(self))
        maintain(database_url, DAYS)
    (its_own,) = left_open
    ours = "pid = " + str(its_own.info.backend_pid)
    assert count(connection, f"pg_locks WHERE locktype = 'advisory' AND {ours}") == 0
    its_own.close()
