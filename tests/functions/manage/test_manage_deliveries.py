"""Deliveries by the API: lists with their filters and pages, and one with all its evidence."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from forbear.manage import deliveries
from tests.functions.builders import make_endpoint, move_clock, one, post
from tests.functions.manage.calling import (
    DELIVERY,
    ENDPOINT,
    URL,
    Claimer,
    call,
    create,
    dlv,
    ep,
    evt,
    ok,
)

type Connection = psycopg.Connection[Any]


def listed(tenant: str | None = None, **query: str) -> list[str]:
    """The ids that a list gives, over all its pages."""
    found, _ = pages(tenant, **query)
    return found


def pages(tenant: str | None = None, **query: str) -> tuple[list[str], int]:
    found: list[str] = []
    number = 0
    cursor: Mapping[str, str] = {}
    while True:
        page = ok(call("GET", "/v1/deliveries", tenant=tenant, query={**query, **cursor}))
        found += [item["id"] for item in page["items"]]
        number += 1
        if page["next"] is None:
            return found, number
        cursor = {"cursor": page["next"]}


def newest_first(ids: list[UUID]) -> list[str]:
    return [dlv(one) for one in sorted(ids, reverse=True)]


@pytest.fixture
def mixed(connection: Connection, claimer: Claimer) -> dict[str, list[UUID]]:
    """Deliveries of one endpoint in every state, by state; the endpoint itself under "endpoint"."""
    endpoint_id = make_endpoint(connection, policy={"breaker": {"failures": 10_000}})
    post(connection, *[b"d"] * 5)
    delivered = claimer.finish("delivered")
    post(connection, *[b"x"] * 4, event_type="order.refused")
    dead = claimer.finish("dead")
    post(connection, b"e")
    (lease,) = claimer.claim()
    claimer.settle(lease, "dead", reason="exhausted")
    post(connection, b"l", b"l")
    leased = [lease.delivery_id for lease in claimer.claim()]
    post(connection, *[b"p"] * 3)
    pending = [row[0] for row in connection.execute("SELECT id FROM forbear.queue WHERE lease_token IS NULL")]
    cancelled = pending[:1]
    ok(call("POST", "/v1/deliveries/cancel", body={"deliveries": [dlv(cancelled[0])]}))
    return {
        "endpoint": [endpoint_id],
        "delivered": delivered,
        "dead": [*dead, lease.delivery_id],
        "exhausted": [lease.delivery_id],
        "refused": dead,
        "leased": leased,
        "pending": pending[1:],
        "cancelled": cancelled,
    }


def test_every_filter_gives_what_it_says_newest_first_in_pages_of_any_size(
    connection: Connection, mixed: dict[str, list[UUID]], subtests: pytest.Subtests
) -> None:
    states = ("pending", "leased", "delivered", "dead", "cancelled")
    everything = [one for state in states for one in mixed[state]]
    endpoint = ep(mixed["endpoint"][0])
    make_endpoint(connection, tenant="other", event_types=("x",))
    (event,) = post(connection, b"1", tenant="other", event_type="x")
    other = one(connection, "SELECT id FROM forbear.queue WHERE event_id = %s", event)
    cases: list[tuple[dict[str, str], list[UUID]]] = [
        ({}, everything),
        *(({"status": state}, mixed[state]) for state in states),
        ({"reason": "exhausted"}, mixed["exhausted"]),
        ({"reason": "permanent", "status": "dead"}, mixed["refused"]),
        ({"reason": "permanent", "status": "delivered"}, []),
        ({"reason": "gone"}, []),
        ({"type": "order.refused"}, mixed["refused"]),
        ({"type": "order.refused", "status": "delivered"}, []),
        ({"type": "order.paid", "status": "dead"}, mixed["exhausted"]),
    ]
    for scope in ({"endpoint": endpoint}, {"tenant": "acme"}, {"endpoint": endpoint, "tenant": "acme"}):
        for query, expected in cases:
            for limit in ("4", "200"):
                with subtests.test(scope=scope, query=query, limit=limit):
                    assert listed(**scope, **query, limit=limit) == newest_first(expected)
    for query, expected in cases:
        theirs = [other] if query in ({}, {"status": "pending"}) else []
        with subtests.test(query=query):
            assert listed(**query, limit="4") == newest_first([*expected, *theirs])
    assert listed(endpoint=endpoint, tenant="other") == []


def test_bounds_end_a_page_early_but_nothing_is_left_out(
    mixed: dict[str, list[UUID]], handlers: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    handlers.setattr(deliveries, "LOOK_AT", 3)
    handlers.setattr(deliveries, "SORT_AT_MOST", 2)
    handlers.setattr(deliveries, "WALK_AT_MOST", 2)
    endpoint = ep(mixed["endpoint"][0])
    everything = [one for state in ("pending", "leased", "delivered", "dead", "cancelled") for one in mixed[state]]
    for scope in ({"endpoint": endpoint}, {"tenant": "acme"}, {}):
        for query, expected in (
            ({}, everything),
            ({"status": "dead"}, mixed["dead"]),
            ({"status": "delivered"}, mixed["delivered"]),
            ({"status": "leased"}, mixed["leased"]),
            ({"status": "pending"}, mixed["pending"]),
            ({"type": "order.refused"}, mixed["refused"]),
        ):
            with subtests.test(scope=scope, query=query):
                found, number = pages(**scope, **query, limit="2")
                assert found == newest_first(expected)
                assert number > 1


def test_pages_do_not_shift_while_deliveries_come_and_end(connection: Connection, claimer: Claimer) -> None:
    endpoint = ep(make_endpoint(connection))
    post(connection, *[b"1"] * 10)
    before = [row[0] for row in connection.execute("SELECT id FROM forbear.queue")]
    seen: list[str] = []
    query = {"endpoint": endpoint, "limit": "3"}
    while True:
        page = ok(call("GET", "/v1/deliveries", query=query))
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        query["cursor"] = page["next"]
        post(connection, b"new", b"new")
        for lease in claimer.claim(slots=8):
            claimer.settle(lease, "delivered")
    assert seen == newest_first(before)


def test_a_range_of_time_takes_what_was_made_in_it(connection: Connection, claimer: Claimer) -> None:
    endpoint = ep(make_endpoint(connection))
    made: list[UUID] = []
    for minute in range(4):
        post(connection, b"1")
        made.append(one(connection, "SELECT id FROM forbear.queue ORDER BY id DESC LIMIT 1"))
        if minute == 1:
            claimer.finish()
        move_clock(connection, minutes=1)
    at = [datetime.fromisoformat(ok(call("GET", DELIVERY, dlv(id_)))["created_at"]) for id_ in made]
    since, until = at[1].isoformat(), at[3].isoformat()
    for scope in ({"endpoint": endpoint}, {}):
        assert listed(**scope, since=since, until=until) == newest_first(made[1:3])
        assert listed(**scope, since=since) == newest_first(made[1:])
        assert listed(**scope, until=until, status="pending") == newest_first([made[2]])
        assert listed(**scope, since=(at[3] + timedelta(milliseconds=1)).isoformat()) == []
        assert listed(**scope, since=until, until=since) == []


def test_wrong_filters_are_named(subtests: pytest.Subtests) -> None:
    wrong: list[tuple[dict[str, str], int, str]] = [
        ({"status": "held"}, 422, "'pending', 'leased', 'delivered', 'dead' or 'cancelled'"),
        ({"reason": "bad luck"}, 422, "'exhausted'"),
        ({"type": "a..b"}, 422, "an event type is"),
        ({"type": "a\0"}, 422, "an event type is"),
        ({"since": "yesterday"}, 422, "RFC 3339"),
        ({"since": "1700000000"}, 422, "RFC 3339"),
        ({"until": "2026-01-01T00:00:00"}, 422, "RFC 3339"),
        ({"until": "1969-01-01T00:00:00Z"}, 422, "RFC 3339"),
        ({"endpoint": "evt_01h455vb4pex5vsknk084sn02q"}, 422, "expected an id of the form ep_"),
        ({"event": "x"}, 422, "expected an id of the form evt_"),
        ({"limit": "1000"}, 422, "less than or equal to 200"),
        ({"cursor": "zzz"}, 400, "not one of this list"),
        ({"statuss": "dead"}, 422, "there is no such field"),
    ]
    for query, status, message in wrong:
        with subtests.test(query=query):
            answer = call("GET", "/v1/deliveries", query=query)
            assert answer.status == status
            assert message in answer.detail


def test_a_cursor_of_another_list_is_refused(connection: Connection) -> None:
    make_endpoint(connection)
    make_endpoint(connection)
    cursor = ok(call("GET", "/v1/endpoints", query={"limit": "1"}))["next"]
    assert call("GET", "/v1/deliveries", query={"cursor": cursor}).status == 400


def test_a_delivery_shows_every_attempt_with_its_evidence(connection: Connection, claimer: Claimer) -> None:
    made = create(headers={"x-key": "s3cret"})
    (event,) = post(connection, b'{"z":1}', event_type="order.paid")
    (lease,) = claimer.claim()
    claimer.settle(
        lease,
        "retry",
        status=503,
        delay_s=30,
        response_headers=b"retry-after: 30\r\nx: \xff\x01\r\n",
        response_body=b"\x1f\x8b\x08\x00a\x00b",
        retry_after_s=30.0,
        retry_after_honoured=True,
    )
    move_clock(connection, seconds=31)
    (lease,) = claimer.claim()
    claimer.settle(lease, "retry", status=None, error="tls", error_detail="certificate has expired", response_body=b"")
    waiting = ok(call("GET", DELIVERY, dlv(lease.delivery_id)))
    assert (waiting["status"], waiting["attempt_count"]) == ("pending", 2)
    assert waiting["attempts"][0]["next_due_at"] == waiting["due_at"]
    move_clock(connection, seconds=61)
    (lease,) = claimer.claim()
    assert ok(call("GET", DELIVERY, dlv(lease.delivery_id)))["status"] == "leased"
    claimer.settle(lease, "delivered", response_body="grüße\n".encode())

    shown = ok(call("GET", DELIVERY, dlv(lease.delivery_id)))
    assert {key: value for key, value in shown.items() if not key.endswith("_at")} | {"attempts": []} == {
        "id": dlv(lease.delivery_id),
        "event_id": evt(event),
        "endpoint_id": made["id"],
        "tenant": "acme",
        "type": "order.paid",
        "status": "delivered",
        "reason": None,
        "generation": 1,
        "attempt_count": 3,
        "payload_bytes": 7,
        "replay_id": None,
        "held": [],
        "attempts": [],
        "next": None,
    }
    third, second, first = shown["attempts"]
    assert [attempt["number"] for attempt in shown["attempts"]] == [3, 2, 1]
    assert {key: value for key, value in first.items() if not key.endswith("_at")} == {
        "number": 1,
        "generation": 1,
        "latency_ms": 250.0,
        "url": URL,
        "address": "192.0.2.7:443",
        "request_headers": {"text": "webhook-id: x\r\nx-key: ***"},
        "status": 503,
        "response_headers": {"base64": base64.b64encode(b"retry-after: 30\r\nx: \xff\x01\r\n").decode()},
        "response_body": {"base64": base64.b64encode(b"\x1f\x8b\x08\x00a\x00b").decode()},
        "error": None,
        "error_detail": "",
        "verdict": "retry",
        "retry_after_s": 30.0,
        "retry_after_honoured": True,
        "late": False,
    }
    assert (second["status"], second["error"], second["error_detail"]) == (None, "tls", "certificate has expired")
    assert (third["verdict"], third["response_body"]) == ("success", {"text": "grüße\n"})
    assert shown["due_at"] is None
    assert shown["ended_at"] >= third["started_at"] > second["started_at"] > shown["created_at"]


def test_text_with_control_characters_is_shown_as_base64(connection: Connection, claimer: Claimer) -> None:
    make_endpoint(connection)
    post(connection, b"1")
    (lease,) = claimer.claim()
    claimer.settle(lease, "delivered", response_body=b"a\x00b")
    (attempt,) = ok(call("GET", DELIVERY, dlv(lease.delivery_id)))["attempts"]
    assert attempt["response_body"] == {"base64": base64.b64encode(b"a\x00b").decode()}


def test_many_attempts_come_in_pages_that_a_lambda_can_answer(connection: Connection, claimer: Claimer) -> None:
    make_endpoint(connection)
    post(connection, b"1")
    (lease,) = claimer.claim()
    claimer.settle(lease, "retry", response_body=b'"' * 16384, response_headers=b'"' * 8192)
    connection.execute(
        "INSERT INTO forbear.queue_attempts SELECT a.delivery_id, n, a.generation, a.started_at, a.latency_ms, a.url,"
        " a.address, a.request_headers, a.status, a.response_headers, a.response_body, a.error, a.error_detail,"
        " a.verdict, a.retry_after_s, a.retry_after_honoured, a.next_due_at, a.late"
        " FROM forbear.queue_attempts a, generate_series(2, 90) n"
    )
    item = dlv(lease.delivery_id)
    seen: list[int] = []
    query: dict[str, str] = {}
    while True:
        answer = call("GET", DELIVERY, item, query=query)
        page = ok(answer)
        seen += [attempt["number"] for attempt in page["attempts"]]
        if page["next"] is None:
            break
        query = {"cursor": page["next"]}
    assert seen == list(range(90, 0, -1))
    assert call("GET", DELIVERY, item, query={"cursor": "zzz"}).status == 400


def test_another_tenants_delivery_looks_as_if_it_did_not_exist(connection: Connection) -> None:
    make_endpoint(connection, tenant="other")
    post(connection, b"1", tenant="other")
    theirs = dlv(one(connection, "SELECT id FROM forbear.queue"))
    assert call("GET", DELIVERY, theirs, tenant="acme").status == 404
    assert call("GET", DELIVERY, theirs, tenant="other").status == 200
    assert call("GET", DELIVERY, dlv(uuid4())).detail.startswith("there is no delivery dlv_")
    assert call("GET", DELIVERY, "ep_01h455vb4pex5vsknk084sn02q").status == 404
    assert listed("acme") == []
    assert listed("other") == [theirs]


def test_deliveries_of_a_deleted_endpoint_stay_in_its_tenants_list(connection: Connection, claimer: Claimer) -> None:
    made = create()
    post(connection, b"1")
    ids = newest_first(claimer.finish())
    call("DELETE", ENDPOINT, made["id"])
    assert listed("acme") == listed(endpoint=made["id"]) == ids
