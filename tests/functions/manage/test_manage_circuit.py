"""How an endpoint is doing: what waits, what is in flight, and what its latest attempts came to."""

from __future__ import annotations

from typing import Any

import psycopg

from tests.functions.builders import make_endpoint, move_clock, post
from tests.functions.manage.calling import ENDPOINT, Claimer, call, create, ep, ok

type Connection = psycopg.Connection[Any]


def circuit(endpoint: str) -> Any:
    return ok(call("GET", ENDPOINT, endpoint))["circuit"]


def test_an_endpoint_without_deliveries_has_no_success_rate() -> None:
    reading = circuit(create()["id"])
    assert reading["success_rate"] == {"rate": None, "attempts": 0, "successes": 0, "since": None}
    assert (reading["pending"], reading["in_flight"]) == ({"count": 0, "more": False}, 0)
    assert reading["retry_after"] == {"seen": 0, "honoured": 0}


def test_finished_and_unfinished_deliveries_attempts_count(connection: Connection, claimer: Claimer) -> None:
    made = create(policy={"breaker": {"failures": 10_000}})
    neighbour = make_endpoint(connection, tenant="other", policy={"breaker": {"failures": 10_000}})
    post(connection, *[b"1"] * 6)
    post(connection, *[b"1"] * 2, tenant="other")
    leases = [lease for lease in claimer.claim() if ep(lease.lane.endpoint_id) == made["id"]]
    for lease in leases[:3]:
        claimer.settle(lease, "delivered")
    claimer.settle(leases[3], "dead", retry_after_s=5.0)
    claimer.settle(leases[4], "retry", retry_after_s=60.0, retry_after_honoured=True, delay_s=60)
    post(connection, b"1")
    reading = circuit(made["id"])
    assert reading["pending"] == {"count": 2, "more": False}
    assert reading["in_flight"] == 1
    assert reading["success_rate"] | {"since": None} == {"rate": 0.6, "attempts": 5, "successes": 3, "since": None}
    assert reading["success_rate"]["since"] is not None
    assert reading["retry_after"] == {"seen": 2, "honoured": 1}
    assert circuit(ep(neighbour))["success_rate"]["attempts"] == 0


def test_a_lapsed_lease_is_not_in_flight(connection: Connection, claimer: Claimer) -> None:
    made = create()
    post(connection, b"1")
    claimer.claim()
    assert circuit(made["id"])["in_flight"] == 1
    move_clock(connection, minutes=2)
    assert circuit(made["id"])["in_flight"] == 0


def test_what_waits_is_counted_to_ten_thousand(connection: Connection) -> None:
    made = create(paused=True)
    for _ in range(20):
        post(connection, *[b"1"] * 500)
    assert circuit(made["id"])["pending"] == {"count": 10_000, "more": False}
    post(connection, b"1")
    reading = circuit(made["id"])
    assert reading["pending"] == {"count": 10_000, "more": True}
    assert [hold["by"] for hold in reading["held"]] == ["paused"]


def test_the_window_is_the_newest_thousand_attempts(connection: Connection, claimer: Claimer) -> None:
    made = create(policy={"breaker": {"failures": 10_000}})
    post(connection, b"1")
    claimer.finish("dead")
    move_clock(connection, hours=1)
    post(connection, b"1")
    (lease,) = claimer.claim()
    claimer.settle(lease, "delivered")
    connection.execute(  # 30 attempts for each of 400 deliveries: more than the window holds
        "WITH d AS (INSERT INTO forbear.history SELECT forbear.new_id(), event_id, endpoint_id, payload_bytes, state,"
        " reason, generation, 30, replay_id, ended_at FROM forbear.history h, generate_series(1, 400)"
        " WHERE h.state = 'delivered' RETURNING *)"
        " INSERT INTO forbear.history_attempts SELECT d.id, n, 1, d.ended_at, 1, '', NULL, '', 200, '', '', NULL, '',"
        " CASE WHEN n = 30 THEN 'success' ELSE 'retry' END, NULL, false, NULL, false, d.ended_at"
        " FROM d, generate_series(1, 30) n"
    )
    rate = circuit(made["id"])["success_rate"]
    assert rate["attempts"] == 1000


def test_attempts_of_cancelled_deliveries_count_and_untried_ones_do_not_hide_the_rest(
    connection: Connection, claimer: Claimer
) -> None:
    made = create()
    post(connection, b"1")
    claimer.finish()
    ok(call("POST", f"{ENDPOINT}/pause", made["id"]))
    for _ in range(2):
        post(connection, *[b"1"] * 500)
    assert ok(call("POST", "/v1/deliveries/cancel", body={"filter": {"endpoint": made["id"]}}))["cancelled"] == 1000
    assert circuit(made["id"])["success_rate"]["attempts"] == 1
