from __future__ import annotations

import asyncio
import logging
from typing import Any

import psycopg
import pytest

from forbear import attempting
from forbear.policy.breaker import BreakerState
from forbear.policy.verdict import ErrorClass
from forbear.sender import Request, Response
from tests.functions.builders import make_endpoint, move_clock, post, reseal, run
from tests.functions.queue.leasing import LEASE_S, attempts, breaker, endings, fetch, reap
from tests.functions.scripted import (
    QUICK,
    SLOW,
    Claimer,
    ScriptedSender,
    always,
    answer,
    failure,
    header,
    running,
    until,
)

type Connection = psycopg.Connection[tuple[Any, ...]]


def only(connection: Connection) -> Any:
    """The only delivery."""
    return fetch(connection, "SELECT * FROM forbear.deliveries")


class TestVerdicts:
    def test_delivered_at_the_first_attempt(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, url="http://127.0.0.1:9/hook?x=%2F", headers={"x-own": "secret value"})
        (event_id,) = post(connection, b'{"z":1,"a":2}')
        claimer = Claimer(database_url, always(200))
        tally = run(claimer.run())
        assert (tally.claimed, tally.delivered, tally.settled) == (1, 1, 1)
        (request,) = claimer.sender.requests
        assert request.body == b'{"z":1,"a":2}'
        assert str(request.url) == "http://127.0.0.1:9/hook?x=%2F"
        assert header(request, b"forbear-attempt") == "1"
        assert header(request, b"x-own") == "secret value"
        (attempt,) = attempts(connection, only(connection).id)
        assert b"webhook-id: evt_" in attempt.request_headers
        assert b"x-own: ***" in attempt.request_headers
        assert event_id == only(connection).event_id

    def test_retried_until_delivered_with_the_same_id_and_body(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, policy=QUICK)
        post(connection, b"body")
        claimer = Claimer(database_url, ScriptedSender(lambda _, n: answer(500 if n < 2 else 204)))
        tally = run(claimer.run())
        assert (tally.retried, tally.delivered) == (2, 1)
        requests = claimer.sender.requests
        for name in (b"webhook-id", b"idempotency-key"):
            assert len({header(request, name) for request in requests}) == 1
        assert [header(request, b"forbear-attempt") for request in requests] == ["1", "2", "3"]
        assert claimer.sender.bodies == [b"body"] * 3
        kept = attempts(connection, only(connection).id)
        assert [(a.number, a.verdict, a.status) for a in kept] == [
            (1, "retry", 500),
            (2, "retry", 500),
            (3, "success", 204),
        ]

    def test_exhausted_after_the_last_retry(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, policy=QUICK | {"breaker": {"failures": 100}})
        post(connection, b"1")
        claimer = Claimer(database_url, always(500))
        run(claimer.run())
        assert endings(connection) == {"exhausted": 1}
        assert [a.number for a in attempts(connection, only(connection).id)] == [1, 2, 3, 4]

    def test_a_final_4xx_is_tried_three_times(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, policy=QUICK)
        post(connection, b"1")
        run(Claimer(database_url, always(404)).run())
        assert endings(connection) == {"permanent": 1}
        assert [a.verdict for a in attempts(connection, only(connection).id)] == ["limited"] * 3

    def test_a_redirect_is_final(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        run(Claimer(database_url, always(302)).run())
        assert endings(connection) == {"permanent": 1}

    def test_gone_disables_the_endpoint(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, policy={"limits": {"concurrency": 1}})
        post(connection, b"1", b"2", b"3")
        claimer = Claimer(database_url, always(410))
        run(claimer.run())
        assert endings(connection) == {"gone": 1}
        assert len(claimer.sender.requests) == 1
        assert fetch(connection, "SELECT held FROM forbear.lanes").held

    def test_a_stale_event_is_dead_without_an_attempt(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection)
        post(connection, b"1", expires_at=fetch(connection, "SELECT forbear.now() - interval '1 second' AS at").at)
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert endings(connection) == {"expired": 1}
        assert claimer.sender.requests == []
        assert attempts(connection, only(connection).id) == []
        assert only(connection).attempts == 0

    @pytest.mark.parametrize(
        "broken",
        [
            {"secret": "whsec_not base64"},
            "DELETE FROM forbear.secrets",
            "UPDATE forbear.endpoints SET url = 'gopher://old/'",
            {"headers": {"x": "é"}},
            {"headers": {"x": 1}},
            "UPDATE forbear.endpoints SET policy = '{\"unheard_of\": 1}'",
            "UPDATE forbear.endpoints SET policy = '[]'",
        ],
    )
    def test_what_cannot_be_sent_is_dead_at_once_and_hurts_nobody_else(
        self, connection: Connection, database_url: str, broken: str | dict[str, Any]
    ) -> None:
        bad = make_endpoint(connection, event_types=("bad",))
        if isinstance(broken, str):
            connection.execute(broken)
        else:
            reseal(connection, bad, **broken)
        make_endpoint(connection, event_types=("good",))
        post(connection, b"bad", event_type="bad")
        post(connection, b"good", event_type="good")
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert endings(connection) == {"unsendable": 1, "delivered": 1}
        assert claimer.sender.bodies == [b"good"]
        (attempt,) = attempts(connection, fetch(connection, "SELECT id FROM forbear.history WHERE reason <> ''").id)
        assert (attempt.verdict, attempt.error) == ("permanent", "unsendable")
        assert attempt.error_detail
        assert breaker(connection, bad).failures == 0

    def test_a_sender_that_raises_is_an_internal_error_and_the_delivery_is_retried(
        self, connection: Connection, database_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        def script(_request: Request, number: int) -> Response:
            if number == 0:
                raise ZeroDivisionError("a bug in the sender")
            return answer(200)

        make_endpoint(connection, policy=QUICK)
        post(connection, b"1")
        run(Claimer(database_url, ScriptedSender(script)).run())
        first, second = attempts(connection, only(connection).id)
        assert (first.error, first.verdict, second.verdict) == ("internal", "retry", "success")
        assert "a bug in the sender" in caplog.text
        assert "a bug in the sender" not in first.error_detail, "which anybody may read"

    def test_what_this_machine_cannot_send_waits_and_uses_no_attempt_up(
        self, connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without descriptors every attempt fails at once, and a few retries would be gone in no time."""
        monkeypatch.setattr(attempting, "SHORT_FOR_S", (0.01, 0.02))
        unsent = Response(None, b"", (), b"", ErrorClass.INTERNAL, "Too many open files", 0.001, None, unsent=True)
        make_endpoint(connection, policy=QUICK)
        post(connection, b"1")
        claimer = Claimer(database_url, ScriptedSender(lambda _r, number: unsent if number < 10 else answer(200)))
        assert run(claimer.run()).returned == 10
        assert (only(connection).state, only(connection).attempts) == ("delivered", 1)
        assert [header(request, b"forbear-attempt") for request in claimer.sender.requests] == ["1"] * 11

    def test_what_could_not_be_started_in_time_is_given_back_unsent(
        self, connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Begun too late, an attempt might outlive its lease."""
        monkeypatch.setattr(attempting, "START_WITHIN_S", -1.0)
        make_endpoint(connection)
        post(connection, b"1")
        claimer = Claimer(database_url, always(200))

        async def work() -> None:
            async with running(claimer):
                await until(lambda: claimer.loop.tally.returned > 1)
                claimer.loop.stop()

        run(work())
        assert claimer.sender.requests == []
        assert (only(connection).state, only(connection).attempts) == ("pending", 0)

    def test_whatever_a_sender_gives_is_kept(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, policy=QUICK)
        post(connection, b"1")
        odd = Response(
            None, b"\x00\xff", ("soon",), b"\x00" * 20_000, ErrorClass.PROTOCOL, "nul \x00 \ud800", 0.1, None
        )
        run(Claimer(database_url, ScriptedSender(lambda _, n: odd if n == 0 else answer(200))).run())
        first, _ = attempts(connection, only(connection).id)
        assert (first.response_headers, len(first.response_body)) == (b"\x00\xff", 16384)


class TestHolding:
    def test_the_breaker_opens_after_five_failures_and_recovers_by_one_probe(
        self, connection: Connection, database_url: str
    ) -> None:
        endpoint_id = make_endpoint(connection, policy=SLOW)
        post(connection, *[b"1"] * 5)
        first = Claimer(database_url, always(500))
        run(first.run())
        assert len(first.sender.requests) == 5
        opened = breaker(connection, endpoint_id)
        assert (opened.state, opened.trips) == (BreakerState.OPEN, 1)
        assert opened.reason == "5 failures in a row, the last: 500"

        post(connection, *[b"2"] * 20)
        barred = Claimer(database_url, always(200))
        run(barred.run())
        assert barred.sender.requests == []

        move_clock(connection, seconds=31)
        let_go = asyncio.Event()

        async def wait_at_first(number: int) -> Response:
            if number == 0:
                await let_go.wait()
            return answer(200)

        probing = Claimer(database_url, ScriptedSender(lambda _, number: wait_at_first(number)))

        async def work() -> None:
            async with running(probing):
                await until(lambda: bool(probing.sender.requests))
                await probing.look_again()
                assert len(probing.sender.requests) == 1, "nothing goes beside the probe"
                let_go.set()

        run(work())
        assert len(probing.sender.requests) == 20
        trickling = breaker(connection, endpoint_id)
        assert (trickling.state, trickling.allows) == (BreakerState.HALF_OPEN_TRICKLE, 16)
        move_clock(connection, seconds=31)
        post(connection, b"3")
        run(Claimer(database_url, always(200)).run())
        closed = breaker(connection, endpoint_id)
        assert (closed.state, closed.trips) == (BreakerState.CLOSED, 0)

    def test_a_failed_probe_opens_it_for_longer(self, connection: Connection, database_url: str) -> None:
        endpoint_id = make_endpoint(connection, policy=SLOW | {"breaker": {"failures": 2, "cooldown_s": 10.0}})
        post(connection, *[b"1"] * 9)
        run(Claimer(database_url, always(503)).run())
        cooldowns = []
        for _ in range(4):
            opened = breaker(connection, endpoint_id)
            assert opened.until is not None
            cooldowns.append(round((opened.until - opened.since).total_seconds()))
            move_clock(connection, seconds=cooldowns[-1] + 1)
            post(connection, b"2")
            probing = Claimer(database_url, ScriptedSender(lambda _r, _n: failure(ErrorClass.TIMEOUT)))
            run(probing.run())
            assert len(probing.sender.requests) == 1
        assert cooldowns == [10, 20, 40, 80]
        assert breaker(connection, endpoint_id).reason == "the probe failed: timeout"

    def test_a_short_cool_down_is_not_lengthened_by_the_probes_lease(
        self, connection: Connection, database_url: str
    ) -> None:
        quick = {"failures": 1, "cooldown_s": 0.1, "cooldown_multiplier": 1.0}
        make_endpoint(connection, policy=SLOW | {"breaker": quick})
        post(connection, *[b"1"] * 6)
        claimer = Claimer(database_url, ScriptedSender(lambda _, n: answer(500 if n < 4 else 200)))
        run(claimer.run())
        assert len(claimer.sender.requests) >= 6
        assert endings(connection) == {"delivered": len(claimer.sender.requests) - 4}

    def test_stale_probes_make_room_until_one_can_be_sent(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, policy=SLOW | {"breaker": {"failures": 1}})
        post(connection, b"fails")
        run(Claimer(database_url, always(500)).run())
        move_clock(connection, seconds=31)
        past = fetch(connection, "SELECT forbear.now() - interval '1 second' AS at").at
        post(connection, *[b"stale"] * 5, expires_at=past)
        post(connection, b"fresh")
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert claimer.sender.bodies == [b"fresh"]
        assert endings(connection) == {"expired": 5, "delivered": 1}

    def test_retry_after_holds_the_whole_lane(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, policy=SLOW | {"limits": {"concurrency": 1}})
        post(connection, b"1", b"2", b"3")
        first = Claimer(database_url, ScriptedSender(lambda _r, _n: answer(429, retry_after="120")))
        run(first.run())
        assert len(first.sender.requests) == 1
        move_clock(connection, seconds=118)
        run(first.run())
        assert len(first.sender.requests) == 1
        move_clock(connection, seconds=3)
        after = Claimer(database_url, always(200))
        run(after.run())
        assert sorted(after.sender.bodies) == [b"2", b"3"]
        kept = attempts(connection, fetch(connection, "SELECT id FROM forbear.queue").id)
        assert (kept[0].retry_after_s, kept[0].retry_after_honoured) == (120, True)

    def test_late_results_are_kept_and_change_nothing(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        let_go = asyncio.Event()

        async def wait() -> Response:
            await let_go.wait()
            return answer(200, body=b"too late")

        claimer = Claimer(database_url, ScriptedSender(lambda _r, n: wait() if n == 0 else answer(202)))

        async def work() -> Any:
            async with running(claimer) as task:
                await until(lambda: bool(claimer.sender.requests))
                move_clock(connection, seconds=LEASE_S + 1)
                reap(connection)
                await until(lambda: len(claimer.sender.requests) == 2)
                let_go.set()
            return task.result()

        tally = run(work())
        assert (tally.late, tally.delivered) == (1, 1)
        first, second = attempts(connection, only(connection).id)
        assert (first.verdict, first.late, first.response_body) == ("lost", True, b"too late")
        assert (second.verdict, second.status) == ("success", 202)


def test_a_claimers_log_names_no_payload(
    connection: Connection, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    make_endpoint(
        connection, headers={"authorization": "Bearer t0ps3cret"}, secret="whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    )
    post(connection, b"payl0ad")
    run(Claimer(database_url, always(200)).run())
    for secret in ("payl0ad", "t0ps3cret", "MfKQ9r8GKYqr"):
        assert secret not in caplog.text
