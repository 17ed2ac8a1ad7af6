"""How a claim loop falls asleep, ends, and survives the loss of its database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import psycopg
import pytest

from forbear import loop as loop_module
from forbear import store as store_module
from forbear.db import Unavailable
from forbear.loop import ClaimLoop, Limits
from forbear.sender import Request, Response
from tests.functions.builders import make_endpoint, move_clock, one, post, run
from tests.functions.queue.leasing import LEASE_S, attempts, breaker, claim, count, endings, fetch
from tests.functions.scripted import (
    QUICK,
    SLOW,
    Claimer,
    CountingStore,
    RememberingWaking,
    ScriptedSender,
    always,
    answer,
    header,
    running,
    until,
)

type Connection = psycopg.Connection[tuple[Any, ...]]


def only(connection: Connection) -> Any:
    """The only delivery."""
    return fetch(connection, "SELECT * FROM forbear.deliveries")


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
        make_endpoint(connection, policy={"schedule": {"kind": "ladder", "gaps_s": [0.4], "jitter": {"kind": "none"}}})
        post(connection, b"1")
        claimer = Claimer(database_url, ScriptedSender(lambda _, n: answer(500 if n == 0 else 200)), tick_s=1.0)
        run(claimer.run())
        assert endings(connection) == {"delivered": 1}
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
        assert endings(connection) == {"delivered": 1}

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
            bounds = Limits(linger_s=0.0, tick_s=1.0)
            await ClaimLoop(claimer.store, claimer.sender, claimer.waking, bounds, random.Random(1)).run(60)
            await claimer.store.aclose()

        run(work())
        now = fetch(connection, "SELECT extract(epoch FROM forbear.now())::float8 AS s").s
        assert abs(int(header(claimer.sender.requests[0], b"webhook-timestamp")) - now) < 60


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
        assert endings(connection) == {"delivered": 1}
        assert count(connection, "forbear.queue WHERE lease_token IS NULL") == 1
        assert count(connection, f"forbear.claimers WHERE id = '{claimer.loop.id}'") == 0

    def test_at_the_very_end_it_breaks_off_what_is_in_flight_and_settles_the_rest(
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
        assert endings(connection) == {"delivered": 2}
        left = fetch(connection, "SELECT id FROM forbear.queue WHERE lease_token IS NULL")
        assert [a.verdict for a in attempts(connection, left.id)] == ["lost"], "nobody knows what became of it"
        run(Claimer(database_url, always(200)).run())
        assert endings(connection) == {"delivered": 3}

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
        assert endings(connection) == {"delivered": 1}
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

        def went_on(task: asyncio.Task[Any], sent: int) -> bool:
            return task.done() or len(claimer.sender.requests) > sent + 5

        async def work() -> None:
            nonlocal kills
            async with running(claimer) as task:
                while not task.done() and kills < 25:
                    sent = len(claimer.sender.requests)
                    await until(partial(went_on, task, sent))
                    kills += self.kill(killer)
                claimer.loop.stop()

        run(work())
        assert kills > 5
        assert "database unavailable" in caplog.text
        move_clock(connection, seconds=LEASE_S)
        last = Claimer(database_url, always(200))
        run(last.run())
        assert sum(endings(connection).values()) == 600
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

            async def turn(self, settlement: Any = None, room: Any = None, *, step: bool = False) -> Any:
                turned = await super().turn(settlement, room, step=step)
                self.settles += settlement is not None
                if settlement is not None and self.settles == 1:
                    raise Unavailable("the answer was lost")
                return turned

        claimer = Claimer(database_url, always(500), store=Forgetful)
        run(claimer.run())
        assert breaker(connection, endpoint_id).failures == 3
        assert [len(attempts(connection, row[0])) for row in connection.execute("SELECT id FROM forbear.queue")] == [
            1
        ] * 3

    def test_a_statement_that_hangs_is_given_up_and_done_again_without_counting_twice(
        self,
        connection: Connection,
        connect: Callable[[], Connection],
        database_url: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(store_module, "PATIENCE_S", 0.4)
        monkeypatch.setattr(loop_module, "LATER_S", 0.02)
        endpoint_id = make_endpoint(connection, policy=SLOW)
        post(connection, *[b"1"] * 3)
        holder = connect()

        def hold_the_lane(_request: Request, number: int) -> Response:
            if number == 2:
                holder.execute("BEGIN")
                holder.execute("SELECT FROM forbear.lanes FOR NO KEY UPDATE")
            return answer(500)

        claimer = Claimer(database_url, ScriptedSender(hold_the_lane))
        waited: set[int] = set()

        def twice_it_waited() -> bool:
            rows = connection.execute(
                "SELECT pid FROM pg_stat_activity"
                " WHERE application_name = 'forbear' AND wait_event_type = 'Lock' AND datname = current_database()"
            ).fetchall()
            waited.update(row[0] for row in rows)
            return len(waited) > 1

        async def work() -> None:
            async with running(claimer):
                await until(twice_it_waited)
                holder.execute("COMMIT")

        run(work())
        assert breaker(connection, endpoint_id).failures == 3
        assert count(connection, "forbear.queue WHERE tries = 1 AND lease_token IS NULL") == 3
        assert count(connection, "forbear.queue_attempts") == 3

    def test_without_a_database_it_says_so(self, database_url: str) -> None:
        claimer = Claimer("postgresql://nobody@127.0.0.1:1/none", always(200))
        with pytest.raises(Unavailable, match="cannot be reached"):
            run(claimer.run(1.0))
