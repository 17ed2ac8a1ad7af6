"""Backfills: deliveries for events that an endpoint did not get, on a real database."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import replay
from forbear.db import Database
from forbear.event_types import EVERYTHING, matching_patterns
from forbear.ids import Prefix, encode
from forbear.replays import start_backfill
from tests.functions.builders import make_endpoint, move_clock, one, post
from tests.functions.events import body_of, http_event
from tests.functions.finished import attempt_all, make_finished, reads

type Connection = psycopg.Connection[Any]
type Connect = Callable[[], Connection]

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
PATIENCE_S = 30


def backfill(
    connection: Connection,
    endpoint_id: UUID,
    *,
    since: datetime = LONG_AGO,
    until: datetime | None = None,
    types: list[str] | None = None,
) -> UUID:
    """Start a backfill as the management API does, and run its steps to the end."""
    backfill_id = start(connection, endpoint_id, since=since, until=until, types=types)
    finish(connection, backfill_id)
    return backfill_id


def start(
    connection: Connection,
    endpoint_id: UUID,
    *,
    since: datetime = LONG_AGO,
    until: datetime | None = None,
    types: list[str] | None = None,
) -> UUID:
    database = database_of(connection)
    try:
        return start_backfill(database, endpoint_id, since, until, types)
    finally:
        database.close()


def database_of(connection: Connection) -> Database:
    """The same database, by a connection of its own."""
    info = connection.info
    return Database(f"postgresql://{info.user}:{info.password}@{info.host}:{info.port}/{info.dbname}")


def finish(connection: Connection, backfill_id: UUID, limit: int = 1000) -> None:
    """Run a backfill's steps to the end, however often the first one must wait."""
    deadline = time.monotonic() + PATIENCE_S
    while one(connection, "SELECT forbear.step_replay(%s, %s)", backfill_id, limit) is not None:
        assert time.monotonic() < deadline


def got(connection: Connection, endpoint_id: UUID) -> list[UUID]:
    """The events of which an endpoint has a delivery, once for each, in the order in which they are due."""
    return [
        row[0]
        for row in connection.execute(
            "SELECT event_id FROM forbear.deliveries WHERE endpoint_id = %s ORDER BY due_at, id", (endpoint_id,)
        )
    ]


def counts(connection: Connection, backfill_id: UUID) -> tuple[str, int, int]:
    row = connection.execute(
        "SELECT state, matched, unchanged FROM forbear.replays WHERE id = %s", (backfill_id,)
    ).fetchone()
    assert row is not None
    state, matched, unchanged = row
    return state, matched, unchanged


def test_an_endpoint_gets_the_events_that_it_did_not_get_and_no_others(
    connection: Connection, database_url: str
) -> None:
    first = make_endpoint(connection)
    missed = post(connection, b"1", b"22") + post(connection, b"3", event_type="order.refunded.late")
    post(connection, b"{}", event_type="user.made")
    post(connection, b"{}", event_type="forbear.test")
    post(connection, b"{}", tenant="other")
    new = make_endpoint(connection, event_types=("order.*", "forbear.*"))
    had = post(connection, b"{}")
    attempt_all(database_url, "delivered")
    had += post(connection, b"{}")

    backfill_id = backfill(connection, new)

    assert counts(connection, backfill_id) == ("done", 3, 2)
    assert sorted(got(connection, new)) == sorted(missed + had)
    rows = connection.execute(
        "SELECT event_id, generation, attempts, payload_bytes, replay_id, due_at <= forbear.now() FROM forbear.queue"
        " WHERE replay_id IS NOT NULL ORDER BY due_at"
    ).fetchall()
    sizes = dict(zip(missed, (1, 2, 1), strict=True))
    assert rows == [(event_id, 1, 0, sizes[event_id], backfill_id, True) for event_id in sorted(missed)]
    assert len(got(connection, first)) == 7
    assert len(attempt_all(database_url, "delivered")) == 5

    # Once more changes nothing: what was delivered meanwhile counts as well.
    assert counts(connection, backfill(connection, new)) == ("done", 0, 5)


