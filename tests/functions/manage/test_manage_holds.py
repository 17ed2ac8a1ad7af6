"""Pauses, disabling, the breaker by hand: what holds an endpoint, and what lets it go again."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from forbear.db import statement
from tests.functions.builders import make_endpoint, move_clock, one, post
from tests.functions.conftest import remembering
from tests.functions.manage.calling import (
    DELIVERY,
    ENDPOINT,
    Claimer,
    call,
    create,
    ep,
    ep_id,
    ok,
    open_breaker,
    rows,
    wait_for_a_waiter,
)

type Connection = psycopg.Connection[Any]

TENANT = "/v1/tenants/{tenant}"


def held_by(endpoint: Any) -> list[str]:
    return [hold["by"] for hold in endpoint["circuit"]["held"]]


def called(connection: Connection) -> bool:
    """Whether somebody was asked to wake a claimer; forgets it."""
    return connection.execute("DELETE FROM forbear.claimers").rowcount == 1


def test_a_paused_endpoint_holds_what_comes_and_sends_it_on_resume(connection: Connection, claimer: Claimer) -> None:
    made = create()
    paused = ok(call("POST", f"{ENDPOINT}/pause", made["id"]))
    assert held_by(paused) == ["paused"]
    (event,) = post(connection, b"1")
    assert claimer.claim() == []
    resumed = ok(call("POST", f"{ENDPOINT}/resume", made["id"]))
    assert held_by(resumed) == []
    assert called(connection)
    assert [lease.event_id for lease in claimer.claim()] == [event]


def test_pausing_and_resuming_twice_changes_nothing_more(connection: Connection) -> None:
    made = create()
    first = ok(call("POST", f"{ENDPOINT}/pause", made["id"]))
    assert ok(call("POST", f"{ENDPOINT}/pause", made["id"])) == first
    ok(call("POST", f"{ENDPOINT}/resume", made["id"]))
    before = rows(connection, "SELECT l::text FROM forbear.lanes l")
    ok(call("POST", f"{ENDPOINT}/resume", made["id"]))
    ok(call("POST", f"{ENDPOINT}/enable", made["id"]))
    ok(call("POST", f"{ENDPOINT}/reset-breaker", made["id"]))
    assert rows(connection, "SELECT l::text FROM forbear.lanes l") == before


def test_an_endpoint_that_answered_410_is_disabled_with_the_reason_until_enabled(
    connection: Connection, claimer: Claimer
) -> None:
    made = create()
    post(connection, b"1", b"2")
    lease, other = claimer.claim()
    claimer.settle(lease, "dead", verdict="gone", status=410, reason="gone")
    claimer.settle(other, "retry", delay_s=1)
    (hold,) = ok(call("GET", ENDPOINT, made["id"]))["circuit"]["held"]
    assert hold["by"] == "disabled"
    assert "410" in hold["reason"]
    move_clock(connection, seconds=10)
    assert claimer.claim() == []
    called(connection)
    assert held_by(ok(call("POST", f"{ENDPOINT}/enable", made["id"]))) == []
    assert called(connection)
    assert len(claimer.claim()) == 1


def test_resetting_the_breaker_closes_it_and_lets_a_trickle_go(connection: Connection, claimer: Claimer) -> None:
    made = create()
    open_breaker(connection, ep_id(made["id"]))
    post(connection, b"1", b"2")
    assert claimer.claim() == []
    circuit = ok(call("GET", ENDPOINT, made["id"]))["circuit"]
    assert (circuit["state"], circuit["failures"], circuit["allows"]) == ("open", 5, 0)
    assert circuit["held"][0] | {"since": None} == {
        "by": "breaker",
        "since": None,
        "until": circuit["next_probe_at"],
        "reason": "5 failures in a row, the last: 500",
    }
    called(connection)
    closed = ok(call("POST", f"{ENDPOINT}/reset-breaker", made["id"]))["circuit"]
    assert (closed["state"], closed["failures"], closed["next_probe_at"], closed["held"]) == ("closed", 0, None, [])
    assert (closed["reason"], closed["allows"]) == ("reset by hand", 100)
    assert called(connection)
    assert one(connection, "SELECT breaker_epoch FROM forbear.lanes") == 2
    assert len(claimer.claim()) == 1
    trickle = ok(call("GET", ENDPOINT, made["id"]))["circuit"]
    assert (trickle["state"], trickle["allows"], trickle["held"]) == ("half_open_trickle", 1, [])


def test_without_slow_start_a_reset_lets_everything_go(connection: Connection, claimer: Claimer) -> None:
    made = create(policy={"breaker": {"slow_start": False}})
    open_breaker(connection, ep_id(made["id"]))
    post(connection, b"1", b"2")
    ok(call("POST", f"{ENDPOINT}/reset-breaker", made["id"]))
    assert len(claimer.claim()) == 2


def test_a_probe_in_flight_counts_for_nothing_after_a_reset(connection: Connection, claimer: Claimer) -> None:
    made = create()
    open_breaker(connection, ep_id(made["id"]), cooldown_s=0)
    post(connection, b"1", b"2")
    (probe,) = claimer.claim()
    assert probe.probe
    half_open = ok(call("GET", ENDPOINT, made["id"]))["circuit"]
    assert (half_open["state"], half_open["allows"]) == ("half_open_probe", 1)
    assert half_open["held"][0]["until"] == half_open["next_probe_at"] is not None
    ok(call("POST", f"{ENDPOINT}/reset-breaker", made["id"]))
    assert one(connection, "SELECT breaker_epoch FROM forbear.lanes") > probe.epoch
    assert claimer.claim() == []  # the trickle's one place is the probe's still
    claimer.settle(probe, "retry")
    assert len(claimer.claim()) == 1


def test_a_reset_ends_the_wait_that_a_receiver_asked_for(connection: Connection, claimer: Claimer) -> None:
    made = create()
    post(connection, b"1", b"2")
    lease, other = claimer.claim()
    claimer.settle(other, "delivered")
    claimer.settle(lease, "retry", status=429, retry_after_s=600.0, retry_after_honoured=True, wait_s=600, delay_s=600)
    post(connection, b"3")
    assert claimer.claim() == []
    (hold,) = ok(call("GET", ENDPOINT, made["id"]))["circuit"]["held"]
    assert (hold["by"], hold["until"] is None) == ("retry_after", False)
    assert held_by(ok(call("POST", f"{ENDPOINT}/reset-breaker", made["id"]))) == []
    assert len(claimer.claim()) == 1


def test_a_paused_endpoint_stays_paused_when_its_breaker_is_reset(connection: Connection, claimer: Claimer) -> None:
    made = create(paused=True)
    open_breaker(connection, ep_id(made["id"]))
    post(connection, b"1")
    assert held_by(ok(call("POST", f"{ENDPOINT}/reset-breaker", made["id"]))) == ["paused"]
    assert claimer.claim() == []


def test_resuming_keeps_an_open_breaker_open(connection: Connection, claimer: Claimer) -> None:
    made = create(paused=True)
    open_breaker(connection, ep_id(made["id"]), cooldown_s=30)
    post(connection, b"1")
    assert held_by(ok(call("POST", f"{ENDPOINT}/resume", made["id"]))) == ["breaker"]
    assert claimer.claim() == []
    move_clock(connection, seconds=31)
    assert [lease.probe for lease in claimer.claim()] == [True]


def test_a_tenants_pause_holds_all_its_endpoints_and_nobody_elses(connection: Connection, claimer: Claimer) -> None:
    mine = [create()["id"], create()["id"]]
    create(tenant="other")
    own_pause = create(paused=True)["id"]
    answer = ok(call("POST", f"{TENANT}/pause", "acme"))
    assert (answer["tenant"], answer["paused"]) == ("acme", True)
    assert ok(call("POST", f"{TENANT}/pause", "acme")) == answer
    late = create()
    assert held_by(late) == ["tenant_paused"]
    post(connection, b"1", tenant="acme")
    post(connection, b"2", tenant="other")
    assert [lease.payload for lease in claimer.claim()] == [b"2"]

    called(connection)
    resumed = ok(call("POST", f"{TENANT}/resume", "acme"))
    assert resumed == {"tenant": "acme", "paused": False, "paused_at": None}
    assert ok(call("POST", f"{TENANT}/resume", "acme")) == resumed
    assert called(connection)
    assert {ep(lease.lane.endpoint_id) for lease in claimer.claim()} == {*mine, late["id"]}
    assert held_by(ok(call("GET", ENDPOINT, own_pause))) == ["paused"]


def test_a_tenant_nobody_knows_yet_can_be_paused() -> None:
    ok(call("POST", f"{TENANT}/pause", "newcomer"))
    assert held_by(create(tenant="newcomer")) == ["tenant_paused"]


def test_a_path_that_is_no_tenant_is_refused() -> None:
    for tenant in ("a b", ".", "é", "a" * 129, "a\0"):
        answer = call("POST", f"{TENANT}/pause", tenant)
        assert answer.status == 422
        assert answer.body["errors"][0]["field"] == "tenant"


@pytest.mark.parametrize("pause_first", [True, False])
def test_an_endpoint_made_while_its_tenant_is_being_paused_ends_up_paused(
    connection: Connection, connect: Callable[[], Connection], pause_first: bool
) -> None:
    create()
    other = connect()
    given = {"tenant": "acme", "paused": True}
    with ThreadPoolExecutor(1) as pool:
        if pause_first:  # the pause is not committed yet when the endpoint is made
            with other.transaction():
                paused_at = other.execute(statement("pause_tenant"), given).fetchone()
                other.execute(statement("pause_tenant_lanes"), {**given, "paused_at": paused_at and paused_at[0]})
                making = pool.submit(create)
                wait_for_a_waiter(connection)
        else:  # the endpoint is not committed yet when the tenant is paused
            with other.transaction():
                other.execute("SELECT FROM forbear.tenants FOR SHARE")
                made = make_endpoint(other)
                making = pool.submit(lambda: ok(call("POST", f"{TENANT}/pause", "acme")))
                wait_for_a_waiter(connection)
        making.result()
    endpoint_id = making.result()["id"] if pause_first else ep(made)
    assert held_by(ok(call("GET", ENDPOINT, endpoint_id))) == ["tenant_paused"]
    assert one(connection, "SELECT bool_and(held) FROM forbear.lanes")


def test_pausing_everything_stops_all_claims(connection: Connection, claimer: Claimer) -> None:
    made = create()
    post(connection, b"1")
    paused = ok(call("POST", "/v1/pause"))
    assert paused["paused"]
    assert ok(call("POST", "/v1/pause")) == paused
    assert held_by(ok(call("GET", ENDPOINT, made["id"]))) == ["everything_paused"]
    assert claimer.claim() == []
    called(connection)
    assert ok(call("POST", "/v1/resume")) == {"paused": False, "paused_at": None}
    assert called(connection)
    assert len(claimer.claim()) == 1


def test_several_causes_are_all_told_and_a_pending_delivery_tells_them_too(connection: Connection) -> None:
    made = create(paused=True)
    open_breaker(connection, ep_id(made["id"]))
    post(connection, b"1")
    ok(call("POST", f"{TENANT}/pause", "acme"))
    ok(call("POST", "/v1/pause"))
    held = ok(call("GET", ENDPOINT, made["id"]))["circuit"]["held"]
    assert [hold["by"] for hold in held] == ["everything_paused", "tenant_paused", "paused", "breaker"]
    assert all(hold["since"] for hold in held)
    (delivery,) = ok(call("GET", "/v1/deliveries"))["items"]
    assert delivery["held"] == held
    assert ok(call("GET", DELIVERY, delivery["id"]))["held"] == held


def test_a_claimer_is_called_only_if_none_is_awake(connection: Connection) -> None:
    made = create(paused=True)
    connection.execute("INSERT INTO forbear.claimers VALUES (gen_random_uuid(), forbear.now() + interval '1 minute')")
    ok(call("POST", f"{ENDPOINT}/resume", made["id"]))
    assert one(connection, "SELECT count(*) FROM forbear.claimers") == 1


def test_the_one_that_must_call_the_claimer_does(handlers: pytest.MonkeyPatch) -> None:
    calls: list[str | None] = []
    handlers.setattr("forbear.waking.invoke_claimer", remembering(calls))
    made = create(paused=True)
    for _ in range(3):
        ok(call("POST", f"{ENDPOINT}/resume", made["id"]))
    assert calls == [None]
