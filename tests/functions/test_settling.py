"""What several claimers make of one endpoint's outcomes together."""

from __future__ import annotations

import random
import time
from typing import Any

import psycopg

from forbear.attempting import Attempted, judged
from forbear.leases import Lease
from forbear.policy.breaker import BreakerState
from forbear.policy.verdict import Answer, decide
from forbear.sender import Response
from forbear.settling import Settling, Tally
from forbear.store import Store
from tests.functions.builders import data_keys, make_endpoint, post
from tests.functions.queue.leasing import control

type Connection = psycopg.Connection[tuple[Any, ...]]


class Claimer:
    """A claimer without its loop."""

    def __init__(self, url: str) -> None:
        self.store = Store(url, data_keys())
        self.settling = Settling(self.store, Tally())

    async def claim(self, number: int) -> list[Lease]:
        leases = await self.store.claim(number, 1 << 20, 1000)
        self.settling.learn(leases)
        return leases

    async def settle(self, lease: Lease, status: int) -> None:
        self.settling.results = [self._answered(lease, status)]
        await self.settling.settle()

    def _answered(self, lease: Lease, status: int) -> Attempted:
        now, at = self.store.now(), time.monotonic()
        decision = decide(lease.lane.policy, Answer(status, None, ()), lease.progress, now, random.Random(1))
        response = Response(status, b"", (), b"", None, "", 0.1, None)
        return judged(lease, response, decision, headers=b"", started=now, began=at, finished=at)


async def test_a_success_ends_the_row_of_failures_that_another_claimer_counted(
    connection: Connection, database_url: str
) -> None:
    """One claimer has seen no failure, the other no success; between them there are never five in a row."""
    endpoint_id = make_endpoint(connection)
    post(connection, *[b"1"] * 20)
    fine, failing = Claimer(database_url), Claimer(database_url)
    successes = iter(await fine.claim(15))
    connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now()")
    failures = await failing.claim(5)
    assert len(failures) == 5
    for lease in failures:
        await failing.settle(lease, 500)
        await fine.settle(next(successes), 200)
    state = control(connection, endpoint_id)
    assert (state.breaker.state, state.breaker.failures, state.trouble) == (BreakerState.CLOSED, 0, None)
    await fine.store.aclose()
    await failing.store.aclose()
