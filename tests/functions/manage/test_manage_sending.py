"""Test events and backfills: deliveries that somebody asks an endpoint to be given."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from uuid import UUID

import psycopg

from forbear.ids import Prefix, decode
from tests.functions.builders import make_endpoint, move_clock, one, post
from tests.functions.manage.calling import DELIVERY, ENDPOINT, EVENT, Claimer, call, create, ep, ep_id, evt, ok, rows

type Connection = psycopg.Connection[Any]


def test_a_test_event_goes_to_its_endpoint_only_through_the_queue(connection: Connection, claimer: Claimer) -> None:
    made = create(event_types=["order.*"])
    create()  # subscribes to everything, and gets nothing
    answer = ok(call("POST", f"{ENDPOINT}/test", made["id"]), 202)
    assert one(connection, "SELECT count(*) FROM forbear.claimers") == 1
    (lease,) = claimer.claim()
    assert ep(lease.lane.endpoint_id) == made["id"]
    assert (lease.event_type, lease.content_type) == ("forbear.test", "application/json")
    payload = json.loads(lease.payload)
    event = ok(call("GET", EVENT, answer["event_id"]))
    assert payload == {
        "type": "forbear.test",
        "timestamp": event["created_at"],
        "data": {"endpoint": made["id"]},
    }
    assert event["payload"] == {"text": lease.payload.decode()}
    assert event["tenant"] == "acme"
    claimer.settle(lease, "delivered")
    assert ok(call("GET", DELIVERY, answer["delivery_id"]))["status"] == "delivered"


def test_a_test_event_bears_the_very_time_that_it_is_shown_with(connection: Connection) -> None:
    made = create()
    for _ in range(100):
        event = ok(call("GET", EVENT, ok(call("POST", f"{ENDPOINT}/test", made["id"]), 202)["event_id"]))
        assert json.loads(event["payload"]["text"])["timestamp"] == event["created_at"]


def test_a_test_event_to_a_paused_endpoint_waits(connection: Connection, claimer: Claimer) -> None:
    made = create(paused=True)
    answer = ok(call("POST", f"{ENDPOINT}/test", made["id"]), 202)
    assert claimer.claim() == []
    assert ok(call("GET", DELIVERY, answer["delivery_id"]))["status"] == "pending"


def test_a_test_event_finds_its_partition_after_a_long_sleep(connection: Connection) -> None:
    made = create()
    move_clock(connection, days=100)
    ok(call("POST", f"{ENDPOINT}/test", made["id"]), 202)


def finish_backfill(connection: Connection) -> None:
    """Run the steps that are left, as claimers do."""
    move_clock(connection, minutes=2)  # transactions of other tests, on the same server, are not waited for
    while one(connection, "SELECT count(*) FROM forbear.replays WHERE ended_at IS NULL"):
        connection.execute("SELECT forbear.step_replay(id, 1000) FROM forbear.replays WHERE ended_at IS NULL")


def test_a_backfill_gives_an_endpoint_what_it_did_not_get(connection: Connection, claimer: Claimer) -> None:
    make_endpoint(connection, event_types=("none",))
    post(connection, b"too early")
    move_clock(connection, minutes=1)
    since = one(connection, "SELECT forbear.now()")
    wanted = post(connection, b"1", b"2")
    post(connection, b"other type", event_type="user.created")
    post(connection, b"other tenant", tenant="other")
    move_clock(connection, minutes=1)
    made = create(event_types=["order.*"])
    connection.execute("DELETE FROM forbear.claimers")
    answer = ok(call("POST", f"{ENDPOINT}/backfill", made["id"], body={"since": since.isoformat()}), 202)
    decode(Prefix.REPLAY, answer["id"])
    assert one(connection, "SELECT kind FROM forbear.replays") == "backfill"
    assert one(connection, "SELECT count(*) FROM forbear.claimers") == 1
    finish_backfill(connection)
    got = rows(connection, "SELECT event_id, endpoint_id FROM forbear.queue")
    assert {row["event_id"] for row in got} == set(wanted)
    assert {row["endpoint_id"] for row in got} == {ep_id(made["id"])}
    again = ok(call("POST", f"{ENDPOINT}/backfill", made["id"], body={"since": since.isoformat()}), 202)
    assert again["id"] != answer["id"]
    finish_backfill(connection)
    assert one(connection, "SELECT count(*) FROM forbear.queue") == 2


def test_a_backfill_may_be_narrowed_down(connection: Connection) -> None:
    ids: list[UUID] = []
    for event_type in ("a.x", "a.y", "b"):
        ids += post(connection, b"1", event_type=event_type)
        move_clock(connection, minutes=1)
    made = create()
    until = ok(call("GET", EVENT, evt(ids[2])))["created_at"]
    body = {"since": "2020-01-01T00:00:00Z", "until": until, "types": ["a.y", "b"]}
    ok(call("POST", f"{ENDPOINT}/backfill", made["id"], body=body), 202)
    finish_backfill(connection)
    assert [row["event_id"] for row in rows(connection, "SELECT event_id FROM forbear.queue")] == [ids[1]]


def test_a_wrong_backfill_is_refused(connection: Connection) -> None:
    made = create()
    now = datetime.now().astimezone().isoformat()
    wrong: list[tuple[Any, str]] = [
        ({}, "since: it is missing"),
        ({"since": "yesterday"}, "RFC 3339"),
        ({"since": 0}, "valid datetime"),
        ({"since": now, "until": now}, "since must be before until"),
        ({"since": now, "types": []}, "at least 1 item"),
        ({"since": now, "types": ["a..b"]}, "a subscription is"),
        ({"since": now, "type": "a"}, "there is no such field"),
    ]
    for body, message in wrong:
        answer = call("POST", f"{ENDPOINT}/backfill", made["id"], body=body)
        assert answer.status == 422
        assert message in answer.detail
    assert one(connection, "SELECT count(*) FROM forbear.replays") == 0
