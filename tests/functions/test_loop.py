from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from forbear import loop as loop_module
from forbear.db import Unavailable
from forbear.policy.breaker import BreakerState
from forbear.policy.verdict import ErrorClass
from forbear.sender import Request, Response
from tests.functions.builders import make_endpoint, move_clock, one, post, run
from tests.functions.queue.leasing import attempts, breaker, claim, count, fetch, reap, settle
from tests.functions.scripted import (
    Claimer,
    CountingStore,
    RememberingWaking,
    ScriptedSender,
    always,
    answer,
    failure,
    header,
    running,
    until,
)

type Connection = psycopg.Connection[tuple[Any, ...]]

LEASE_S = 15 + 30
QUICK = {"schedule": {"base_s": 0.01, "multiplier": 1.0, "retries": 3, "jitter": "none"}}
SLOW = {"schedule": {"base_s": 600.0, "jitter": "none"}}


def finished(connection: Connection) -> dict[str, int]:
    """How many deliveries ended how."""
    rows = connection.execute("SELECT coalesce(reason, state), count(*) FROM forbear.history GROUP BY 1").fetchall()
    return {row[0]: row[1] for row in rows}


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
        assert finished(connection) == {"exhausted": 1}
        assert [a.number for a in attempts(connection, only(connection).id)] == [1, 2, 3, 4]

    def test_a_final_4xx_is_tried_three_times(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, policy=QUICK)
        post(connection, b"1")
        run(Claimer(database_url, always(404)).run())
        assert finished(connection) == {"permanent": 1}
        assert [a.verdict for a in attempts(connection, only(connection).id)] == ["limited"] * 3

    def test_a_redirect_is_final(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        run(Claimer(database_url, always(302)).run())
        assert finished(connection) == {"permanent": 1}

    def test_gone_disables_the_endpoint(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, policy={"limits": {"concurrency": 1}})
        post(connection, b"1", b"2", b"3")
        claimer = Claimer(database_url, always(410))
        run(claimer.run())
        assert finished(connection) == {"gone": 1}
        assert len(claimer.sender.requests) == 1
        assert fetch(connection, "SELECT held FROM forbear.lanes").held

    def test_a_stale_event_is_dead_without_an_attempt(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection)
        post(connection, b"1", expires_at=fetch(connection, "SELECT forbear.now() - interval '1 second' AS at").at)
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert finished(connection) == {"expired": 1}
        assert claimer.sender.requests == []
        assert attempts(connection, only(connection).id) == []
        assert only(connection).attempts == 0

    @pytest.mark.parametrize(
        "broken",
        [
            "UPDATE forbear.secrets SET secret = 'whsec_not base64'",
            "DELETE FROM forbear.secrets",
            "UPDATE forbear.endpoints SET url = 'gopher://old/'",
            'UPDATE forbear.endpoints SET headers = \'{"x": "é"}\'',
            "UPDATE forbear.endpoints SET headers = '{\"x\": 1}'",
            "UPDATE forbear.endpoints SET policy = '{\"unheard_of\": 1}'",
            "UPDATE forbear.endpoints SET policy = '[]'",
        ],
    )
    def test_what_cannot_be_sent_is_dead_at_once_and_hurts_nobody_else(
        self, connection: Connection, database_url: str, broken: str
    ) -> None:
        bad = make_endpoint(connection, event_types=("bad",))
        connection.execute(broken)
        make_endpoint(connection, event_types=("good",))
        post(connection, b"bad", event_type="bad")
        post(connection, b"good", event_type="good")
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert finished(connection) == {"unsendable": 1, "delivered": 1}
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
        assert breaker(connection, endpoint_id).state is BreakerState.CLOSED
        assert breaker(connection, endpoint_id).trips == 0

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
        quick = {"failures": 1, "cooldown_s": 0.05, "cooldown_multiplier": 1.0}
        make_endpoint(connection, policy=SLOW | {"breaker": quick})
        post(connection, *[b"1"] * 6)
        claimer = Claimer(database_url, ScriptedSender(lambda _, n: answer(500 if n < 4 else 200)))
        run(claimer.run())
        assert len(claimer.sender.requests) >= 6
        assert finished(connection) == {"delivered": len(claimer.sender.requests) - 4}

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
        assert finished(connection) == {"expired": 5, "delivered": 1}

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


class TestManyClaimers:
    @pytest.mark.parametrize("number", [2, 10])
    def test_together_they_deliver_everything_once(
        self, connection: Connection, database_url: str, number: int
    ) -> None:
        for n in range(20):
            make_endpoint(connection, event_types=(f"t{n}",))
            post(connection, *[b"%d" % n] * 100, event_type=f"t{n}")
        claimers = [Claimer(database_url, always(200), claimers=number) for _ in range(number)]

        async def work() -> None:
            await asyncio.gather(*(claimer.run() for claimer in claimers))

        run(work())
        keys = [header(request, b"idempotency-key") for one in claimers for request in one.sender.requests]
        assert len(keys) == len(set(keys)) == 2000
        assert finished(connection) == {"delivered": 2000}
        assert sum(claimer.loop.tally.delivered for claimer in claimers) == 2000
        assert count(connection, "forbear.claimers") == 0

    def test_in_threads_of_their_own_too(self, connection: Connection, database_url: str) -> None:
        for n in range(10):
            make_endpoint(connection, event_types=(f"t{n}",), policy=QUICK)
            post(connection, *[b"%d" % n] * 30, event_type=f"t{n}")
        claimers = [
            Claimer(database_url, ScriptedSender(lambda _, n: answer(500 if n % 4 == 3 else 200))) for _ in range(3)
        ]
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda claimer: run(claimer.run()), claimers))
        sent = Counter(
            (header(request, b"idempotency-key"), header(request, b"forbear-attempt"))
            for claimer in claimers
            for request in claimer.sender.requests
        )
        assert set(sent.values()) == {1}
        assert sum(finished(connection).values()) + count(connection, "forbear.queue") == 300
        assert count(connection, "forbear.attempts") == sent.total()

    def test_of_ten_that_start_at_once_no_more_stay_than_may_and_the_work_is_done(
        self, connection: Connection, database_url: str
    ) -> None:
        make_endpoint(connection)
        post(connection, *[b"1"] * 50)
        claimers = [Claimer(database_url, always(200), claimers=2, linger_s=0.2) for _ in range(10)]

        async def work() -> None:
            await asyncio.gather(*(claimer.run() for claimer in claimers))

        run(work())
        assert finished(connection) == {"delivered": 50}
        assert sum(claimer.store.claims > 0 for claimer in claimers) == 2

    def test_failures_seen_by_two_claimers_open_the_breaker_once(
        self, connection: Connection, database_url: str
    ) -> None:
        endpoint_id = make_endpoint(connection, policy=SLOW | {"breaker": {"failures": 6}})
        meeting = asyncio.Barrier(2)

        async def fail_together() -> Response:
            await meeting.wait()
            return answer(500)

        # One byte of payload is all that either holds at a time, so each takes one of two.
        claimers = [
            Claimer(database_url, ScriptedSender(lambda _r, _n: fail_together()), payload_bytes=1, linger_s=0.3)
            for _ in range(2)
        ]

        async def work() -> None:
            for _ in range(3):
                post(connection, b"1", b"2")
                await asyncio.gather(*(claimer.run() for claimer in claimers))

        run(work())
        opened = breaker(connection, endpoint_id)
        assert (opened.state, opened.failures, opened.trips) == (BreakerState.OPEN, 6, 1)

    def test_a_tick_leaves_it_to_the_one_that_is_awake(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        one(connection, "SELECT marked FROM forbear.stay_awake(gen_random_uuid(), '5 seconds', NULL)")
        ticked = Claimer(database_url, always(200))
        assert run(ticked.run(only_if_alone=True)).claimed == 0
        assert ticked.waking.calls == []
        move_clock(connection, seconds=6)
        assert run(Claimer(database_url, always(200)).run(only_if_alone=True)).claimed == 1, "that one is dead"

    def test_a_full_one_calls_another_while_lanes_are_ready(
        self, connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop_module, "CALL_HELP_AFTER_S", 0.05)
        for n in range(6):
            make_endpoint(connection, event_types=(f"t{n}",))
            post(connection, b"1", event_type=f"t{n}")
        let_go = asyncio.Event()

        async def wait() -> Response:
            await let_go.wait()
            return answer(200)

        full = Claimer(database_url, ScriptedSender(lambda _r, _n: wait()), in_flight=4)

        async def work() -> None:
            async with running(full):
                await until(lambda: "full" in full.waking.calls)
                let_go.set()

        run(work())
        assert finished(connection) == {"delivered": 6}

    def test_a_full_one_calls_nobody_when_nothing_else_is_ready(
        self, connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop_module, "CALL_HELP_AFTER_S", 0.0)
        for n in range(4):
            make_endpoint(connection, event_types=(f"t{n}",))
            post(connection, b"1", event_type=f"t{n}")
        let_go = asyncio.Event()

        async def wait() -> Response:
            await let_go.wait()
            return answer(200)

        full = Claimer(database_url, ScriptedSender(lambda _r, _n: wait()), in_flight=4)

        async def work() -> None:
            async with running(full):
                await until(lambda: full.store.outlooks > 3)
                let_go.set()

        run(work())
        assert "full" not in full.waking.calls


class TestSleeping:
    def test_with_nothing_ahead_the_schedule_rests_until_somebody_calls(
        self, connection: Connection, database_url: str
    ) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert claimer.waking.calls == ["tick", ("rest", None)]
        assert one(connection, "SELECT schedule FROM forbear.control") == "resting"
        assert one(connection, "SELECT forbear.call_claimer()") is True

    def test_with_work_ahead_the_schedule_rests_until_then(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, policy=SLOW)
        post(connection, b"1")
        claimer = Claimer(database_url, always(500))
        run(claimer.run())
        started, (rest, until_s) = claimer.waking.calls
        assert (started, rest) == ("tick", "rest")
        assert 595 < until_s <= 600

    def test_work_that_is_due_before_the_next_tick_is_waited_for(
        self, connection: Connection, database_url: str
    ) -> None:
        make_endpoint(connection, policy={"schedule": {"base_s": 0.4, "jitter": "none"}})
        post(connection, b"1")
        claimer = Claimer(database_url, ScriptedSender(lambda _, n: answer(500 if n == 0 else 200)), tick_s=1.0)
        run(claimer.run())
        assert finished(connection) == {"delivered": 1}
        assert claimer.waking.calls == ["tick", ("rest", None)]

    def test_the_schedule_ticks_on_while_another_is_awake(self, connection: Connection, database_url: str) -> None:
        one(connection, "SELECT marked FROM forbear.stay_awake(gen_random_uuid(), '60 seconds', NULL)")
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert claimer.waking.calls == ["tick"]

    def test_a_schedule_that_ticks_is_left_alone(self, connection: Connection, database_url: str) -> None:
        connection.execute("UPDATE forbear.control SET schedule = 'ticking'")
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert claimer.waking.calls == [("rest", None)]

    def test_work_that_comes_while_the_schedule_is_being_switched_off_switches_it_on_again(
        self, connection: Connection, database_url: str
    ) -> None:
        class Overtaken(RememberingWaking):
            async def stop_ticking(self, until: float | None) -> bool:
                post(connection, b"1")  # and the producer dies before it calls
                return await super().stop_ticking(until)

        make_endpoint(connection)
        claimer = Claimer(database_url, always(200), waking=Overtaken)
        run(claimer.run())
        assert claimer.waking.calls == ["tick", ("rest", None), "tick"]
        assert one(connection, "SELECT schedule FROM forbear.control") == "ticking"

    def test_switching_the_schedule_off_slowly_does_not_switch_it_on_again(
        self, connection: Connection, database_url: str
    ) -> None:
        class Slow(RememberingWaking):
            async def stop_ticking(self, until: float | None) -> bool:
                await asyncio.sleep(1.2)  # what is due is that much nearer afterwards
                return await super().stop_ticking(until)

        make_endpoint(connection, policy=SLOW)
        post(connection, b"1")
        claimer = Claimer(database_url, always(500), waking=Slow)
        run(claimer.run())
        assert len(claimer.waking.calls) == 2

    def test_an_event_that_comes_while_it_lingers_is_sent_without_a_call(
        self, connection: Connection, database_url: str
    ) -> None:
        make_endpoint(connection)
        claimer = Claimer(database_url, always(200), linger_s=0.5)

        async def work() -> None:
            async with running(claimer):
                await claimer.look_again()
                post(connection, b"1")
                assert one(connection, "SELECT forbear.call_claimer()") is False
                await until(lambda: bool(claimer.sender.requests))

        run(work())
        assert finished(connection) == {"delivered": 1}

    def test_what_a_dead_claimer_left_is_waited_for_and_taken_over(
        self, connection: Connection, database_url: str
    ) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        claim(connection)
        connection.execute("UPDATE forbear.queue SET lease_until = forbear.now() + interval '0.3 seconds'")
        claimer = Claimer(database_url, always(200))
        tally = run(claimer.run())
        assert (tally.reaped, tally.delivered) == (1, 1)

    def test_a_far_lease_arms_the_schedule(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        claim(connection)
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert claimer.waking.calls[0] == "tick"
        assert LEASE_S - 5 < claimer.waking.calls[1][1] <= LEASE_S

    def test_while_everything_is_paused_it_sleeps(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        connection.execute("UPDATE forbear.control SET paused_at = forbear.now()")
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert claimer.waking.calls == ["tick", ("rest", None)]

    def test_its_clock_is_right_after_a_freeze(self, connection: Connection, database_url: str) -> None:
        """An environment that was frozen between two invocations signs with the time of now, not of then."""
        make_endpoint(connection)
        claimer = Claimer(database_url, always(200))

        async def work() -> None:
            await claimer.loop.run(60)
            move_clock(connection, hours=1)
            post(connection, b"1")
            again = Claimer(database_url, claimer.sender)
            again.loop._store = claimer.store
            await again.loop.run(60)
            await claimer.store.aclose()

        run(work())
        now = fetch(connection, "SELECT extract(epoch FROM forbear.now())::float8 AS s").s
        assert abs(int(header(claimer.sender.requests[0], b"webhook-timestamp")) - now) < 60


class TestReplays:
    def replay(self, connection: Connection) -> None:
        connection.execute(
            "INSERT INTO forbear.replays (kind, status, step_at) VALUES ('replay', 'dead', forbear.now())"
        )

    def test_a_waiting_replay_is_worked_off(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection)
        post(connection, *[b"1"] * 3)
        settle(connection, claim(connection), "dead", reason="exhausted")
        self.replay(connection)
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert finished(connection) == {"delivered": 3}
        assert {header(request, b"forbear-replay")[:4] for request in claimer.sender.requests} == {"rpl_"}
        assert {header(request, b"forbear-attempt") for request in claimer.sender.requests} == {"2"}

    def test_a_replay_goes_on_while_the_claimer_is_busy(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, event_types=("busy",))
        make_endpoint(connection, event_types=("dead",))
        post(connection, b"dead", event_type="dead")
        settle(connection, claim(connection), "dead", reason="exhausted")
        post(connection, b"busy", event_type="busy")
        let_go = asyncio.Event()

        async def wait() -> Response:
            await let_go.wait()
            return answer(200)

        claimer = Claimer(database_url, ScriptedSender(lambda r, _: wait() if r.body == b"busy" else answer(200)))

        async def work() -> None:
            async with running(claimer):
                await until(lambda: bool(claimer.sender.requests))
                self.replay(connection)
                await until(lambda: claimer.sender.bodies == [b"busy", b"dead"])
                let_go.set()

        run(work())


class TestTheEnd:
    def test_when_its_time_is_nearly_up_it_claims_no_more_hands_on_and_finishes(
        self, connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop_module, "ABANDON_BEFORE_END_S", 0.2)
        make_endpoint(connection)
        post(connection, b"in flight")
        let_go = asyncio.Event()

        async def wait() -> Response:
            await let_go.wait()
            return answer(200)

        claimer = Claimer(database_url, ScriptedSender(lambda _r, _n: wait()))

        async def work() -> None:
            async with running(claimer, time_left_s=3.0):
                await until(lambda: "successor" in claimer.waking.calls)
                post(connection, b"for the successor")
                assert one(connection, "SELECT forbear.call_claimer()") is True, "nobody relies on it any more"
                let_go.set()

        run(work())
        assert claimer.sender.bodies == [b"in flight"]
        assert finished(connection) == {"delivered": 1}
        assert count(connection, "forbear.queue WHERE lease_token IS NULL") == 1
        assert count(connection, f"forbear.claimers WHERE id = '{claimer.loop.id}'") == 0

    def test_at_the_very_end_it_gives_up_what_is_in_flight_and_settles_the_rest(
        self, connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop_module, "ABANDON_BEFORE_END_S", 0.2)
        make_endpoint(connection)
        post(connection, *[b"1"] * 3)

        async def never() -> Response:
            await asyncio.Event().wait()
            raise AssertionError

        claimer = Claimer(database_url, ScriptedSender(lambda _, n: never() if n == 1 else answer(200)))
        run(claimer.run(1.0))
        assert claimer.sender.cancelled == 1
        assert finished(connection) == {"delivered": 2}
        (left,) = connection.execute("SELECT lease_token IS NOT NULL FROM forbear.queue").fetchall()
        assert left == (True,), "nobody knows what became of it: the lease lapses"
        move_clock(connection, seconds=LEASE_S)
        run(Claimer(database_url, always(200)).run())
        assert finished(connection) == {"delivered": 3}

    def test_a_successor_is_not_called_when_there_is_nothing_to_do(
        self, connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop_module, "ABANDON_BEFORE_END_S", 0.1)
        claimer = Claimer(database_url, always(200), linger_s=60.0)
        run(claimer.run(0.6))
        assert claimer.waking.calls == ["tick"]

    def test_told_to_stop_it_claims_no_more_and_finishes_what_is_in_flight(
        self, connection: Connection, database_url: str
    ) -> None:
        make_endpoint(connection, policy={"limits": {"concurrency": 1}})
        post(connection, b"1", b"2", b"3")
        let_go = asyncio.Event()

        async def wait() -> Response:
            await let_go.wait()
            return answer(200)

        claimer = Claimer(database_url, ScriptedSender(lambda _r, _n: wait()))

        async def work() -> None:
            async with running(claimer):
                await until(lambda: bool(claimer.sender.requests))
                claimer.loop.stop()
                await until(lambda: not count(connection, "forbear.claimers"))
                let_go.set()

        run(work())
        assert len(claimer.sender.requests) == 1
        assert finished(connection) == {"delivered": 1}
        assert "successor" not in claimer.waking.calls


class TestLosingTheDatabase:
    def kill(self, connection: Connection) -> int:
        """Terminate the claimers' connections to this test's database."""
        killed = connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'forbear' AND datname = current_database()"
        ).fetchall()
        return len(killed)

    def test_connections_killed_again_and_again_lose_nothing(
        self,
        connection: Connection,
        connect: Callable[[], Connection],
        database_url: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(loop_module, "LATER_S", 0.02)
        for n in range(10):
            make_endpoint(connection, event_types=(f"t{n}",), policy=QUICK)
            post(connection, *[b"%d" % n] * 60, event_type=f"t{n}")

        async def send(number: int) -> Response:
            await asyncio.sleep(0.002 * (number % 20))
            return answer(500 if number % 10 == 9 else 200)

        claimer = Claimer(database_url, ScriptedSender(lambda _, number: send(number)), in_flight=50)
        killer = connect()
        kills = 0

        async def work() -> None:
            nonlocal kills
            async with running(claimer) as task:
                while not task.done() and kills < 25:
                    sent = len(claimer.sender.requests)
                    await until(lambda sent=sent: task.done() or len(claimer.sender.requests) > sent + 5)  # type: ignore[misc]
                    kills += self.kill(killer)
                claimer.loop.stop()

        run(work())
        assert kills > 5
        assert "database unavailable" in caplog.text
        move_clock(connection, seconds=LEASE_S)
        last = Claimer(database_url, always(200))
        run(last.run())
        assert sum(finished(connection).values()) == 600
        assert count(connection, "forbear.queue") == 0
        wrong = (
            "(SELECT h.id FROM forbear.history h LEFT JOIN forbear.history_attempts a ON a.delivery_id = h.id"
            " GROUP BY h.id, h.attempts HAVING count(*) <> h.attempts) w"
        )
        assert count(connection, wrong) == 0

    def test_a_settle_whose_answer_was_lost_counts_failures_once(
        self, connection: Connection, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(loop_module, "LATER_S", 0.02)
        endpoint_id = make_endpoint(connection, policy=SLOW)
        post(connection, *[b"1"] * 3)

        class Forgetful(CountingStore):
            settles = 0

            async def settle(self, *arguments: Any) -> Any:
                settled = await super().settle(*arguments)
                self.settles += 1
                if self.settles == 1:
                    raise Unavailable("the answer was lost")
                return settled

        claimer = Claimer(database_url, always(500), store=Forgetful)
        run(claimer.run())
        assert breaker(connection, endpoint_id).failures == 3
        assert [len(attempts(connection, row[0])) for row in connection.execute("SELECT id FROM forbear.queue")] == [
            1
        ] * 3

    def test_without_a_database_it_says_so(self, database_url: str) -> None:
        claimer = Claimer("postgresql://nobody@127.0.0.1:1/none", always(200))
        with pytest.raises(Unavailable, match="cannot be reached"):
            run(claimer.run())


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
