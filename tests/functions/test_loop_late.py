from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import psycopg

from forbear.db import Unavailable
from forbear.policy.breaker import BreakerState
from forbear.policy.verdict import ErrorClass
from forbear.sender import Response
from forbear.store import Result
from tests.functions.builders import make_endpoint, move_clock, one, post, run
from tests.functions.queue.leasing import breaker
from tests.functions.scripted import Claimer, CountingStore, ScriptedSender, answer, failure, running, until

type Connection = psycopg.Connection[tuple[Any, ...]]


def test_late_failures_of_a_claimer_that_was_frozen_open_no_breaker(connection: Connection, database_url: str) -> None:
    endpoint_id = make_endpoint(connection, policy={"breaker": {"failures": 3}})
    gone_id = make_endpoint(connection, tenant="gone")
    post(connection, *[b"1"] * 6)
    post(connection, b"1", tenant="gone")

    async def frozen() -> Any:
        thaw = asyncio.Event()

        async def slow(number: int) -> Response:
            await thaw.wait()
            return answer(410) if number == 6 else failure(ErrorClass.TIMEOUT)

        def script(_request: Any, number: int) -> Any:
            return slow(number) if number < 7 else answer(200)

        claimer = Claimer(database_url, ScriptedSender(script))
        async with running(claimer, 30) as task:
            await until(lambda: len(claimer.sender.requests) == 7)
            move_clock(connection, seconds=60)
            thaw.set()
            await until(lambda: one(connection, "SELECT count(*) FROM forbear.history WHERE state = 'delivered'") == 7)
            claimer.loop.stop()
            return await task

    tally = run(frozen())
    assert tally.late == 7
    state = breaker(connection, endpoint_id)
    assert (state.state, state.failures) == (BreakerState.CLOSED, 0)
    assert one(connection, "SELECT disabled_at FROM forbear.lanes WHERE endpoint_id = %s", gone_id) is None


def test_what_came_on_time_beside_a_late_result_still_disables_and_holds(
    connection: Connection, database_url: str
) -> None:
    gone_id = make_endpoint(connection, tenant="gone")
    busy_id = make_endpoint(connection, tenant="busy")
    for tenant in ("gone", "busy"):
        post(connection, b"late", b"on time", tenant=tenant)

    async def half_late() -> Any:
        together = asyncio.Event()

        async def script(request: Any) -> Response:
            await together.wait()
            return answer(429, retry_after="600") if str(request.url).endswith("/busy") else answer(410)

        sender = ScriptedSender(lambda request, number: script(request) if number < 4 else answer(200))
        claimer = Claimer(database_url, sender)
        async with running(claimer, 30) as task:
            await until(lambda: len(claimer.sender.requests) == 4)
            connection.execute(
                "UPDATE forbear.queue SET lease_until = forbear.now() WHERE event_id IN"
                " (SELECT id FROM forbear.events WHERE payload = 'late')"
            )
            together.set()
            return await task  # with nothing that may go, it falls asleep

    connection.execute("UPDATE forbear.endpoints SET url = url || 'busy' WHERE id = %s", (busy_id,))
    assert run(half_late()).late == 2
    held = "SELECT disabled_reason IS NOT NULL, wait_until > forbear.now() FROM forbear.lanes WHERE endpoint_id = %s"
    assert connection.execute(held, (gone_id,)).fetchone() == (True, False)
    assert connection.execute(held, (busy_id,)).fetchone() == (False, True)


def test_what_was_claimed_along_with_late_results_is_sent_whatever_becomes_of_these(
    connection: Connection, database_url: str
) -> None:
    failures: list[int] = []

    class Failing(CountingStore):
        async def keep_late(self, results: Sequence[Result], late: Iterable[int]) -> None:
            places = list(late)
            if places and not failures:
                failures.extend(places)
                raise Unavailable("the connection was lost")
            await super().keep_late(results, places)

    make_endpoint(connection)
    post(connection, b"late")

    async def work() -> None:
        thaw = asyncio.Event()

        async def slow() -> Response:
            await thaw.wait()
            return answer(200)

        claimer = Claimer(
            database_url, ScriptedSender(lambda _, number: slow() if number == 0 else answer(200)), store=Failing
        )
        async with running(claimer, 30):
            await until(lambda: len(claimer.sender.requests) == 1)
            move_clock(connection, seconds=60)
            # In one step for the loop: what is late and what is due go into the same turn.
            post(connection, *[b"claimed"] * 20)
            thaw.set()
            await until(lambda: one(connection, "SELECT count(*) FROM forbear.history WHERE state = 'delivered'") == 21)
            claimer.loop.stop()

    run(work())
    assert failures
    lost = "SELECT count(*) FROM forbear.history_attempts a WHERE a.verdict = 'lost' AND NOT a.late"
    assert one(connection, lost) == 0
    assert one(connection, "SELECT max(attempts) FROM forbear.history h WHERE h.payload_bytes = 7") == 1