def test_types_and_times_narrow_it_down(connection: Connection) -> None:
    connection.execute("UPDATE forbear.clock SET frozen_at = '2030-01-01 12:00Z'")
    connection.execute("SELECT forbear.make_partitions(forbear.now(), 2)")
    ids = {}
    for minute in range(3):
        connection.execute(
            "UPDATE forbear.clock SET frozen_at = '2030-01-01 12:00Z'::timestamptz + %s::interval",
            (f"{minute} minutes",),
        )
        for kind in ("a", "a.b", "a.c"):
            (ids[minute, kind],) = post(connection, b"{}", event_type=kind)
    at = [datetime(2030, 1, 1, 12, minute, tzinfo=UTC) for minute in range(3)]

    def taken(**narrowed: Any) -> set[tuple[int, str]]:
        endpoint_id = make_endpoint(connection, event_types=("a", "a.*"))
        backfill(connection, endpoint_id, **narrowed)
        events = got(connection, endpoint_id)
        assert len(set(events)) == len(events)
        return {name for name, event_id in ids.items() if event_id in events}

    assert taken() == set(ids)
    assert taken(since=at[1]) == {name for name in ids if name[0] >= 1}
    assert taken(since=at[1], until=at[2]) == {name for name in ids if name[0] == 1}
    assert taken(until=at[1], types=["a.*"]) == {(0, "a.b"), (0, "a.c")}
    assert taken(types=["a.b", "a", "nothing"]) == {name for name in ids if name[1] != "a.c"}
    assert taken(types=["*"]) == set(ids)


def test_an_event_that_is_stale_by_now_stays_out_and_another_keeps_its_end(connection: Connection) -> None:
    now = datetime.now(UTC)
    post(connection, b"{}", expires_at=now + timedelta(minutes=1))
    (good,) = post(connection, b"{}", expires_at=now + timedelta(hours=1))
    move_clock(connection, minutes=2)
    new = make_endpoint(connection)
    assert counts(connection, backfill(connection, new)) == ("done", 1, 1)
    assert connection.execute("SELECT event_id, expires_at FROM forbear.queue").fetchall() == [
        (good, now + timedelta(hours=1))
    ]


def test_two_backfills_at_once_make_each_delivery_once(connection: Connection, connect: Connect) -> None:
    for _ in range(4):
        post(connection, *[b"{}"] * 400)
    new = make_endpoint(connection)
    connections = [connect() for _ in range(3)]
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda own: backfill(own, new), connections))
    events = got(connection, new)
    assert (len(events), len(set(events))) == (1600, 1600)
    assert one(connection, "SELECT sum(matched) FROM forbear.replays") == 1600


def test_an_event_that_is_being_taken_in_when_the_endpoint_is_made_is_not_missed(
    connection: Connection, connect: Connect
) -> None:
    """Its ingest did not see the endpoint, and the backfill does not see the event before the commit: so it waits."""
    producer = connect()
    with producer.transaction():
        (event_id,) = post(producer, b"{}")
        new = make_endpoint(connection)
        backfill_id = start(connection, new)
        assert one(connection, "SELECT forbear.step_replay(%s, 1000)", backfill_id) == 0
        assert counts(connection, backfill_id) == ("waiting", 0, 0)
        assert one(connection, "SELECT step_at > created_at FROM forbear.replays")
    finish(connection, backfill_id)
    assert got(connection, new) == [event_id]


def test_a_foreign_transaction_holds_a_backfill_up_for_a_minute_at_most(
    connection: Connection, connect: Connect
) -> None:
    post(connection, b"{}")
    new = make_endpoint(connection)
    other = connect()
    with other.transaction():
        one(other, "SELECT count(*) FROM forbear.subscriptions")
        backfill_id = start(connection, new)
        assert one(connection, "SELECT forbear.step_replay(%s, 1000)", backfill_id) == 0
        move_clock(connection, seconds=61)
        finish(connection, backfill_id)
        assert len(got(connection, new)) == 1


