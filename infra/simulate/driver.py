"""The course of a simulation: step by step through virtual time, from one thing that happens to the next.

Owns when a step is and what belongs to it. At each one the clock is set, what has ended is settled, and what is due is
claimed, by the statements and functions that a claimer uses; a claimer of the simulation has slots without number and
needs no time. Everything is a function of scenario, policy and seed.

Steps are coalesced. While something holds deliveries back or fails, they are milliseconds apart, as a claimer's looks
are. While all is well, or if the policy holds nothing back whatever happens, a step stands for many seconds: each
delivery begins when it fell due all the same, and each answer takes effect when it came.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from itertools import batched
from random import Random
from typing import Final

from forbear.attempting import Attempted
from forbear.data_keys import DataKeys
from forbear.leases import Lease
from forbear.policy.model import Policy
from forbear.settling import Settling, Tally
from forbear.store import Store
from forbear.vault import Purpose
from infra.simulate.arrivals import arrivals
from infra.simulate.flights import Flights
from infra.simulate.pace import Pace
from infra.simulate.receivers import Working
from infra.simulate.reins import Reins
from infra.simulate.scenarios import Scenario
from infra.simulate.series import Counts, Run
from infra.simulate.world import PAYLOAD, Bare, World, world

# Far more slots than the claims ever fill; it is their bytes that bound one.
SLOTS: Final = 200_000
FREE: Final = 3 * SLOTS
CLAIMED_AT_ONCE: Final = 250
# So much is worked on before the database's answer may come in between.
WORKED_ON_AT_ONCE: Final = 50

type Progress = Callable[[float], None]


async def simulate(
    url: str, scenario: Scenario, policy: Policy, *, name: str, seed: int, progress: Progress = lambda _: None
) -> Run:
    """Run a policy through a scenario.

    Args:
        url: PostgreSQL connection URL of a fresh, migrated database.
        scenario: What happens.
        policy: The endpoint's policy; the scenario may set its timeout.
        name: What the run calls it.
        seed: For arrivals, failures and jitter. The same one gives the same run, and the same arrivals to each policy.
        progress: Called after each step with the virtual time that has been reached.
    """
    if scenario.timeout_s is not None:
        policy = policy.model_copy(update={"timeout_s": scenario.timeout_s})
    times = arrivals(scenario.rate_per_s, scenario.duration_s, _stream(seed, "arrivals"))
    counts = Counts(scenario.step_s, scenario.duration_s)
    pace = Pace(policy, scenario.receiver, scenario.rate_per_s)
    receiver = Working(scenario.receiver, _stream(seed, "receiver"))
    flights = Flights(times, receiver, policy.timeout_s, _stream(seed, "jitter"), counts, pace)
    async with world(url, policy, times, scenario.duration_s) as opened:
        course = _Course(opened, url, policy, flights, scenario.duration_s)
        try:
            await course.run(progress)
        finally:
            await course.aclose()
    return Run(
        policy=name,
        scenario=scenario.name,
        seed=seed,
        step_s=scenario.step_s,
        duration_s=scenario.duration_s,
        intervals=counts.intervals(),
        breaker=tuple(counts.breaker),
        disabled=course.disabled,
    )


def _stream(seed: int, name: str) -> Random:
    """A source of randomness of its own for each use: so policies differ in nothing but what they do."""
    return Random(f"{seed} {name}")  # noqa: S311 - nothing here is secret


class _Course:
    """One run.

    Args:
        opened: Its database.
        url: The same, for the store.
        policy: The endpoint's policy.
        flights: Its deliveries.
        duration_s: How long it is.
    """

    def __init__(self, opened: World, url: str, policy: Policy, flights: Flights, duration_s: float) -> None:
        self.disabled: str | None = None
        self._world = opened
        self._flights = flights
        self._pace = flights.pace
        self._duration_s = duration_s
        self._drops = policy.breaker is not None and policy.breaker.dead_letter
        self._now = 0.0
        self._before = -1.0  # the step before this one
        self._store = Store(url, DataKeys(Purpose.SECRETS, Bare), lambda: self._now)
        self._tally = Tally()
        self._settling = Settling(self._store, self._tally)
        self._ready_s = math.inf  # when the lane may give more of what is due
        self._reins = Reins(opened)
        self._handed = 0  # results to settle
        self._kept: list[Attempted] = []  # some that may wait for the next step
        # What the database works on while we work, at most two things.
        self._claiming: asyncio.Task[list[Lease]] | None = None
        self._recording: asyncio.Task[None] | None = None

    async def run(self, progress: Progress) -> None:
        """Go on until the end."""
        while True:
            await self._world.move_to(self._now)
            ended = self._kept + self._flights.ended(self._now)
            self._kept = []
            self._flights.move_to(self._now)
            await (self._step_ahead(ended) if self._pace.calm else self._step_warily(ended))
            await self._look()
            progress(self._now)
            if self._now >= self._duration_s:
                await self._settle(self._kept)
                return
            self._before, self._now = self._now, self._next()

    async def aclose(self) -> None:
        """Break off what is under way, and close the connection."""
        under_way = [task for task in (self._claiming, self._recording) if task is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._store.aclose()

    async def _step_warily(self, ended: list[Attempted]) -> None:
        """Settle, claim what is due and may go, and settle what came of it at once before there is more."""
        await self._settle(ended)
        dropped = 0
        while self._flights.waiting > 0:
            leases = await self._claim()
            self._flights.send(leases, self._before, self._now)
            results = self._flights.ended(self._now)
            await self._settle(results)
            self._flights.move_to(self._now)
            if leases and (results or len(leases) == CLAIMED_AT_ONCE):
                continue
            dropped_now = (await self._world.lane()).dropped if self._drops else 0
            if dropped_now == dropped:
                return  # it gave what it could, and nothing has changed since
            self._flights.drop(dropped_now - dropped, self._now)
            dropped = dropped_now

    async def _step_ahead(self, ended: list[Attempted]) -> None:
        """The same while nothing that comes of it matters to the next claim: the database works on that meanwhile.

        What has succeeded changes nothing either, so the last of it is kept for the next step.
        """
        self._claiming = self._claim_if_due()
        self._recording = asyncio.create_task(self._settle(ended))
        while self._claiming is not None:
            leases = await self._claiming
            self._claiming = self._claim_if_due() if leases else None
            results: list[Attempted] = []
            for some in batched(leases, WORKED_ON_AT_ONCE, strict=False):
                self._flights.send(some, self._before, self._now)
                results += self._flights.ended(self._now)
                await asyncio.sleep(0)
            await self._recording
            if self._claiming is None and all(one.result.outcome == "delivered" for one in results):
                self._kept = results
                return
            self._recording = asyncio.create_task(self._settle(results))
            if self._claiming is None:
                await self._recording
                self._flights.move_to(self._now)
                self._claiming = self._claim_if_due() if leases else None
        await self._recording

    def _claim_if_due(self) -> asyncio.Task[list[Lease]] | None:
        return asyncio.create_task(self._claim()) if self._flights.waiting > 0 else None

    async def _claim(self) -> list[Lease]:
        """Claim a batch of what is due, in the order in which it fell due."""
        leases = await self._store.claim(SLOTS, CLAIMED_AT_ONCE * len(PAYLOAD), FREE)
        self._settling.learn(leases)
        self._flights.waiting -= len(leases)
        self._reins.correct(leases)
        return self._flights.ordered(leases)

    async def _settle(self, results: list[Attempted]) -> None:
        self._settling.results += results
        self._handed += len(results)
        while self._settling.results:
            await self._settling.settle()
        if self._tally.settled != self._handed:
            lost = self._handed - self._tally.settled
            raise RuntimeError(f"{lost} results could not be settled in time, up to {self._now:g} s")

    async def _look(self) -> None:
        """See how the endpoint is, and how long the next step may be."""
        lane = await self._world.lane()
        in_flight = self._flights.in_flight
        self._reins.see(lane.limit, in_flight)
        self.disabled = lane.disabled
        self._ready_s = lane.ready_s
        self._flights.counts.note_breaker(self._now, lane.breaker)
        self._pace.look(self._now, lane.breaker, self._reins.limit, self._flights.waiting, in_flight)
        await self._reins.hold(loose=self._pace.calm)

    def _next(self) -> float:
        """When the next step is: when something happens, though not at once, and at the latest while leases last."""
        flights = self._flights
        due = self._ready_s if flights.waiting > 0 else flights.next_due
        soonest = min(flights.next_end, due, self._world.next_arrival)
        latest = min(flights.next_end + self._reins.margin_s, self._pace.edge_after(self._now), self._duration_s)
        return round(min(max(self._now + self._pace.step_s, soonest), latest), 6)
