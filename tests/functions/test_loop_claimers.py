"""Several claim loops at once, and what one does beside its deliveries."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from forbear import loop as loop_module
from forbear.policy.breaker import BreakerState
from forbear.sender import Response
from tests.functions.builders import make_endpoint, move_clock, one, post, run
from tests.functions.queue.leasing import breaker, claim, count, endings, fetch, settle
from tests.functions.scripted import (
    QUICK,
    SLOW,
    Claimer,
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
        assert endings(connection) == {"delivered": 2000}
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
        assert sum(endings(connection).values()) + count(connection, "forbear.queue") == 300
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
        assert endings(connection) == {"delivered": 50}
        assert sum(claimer.store.claims > 0 for claimer in claimers) == 2

    def test_failures_seen_by_two_claimers_open_the_breaker_once(
        self, connection: Connection, database_url: str
    ) -> None:
        endpoint_id = make_endpoint(connection, policy=SLOW | {"breaker": {"failures": 6}})
        meeting = asyncio.Barrier(2)

        async def fail_together() -> Response:
            await meeting.wait()
            return answer(500)

        async def work() -> None:
            for _ in range(3):
                post(connection, b"1", b"2")
                # One byte of payload is all that either holds at a time, so each takes one of two.
                claimers = [
                    Claimer(database_url, ScriptedSender(lambda _r, _n: fail_together()), payload_bytes=1, linger_s=0.3)
                    for _ in range(2)
                ]
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
        assert endings(connection) == {"delivered": 6}

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
        assert endings(connection) == {"delivered": 3}
        assert {header(request, b"forbear-replay")[:4] for request in claimer.sender.requests} == {"rpl_"}
        assert {header(request, b"forbear-attempt") for request in claimer.sender.requests} == {"2"}

    def test_a_step_that_fails_ends_the_claimer_and_is_no_secret(
        self, connection: Connection, database_url: str
    ) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        self.replay(connection)
        connection.execute("ALTER FUNCTION forbear.step_replay RENAME TO away")
        with pytest.raises(psycopg.errors.UndefinedFunction):
            run(Claimer(database_url, always(200)).run())

    def test_a_cancelled_replay_is_undone_though_the_day_has_no_partition_yet(
        self, connection: Connection, database_url: str
    ) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        self.replay(connection)
        connection.execute("UPDATE forbear.replays SET state = 'running', cancelled_at = forbear.now()")
        connection.execute(
            "UPDATE forbear.queue SET replay_id = r.id, due_at = due_at + interval '99 days' FROM forbear.replays r"
        )
        connection.execute("DELETE FROM forbear.wakes")
        connection.execute("UPDATE forbear.clock SET shift = '20 days'")
        run(Claimer(database_url, always(200)).run())
        assert one(connection, "SELECT state FROM forbear.replays") == "cancelled"
        assert endings(connection) == {"cancelled": 1}

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