def test_a_large_one_goes_in_steps_that_read_their_share(connection: Connection) -> None:
    """By the server's own counters, among as many events of somebody else."""
    make_finished(connection, make_endpoint(connection, tenant="other"), 10_000, attempts=0)
    make_finished(connection, make_endpoint(connection), 10_000, attempts=0)
    new = make_endpoint(connection, event_types=("order.*",))
    events = [row[0] for row in connection.execute("SELECT id FROM forbear.events WHERE tenant = 'acme' ORDER BY id")]
    backfill_id = start(connection, new)
    made = one(connection, "SELECT matched FROM forbear.replays")
    assert made <= 5000
    for _ in range(3):
        with connection.transaction():
            before = reads(connection)
            assert one(connection, "SELECT forbear.step_replay(%s, 1000)", backfill_id) in {0, 1000}
            read = reads(connection) - before
        assert read.scanned == 0
        assert read.most_fetched <= 1100
        assert read.index_blocks <= 40_000
    finish(connection, backfill_id)
    assert counts(connection, backfill_id) == ("done", 10_000, 0)
    assert got(connection, new) == events
    assert one(connection, "SELECT count(*) FROM forbear.wakes") <= 11


def test_of_days_whose_history_is_gone_nothing_is_taken(connection: Connection) -> None:
    """Nobody knows any more whether such an event was delivered, and it may be about to go."""
    endpoint_id = make_endpoint(connection)
    day = 86_400.0
    make_finished(connection, endpoint_id, state="delivered", made_ago_s=40 * day, ended_ago_s=40 * day - 9)
    (kept,) = make_finished(connection, endpoint_id, state="delivered", made_ago_s=20 * day, ended_ago_s=20 * day - 9)
    oldest = (datetime.now(UTC) - timedelta(days=40)).strftime("%Y%m%d")
    following = (datetime.now(UTC) - timedelta(days=39)).strftime("%Y%m%d")
    connection.execute(f"DROP TABLE forbear.history_{oldest}, forbear.history_{following}".encode())
    new = make_endpoint(connection)
    backfill(connection, new)
    assert got(connection, new) == [one(connection, "SELECT event_id FROM forbear.history WHERE id = %s", kept)]
    assert counts(connection, backfill(connection, endpoint_id)) == ("done", 0, 1)


def test_a_backfill_of_a_deleted_endpoint_ends_with_nothing(connection: Connection) -> None:
    post(connection, b"{}")
    new = make_endpoint(connection)
    connection.execute("UPDATE forbear.endpoints SET deleted_at = forbear.now() WHERE id = %s", (new,))
    assert counts(connection, backfill(connection, new)) == ("done", 0, 0)


@pytest.mark.usefixtures("handlers")
def test_a_backfill_is_read_and_cancelled_as_a_replay_is(connection: Connection, database_url: str) -> None:
    post(connection, b"{}", b"{}")
    new = make_endpoint(connection)
    backfill_id = encode(Prefix.REPLAY, backfill(connection, new, types=["order.*"]))
    event = {"routeKey": "$default"}
    reading = body_of(replay.handler(http_event("GET", "/", query={"id": backfill_id, "tenant": "acme"}) | event, None))
    assert (reading["kind"], reading["state"], reading["matched"]) == ("backfill", "done", 2)
    assert reading["still_pending"] == {"count": 2, "more": False}
    assert reading["filter"] == {
        "tenant": "acme",
        "endpoint": encode(Prefix.ENDPOINT, new),
        "types": ["order.*"],
        "since": "2020-01-01T00:00:00.000Z",
        "until": None,
    }
    cancelled = body_of(replay.handler(http_event("DELETE", "/", query={"id": backfill_id}) | event, None))
    assert (cancelled["state"], cancelled["cancelled"]) == ("cancelled", 2)
    assert attempt_all(database_url, "delivered") == []


segments = st.text("ab_-", min_size=1, max_size=2)
names = st.lists(segments, min_size=1, max_size=4).map(".".join)
patterns = st.one_of(names, names.map("{}.*".format), st.just(EVERYTHING))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(["a", "ab", "a.b", "a.bc", "a_b", "a%"], [["a.*"], ["a"], ["a_b", "ab.*"], ["*"], ["a.b.*"]])
@given(
    st.lists(names, min_size=1, max_size=8),
    st.lists(st.lists(patterns, min_size=1, max_size=4), min_size=1, max_size=8),
)
def test_the_database_matches_types_with_patterns_as_ingest_does(
    connection: Connection, types: list[str], subscriptions: list[list[str]]
) -> None:
    pairs = [(name, subscription) for name in types for subscription in subscriptions]
    for name, subscription in pairs:
        expected = not set(subscription).isdisjoint(matching_patterns(name))
        assert one(connection, "SELECT forbear.type_matches(%s, %s)", name, subscription) is expected
