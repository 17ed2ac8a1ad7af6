"""Cancelling by the API: by ids and by filter, in steps, beside claimers at work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from forbear.ids import Prefix, encode
from forbear.manage import cancelling
from tests.functions.builders import make_endpoint, move_clock, one, post
from tests.functions.manage.calling import DELIVERY, Claimer, call, dlv, ep, ok, rows, wait_for_a_waiter

type Connection = psycopg.Connection[Any]


def cancel(body: Any, tenant: str | None = None) -> Any:
    return ok(call("POST", "/v1/deliveries/cancel", body=body, tenant=tenant))


def queued(connection: Connection) -> list[UUID]:
    return [row["id"] for row in rows(connection, "SELECT id FROM forbear.queue ORDER BY due_at, id")]


def test_ids_are_cancelled_whether_they_wait_or_are_being_sent(connection: Connection, claimer: Claimer) -> None:
    make_endpoint(connection)
    make_endpoint(connection)
    post(connection, b"1")
    done, *_ = claimer.finish()
    post(connection, b"2")
    leased = claimer.claim()
    post(connection, b"3")
    ids = [done, *queued(connection)]
    unknown = uuid4()
    answer = cancel({"deliveries": [dlv(one) for one in (*ids, ids[1], unknown)]})
    assert answer == {"cancelled": 4, "unchanged": 1, "unknown": [dlv(unknown)], "next": None}
    assert queued(connection) == []
    assert cancel({"deliveries": [dlv(one) for one in ids]}) == {
        "cancelled": 0, "unchanged": 5, "unknown": [], "next": None,
    }  # fmt: skip

    claimer.settle(leased[0], "retry")
    shown = ok(call("GET", DELIVERY, dlv(leased[0].delivery_id)))
    assert shown["status"] == "cancelled"
    assert [attempt["late"] for attempt in shown["attempts"]] == [True]


def test_attempts_made_before_stay_as_evidence(connection: Connection, claimer: Claimer) -> None:
    make_endpoint(connection)
    post(connection, b"1")
    (lease,) = claimer.claim()
    claimer.settle(lease, "retry")
    cancel({"deliveries": [dlv(lease.delivery_id)]})
    shown = ok(call("GET", DELIVERY, dlv(lease.delivery_id)))
    assert (shown["status"], shown["reason"], shown["attempt_count"]) == ("cancelled", None, 1)
    assert [attempt["status"] for attempt in shown["attempts"]] == [500]
    move_clock(connection, hours=1)
    assert claimer.claim() == []


def test_a_filter_takes_what_it_says_and_nothing_else(connection: Connection, claimer: Claimer) -> None:
    mine, other = make_endpoint(connection), make_endpoint(connection)
    foreign = make_endpoint(connection, tenant="other")
    post(connection, b"1", b"1", event_type="a")
    post(connection, b"1", event_type="b")
    post(connection, b"1", tenant="other", event_type="a")

    def left() -> dict[tuple[UUID, str], int]:
        found = rows(
            connection,
            "SELECT q.endpoint_id, e.type, count(*) FROM forbear.queue q JOIN forbear.events e ON e.id = q.event_id"
            " GROUP BY 1, 2",
        )
        return {(row["endpoint_id"], row["type"]): row["count"] for row in found}

    claimer.claim(slots=3)
    assert cancel({"filter": {"endpoint": ep(mine), "type": "a"}})["cancelled"] == 2
    assert left() == {(mine, "b"): 1, (other, "a"): 2, (other, "b"): 1, (foreign, "a"): 1}
    assert cancel({"filter": {"endpoint": ep(mine), "tenant": "other"}})["cancelled"] == 0
    assert cancel({"filter": {"tenant": "acme"}})["cancelled"] == 4
    assert left() == {(foreign, "a"): 1}
    assert cancel({"filter": {"tenant": "acme"}})["cancelled"] == 0


def test_a_filter_by_time_takes_what_was_made_then(connection: Connection) -> None:
    make_endpoint(connection)
    for _ in range(3):
        post(connection, b"1")
        move_clock(connection, minutes=1)
    at = [item["created_at"] for item in ok(call("GET", "/v1/deliveries"))["items"]][::-1]
    assert cancel({"filter": {"tenant": "acme", "since": at[1], "until": at[2]}})["cancelled"] == 1
    states = [item["status"] for item in ok(call("GET", "/v1/deliveries"))["items"]]
    assert states == ["pending", "cancelled", "pending"]


def test_a_large_cancellation_goes_on_where_it_stopped(
    connection: Connection, handlers: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    handlers.setattr(cancelling, "STEP", 10)
    handlers.setattr(cancelling, "CANCEL_AT_MOST", 25)
    handlers.setattr(cancelling, "LOOK_AT_MOST", 40)
    handlers.setattr(cancelling, "LANE_COSTS", 1)
    make_endpoint(connection)
    make_endpoint(connection)
    post(connection, *[b"1"] * 55, event_type="many")
    post(connection, b"1", event_type="rare")
    for wanted, expected in ({"type": "rare"}, 2), ({}, 110):
        with subtests.test(wanted=wanted):
            body: dict[str, Any] = {"filter": {"tenant": "acme", **wanted}}
            cancelled, calls = 0, 0
            while True:
                answer = cancel(body)
                assert answer["cancelled"] <= 25 + 10
                cancelled += answer["cancelled"]
                calls += 1
                if answer["next"] is None:
                    break
                body["cursor"] = answer["next"]
            assert (cancelled, calls > 1) == (expected, True)
    assert queued(connection) == []


def test_many_lanes_with_little_are_bounded_too(connection: Connection, handlers: pytest.MonkeyPatch) -> None:
    handlers.setattr(cancelling, "LOOK_AT_MOST", 2 * cancelling.LANE_COSTS)
    for _ in range(5):
        make_endpoint(connection)
    post(connection, b"1")
    counts = []
    body: dict[str, Any] = {"filter": {"tenant": "acme"}}
    while "cursor" not in body or body["cursor"] is not None:
        answer = cancel(body)
        counts.append(answer["cancelled"])
        body["cursor"] = answer["next"]
    assert counts == [2, 2, 1]


def test_deliveries_that_are_due_at_the_same_instant_are_all_found(
    connection: Connection, handlers: pytest.MonkeyPatch
) -> None:
    handlers.setattr(cancelling, "STEP", 3)
    make_endpoint(connection)
    post(connection, *[b"1"] * 10, event_type="a")
    post(connection, b"1", event_type="b")
    connection.execute("UPDATE forbear.queue SET due_at = '2030-01-01'")
    assert cancel({"filter": {"tenant": "acme", "type": "b"}})["cancelled"] == 1
    assert cancel({"filter": {"tenant": "acme"}})["cancelled"] == 10


@pytest.mark.parametrize("by", ["ids", "filter"])
def test_what_is_being_settled_is_tried_again_and_not_waited_for(
    connection: Connection,
    connect: Callable[[], Connection],
    claimer: Claimer,
    handlers: pytest.MonkeyPatch,
    by: str,
) -> None:
    handlers.setattr(cancelling, "TRIES", 1_000_000)
    make_endpoint(connection)
    post(connection, b"1", b"2")
    first, second = claimer.claim()
    settling = connect()
    body = (
        {"deliveries": [dlv(first.delivery_id), dlv(second.delivery_id)]}
        if by == "ids"
        else {"filter": {"tenant": "acme"}}
    )
    with ThreadPoolExecutor(1) as pool:
        with settling.transaction():
            settling.execute("SELECT FROM forbear.queue WHERE id = %s FOR UPDATE", (first.delivery_id,))
            cancelling_ = pool.submit(cancel, body)
            while one(connection, "SELECT count(*) FROM forbear.queue") == 2:
                pass  # the other one is not held up
        assert cancelling_.result()["cancelled"] == 2


def test_what_is_being_settled_for_long_is_told(
    connection: Connection, connect: Callable[[], Connection], claimer: Claimer, handlers: pytest.MonkeyPatch
) -> None:
    handlers.setattr(cancelling, "TRIES", 3)
    make_endpoint(connection)
    post(connection, b"1", b"2")
    first, second = claimer.claim()
    settling = connect()
    ids = [dlv(first.delivery_id), dlv(second.delivery_id)]
    with settling.transaction():
        settling.execute("SELECT FROM forbear.queue WHERE id = %s FOR UPDATE", (first.delivery_id,))
        answer = call("POST", "/v1/deliveries/cancel", body={"deliveries": ids})
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        unfinished = cancel({"filter": {"tenant": "acme"}})
        assert unfinished["cancelled"] == 0
    assert cancel({"filter": {"tenant": "acme"}, "cursor": unfinished["next"]})["cancelled"] == 1
    assert cancel({"deliveries": ids})["unchanged"] == 2


def test_cancelling_waits_for_a_claim_and_takes_what_it_leased(
    connection: Connection, connect: Callable[[], Connection]
) -> None:
    make_endpoint(connection)
    post(connection, *[b"1"] * 20)
    claiming = connect()
    with ThreadPoolExecutor(1) as pool:
        with claiming.transaction():
            claiming.execute("SELECT FROM forbear.claim(10, 1000000, 10)")
            answer = pool.submit(cancel, {"filter": {"tenant": "acme"}})
            wait_for_a_waiter(connection)
        assert answer.result()["cancelled"] == 20
    assert queued(connection) == []


def test_claims_settles_and_cancellations_at_once_lose_and_double_nothing(
    connection: Connection, database_url: str
) -> None:
    for _ in range(3):
        make_endpoint(connection, policy={"breaker": {"failures": 10_000}})
    for _ in range(20):
        post(connection, *[b"1"] * 10)
    total = one(connection, "SELECT count(*) FROM forbear.queue")

    def work(outcome: str) -> None:
        claimer = Claimer(database_url)
        for _ in range(15):
            for lease in claimer.claim(slots=20):
                claimer.settle(lease, outcome, delay_s=0)
        claimer.close()

    with ThreadPoolExecutor(2) as pool:
        working = [pool.submit(work, outcome) for outcome in ("retry", "delivered")]
        cancelled = 0
        while not all(one.done() for one in working):
            ids = [row["id"] for row in rows(connection, "SELECT id FROM forbear.queue ORDER BY random() LIMIT 5")]
            if ids:
                answer = call("POST", "/v1/deliveries/cancel", body={"deliveries": [dlv(one) for one in ids]})
                cancelled += ok(answer)["cancelled"]
        for one_done in working:
            one_done.result()
    ended = one(connection, "SELECT count(*) FROM forbear.history")
    assert one(connection, "SELECT count(DISTINCT id) FROM forbear.deliveries") == total
    assert ended + one(connection, "SELECT count(*) FROM forbear.queue") == total
    assert one(connection, "SELECT count(*) FROM forbear.history WHERE state = 'cancelled'") == cancelled > 0


def test_another_tenants_deliveries_are_unknown(connection: Connection) -> None:
    make_endpoint(connection)
    theirs = make_endpoint(connection, tenant="other")
    post(connection, b"1")
    post(connection, b"1", tenant="other")
    found = rows(connection, "SELECT id, endpoint_id FROM forbear.queue")
    foreign = next(row["id"] for row in found if row["endpoint_id"] == theirs)
    own = next(row["id"] for row in found if row["endpoint_id"] != theirs)
    answer = call("POST", "/v1/deliveries/cancel", body={"deliveries": [dlv(foreign)]}, tenant="acme")
    assert answer.status == 404
    assert answer.body["unknown"] == [dlv(foreign)]
    assert cancel({"deliveries": [dlv(foreign), dlv(own)]}, tenant="acme") == {
        "cancelled": 1, "unchanged": 0, "unknown": [dlv(foreign)], "next": None,
    }  # fmt: skip
    assert cancel({"filter": {"endpoint": ep(theirs)}}, tenant="acme")["cancelled"] == 0
    answer = call("POST", "/v1/deliveries/cancel", body={"filter": {"tenant": "other"}}, tenant="acme")
    assert answer.status == 422
    assert queued(connection) == [foreign]


def test_wrong_orders_are_refused(subtests: pytest.Subtests) -> None:
    one_id = dlv(uuid4())
    wrong: list[tuple[Any, int, str]] = [
        ({}, 422, "give either deliveries or a filter"),
        ({"deliveries": [one_id], "filter": {"tenant": "acme"}}, 422, "give either deliveries or a filter"),
        ({"deliveries": []}, 422, "at least 1 item"),
        ({"deliveries": [one_id] * 1001}, 422, "at most 1000 items"),
        ({"deliveries": ["x"]}, 422, "expected an id of the form dlv_"),
        ({"deliveries": [one_id], "cursor": "x"}, 422, "a cursor goes with a filter"),
        ({"filter": {}}, 422, "name a tenant, an endpoint or an event"),
        ({"filter": {"type": "a"}}, 422, "name a tenant, an endpoint or an event"),
        ({"filter": {"tenant": "acme", "type": "a..b"}}, 422, "an event type is"),
        ({"filter": {"tenant": "acme", "status": "dead"}}, 422, "there is no such field"),
        ({"filter": {"tenant": "acme", "since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}}, 422,
         "since must be before until"),
        ({"filter": {"tenant": "acme"}, "cursor": "zz"}, 400, "not one of this list"),
        ({"deliveries": [one_id]}, 404, "there is none of these deliveries"),
    ]  # fmt: skip
    for body, status, message in wrong:
        with subtests.test(body=str(body)[:80]):
            answer = call("POST", "/v1/deliveries/cancel", body=body)
            assert answer.status == status
            assert message in answer.detail


def test_an_events_deliveries_are_cancelled_together(connection: Connection, claimer: Claimer) -> None:
    for _ in range(3):
        make_endpoint(connection)
    (event_id,) = post(connection, b"1")
    (other_id,) = post(connection, b"2")
    claimer.claim()
    event = encode(Prefix.EVENT, event_id)
    assert cancel({"filter": {"event": event}}, tenant="zeta-without-events") == {
        "cancelled": 0, "unchanged": 0, "unknown": [], "next": None,
    }  # fmt: skip
    assert cancel({"filter": {"event": event}})["cancelled"] == 3
    assert {row["event_id"] for row in rows(connection, "SELECT event_id FROM forbear.queue")} == {other_id}
    assert call("POST", "/v1/deliveries/cancel", body={"filter": {"event": event, "type": "a"}}).status == 422
