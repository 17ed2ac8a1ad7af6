"""Events by the API: lists, and one with its payload and where it went."""

from __future__ import annotations

import base64
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from forbear.manage import events
from tests.functions.builders import make_endpoint, move_clock, one, post
from tests.functions.manage.calling import EVENT, Claimer, call, dlv, evt, ok

type Connection = psycopg.Connection[Any]


def listed(tenant: str | None = None, **query: str) -> tuple[list[str], int]:
    """The ids that a list gives over all its pages, and their number."""
    found: list[str] = []
    number = 0
    while True:
        page = ok(call("GET", "/v1/events", tenant=tenant, query=query))
        found += [item["id"] for item in page["items"]]
        number += 1
        if page["next"] is None:
            return found, number
        query["cursor"] = page["next"]


def test_lists_filter_and_page_newest_first(connection: Connection, handlers: pytest.MonkeyPatch) -> None:
    ids = []
    for n in range(6):
        ids += post(connection, b"1", event_type="odd" if n % 2 else "even")
        move_clock(connection, hours=9)
    foreign = post(connection, b"1", tenant="other", event_type="odd")
    shown = [evt(one) for one in reversed(ids)]
    theirs = [evt(one) for one in foreign]
    assert listed("acme", limit="2") == (shown, 3)
    assert listed("acme", limit="200")[0] == shown
    assert listed("other")[0] == theirs
    assert listed(limit="4")[0] == theirs + shown
    assert listed("acme", type="odd", limit="2")[0] == shown[0::2]
    assert listed(type="even")[0] == shown[1::2]
    assert listed("nobody")[0] == []
    at = [item["created_at"] for item in ok(call("GET", "/v1/events", tenant="acme"))["items"]]
    assert listed("acme", since=at[3], until=at[1])[0] == shown[2:4]

    handlers.setattr(events, "LOOK_AT", 2)
    found, number = listed("acme", type="odd", limit="1")
    assert found == shown[0::2]
    assert number == 4  # 3 pages that looked at two events each, and one more to find that there is nothing more


def test_an_event_is_shown_with_the_bytes_that_came_in(connection: Connection) -> None:
    for payload, shown in (
        (b'{"z":1,"a":1.0}', {"text": '{"z":1,"a":1.0}'}),
        ('"\N{GRINNING FACE}"'.encode(), {"text": '"\N{GRINNING FACE}"'}),
        (b"", {"text": ""}),
        (b"\xff\x00", {"base64": base64.b64encode(b"\xff\x00").decode()}),
    ):
        (event_id,) = post(connection, payload)
        event = ok(call("GET", EVENT, evt(event_id)))
        assert event["payload"] == shown
        assert event["payload_bytes"] == len(payload)
        assert (event["tenant"], event["type"], event["content_type"]) == ("acme", "order.paid", "application/json")
        assert event["deliveries"] == {"items": [], "next": None}


def test_a_payload_of_the_largest_size_fits_into_an_answer_whatever_it_is(connection: Connection) -> None:
    import manage  # noqa: PLC0415 - only here
    from tests.functions.events import http_event  # noqa: PLC0415 - only here

    for payload in (b'"' * (1 << 20), b"\x01" * (1 << 20), "é".encode() * (1 << 19), b"\xff" * (1 << 20)):
        (event_id,) = post(connection, payload)
        result = manage.handler(http_event("GET", EVENT, path={"id": evt(event_id)}), None)
        assert result["statusCode"] == 200
        # As the runtime sends it: the body is a JSON string inside JSON, in the worst case all escaped to ASCII.
        import json  # noqa: PLC0415 - only here

        assert len(json.dumps(result)) < 6 << 20


def test_an_event_tells_where_each_delivery_stands(connection: Connection, claimer: Claimer) -> None:
    for _ in range(3):
        make_endpoint(connection, policy={"breaker": {"failures": 10}})
    (event_id,) = post(connection, b"1")
    first, second, _ = claimer.claim()
    claimer.settle(first, "delivered")
    claimer.settle(second, "dead")
    items = ok(call("GET", EVENT, evt(event_id)))["deliveries"]["items"]
    assert sorted((item["status"], item["reason"]) for item in items if item["status"] != "leased") == [
        ("dead", "permanent"), ("delivered", None),
    ]  # fmt: skip
    assert {item["status"] for item in items} == {"dead", "delivered", "leased"}
    assert {item["event_id"] for item in items} == {evt(event_id)}


def test_the_deliveries_of_a_wide_event_page_on(connection: Connection, handlers: pytest.MonkeyPatch) -> None:
    handlers.setattr(events, "DELIVERIES_SHOWN", 2)
    for _ in range(5):
        make_endpoint(connection)
    (event_id,) = post(connection, b"1")
    post(connection, b"2")
    expected = [
        dlv(row[0])
        for row in connection.execute("SELECT id FROM forbear.queue WHERE event_id = %s ORDER BY id DESC", (event_id,))
    ]
    first = ok(call("GET", EVENT, evt(event_id)))["deliveries"]
    rest = ok(call("GET", "/v1/deliveries", query={"event": evt(event_id), "cursor": first["next"]}))
    assert [item["id"] for item in (*first["items"], *rest["items"])] == expected
    assert rest["next"] is None


def test_another_tenants_event_looks_as_if_it_did_not_exist(connection: Connection) -> None:
    make_endpoint(connection, tenant="other")
    (theirs,) = post(connection, b"1", tenant="other")
    assert call("GET", EVENT, evt(theirs), tenant="acme").status == 404
    assert call("GET", EVENT, evt(theirs), tenant="other").status == 200
    assert "there is no event evt_" in call("GET", EVENT, evt(uuid4())).detail
    assert "expected an id of the form evt_" in call("GET", EVENT, "x").detail
    query = {"event": evt(theirs)}
    assert ok(call("GET", "/v1/deliveries", tenant="acme", query=query))["items"] == []
    assert len(ok(call("GET", "/v1/deliveries", tenant="other", query=query))["items"]) == 1
    assert one(connection, "SELECT count(*) FROM forbear.queue") == 1
