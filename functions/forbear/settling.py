"""Settling what attempts came to: batches, the breakers that they change, and what came too late.

Owns the results that wait and the breakers as this claimer knows them. Knows no SQL, and not when to settle: that is
the loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from forbear.attempting import Attempted
from forbear.db import Unavailable
from forbear.leases import Lease
from forbear.policy.breaker import Breaker, after
from forbear.policy.verdict import Verdict
from forbear.store import BreakerChange, Store

logger = logging.getLogger(__name__)

BATCH = 500
# A result's outcome, and what counts it.
TALLIED = {"delivered": "delivered", "retry": "retried", "dead": "dead", "return": "returned"}


@dataclass(slots=True)
class Tally:
    """What a claimer did in its life: attempts by verdict, and everything else it moved."""

    claimed: int = 0
    settled: int = 0
    delivered: int = 0
    retried: int = 0
    dead: int = 0
    returned: int = 0
    late: int = 0
    reaped: int = 0


class Settling:
    """One claimer's results on their way to the database.

    Args:
        store: its database.
        tally: counts what was settled.

    Attributes:
        results: what has ended and is not settled yet, in order.
    """

    def __init__(self, store: Store, tally: Tally) -> None:
        self.results: list[Attempted] = []
        self._tally = tally
        self._store = store
        self._breakers: dict[UUID, Breaker] = {}

    def learn(self, leases: Iterable[Lease]) -> None:
        """Take over the breakers that a claim told."""
        for lease in leases:
            self._breakers[lease.lane.endpoint_id] = lease.lane.breaker

    async def settle(self) -> None:
        """Record a batch, at most `BATCH` results.

        What the database refuses is halved until it is alone: one result must not stop the rest.

        Raises:
            Unavailable: the database cannot be reached; what is not recorded waits on.
        """
        parts = [self.results[:BATCH]]
        self.results = self.results[BATCH:]
        while parts:
            batch = parts.pop()
            try:
                await self._record(batch)
            except (Unavailable, asyncio.CancelledError):
                self.results = [*batch, *(one for part in parts for one in part), *self.results]
                raise
            except Exception:
                if len(batch) == 1:
                    logger.exception("a result cannot be recorded; its lease lapses and the attempt counts as lost")
                else:
                    parts += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]

    async def _record(self, batch: list[Attempted]) -> None:
        changes = self._changes(_by_lane(batch))
        settled = await self._store.settle([one.result for one in batch], changes, _waits(batch), _gone(batch))
        for change in changes:
            self._breakers[change.endpoint_id] = change.after
        on_time = [one for place, one in enumerate(batch) if place not in settled.late]
        for one in on_time:
            name = TALLIED[one.result.outcome]
            setattr(self._tally, name, getattr(self._tally, name) + 1)
        self._tally.settled += len(on_time)
        self._tally.late += len(settled.late)
        await self._judge_again(settled.stale, _by_lane(on_time))
        if settled.late:
            # Lanes with late results were left as they were; what came on time still holds and disables them.
            mixed = {batch[place].result.lease.lane.endpoint_id for place in settled.late}
            again = [one for one in on_time if one.result.lease.lane.endpoint_id in mixed]
            if _waits(again) or _gone(again):
                await self._store.settle([], (), _waits(again), _gone(again))

    def _changes(self, lanes: dict[UUID, list[Attempted]]) -> list[BreakerChange]:
        """The breakers that results change, in the order of their lanes."""
        changes = []
        for endpoint_id in sorted(lanes):
            before = self._breakers[endpoint_id]
            rule = lanes[endpoint_id][0].result.lease.lane.policy.breaker
            changed = after(rule, before, [one.outcome for one in lanes[endpoint_id]], self._store.now())
            if changed is not before:
                changes.append(BreakerChange(endpoint_id, before, changed))
        return changes

    async def _judge_again(self, stale: dict[UUID, Breaker], lanes: dict[UUID, list[Attempted]]) -> None:
        """Another claimer changed these breakers meanwhile: judge the same outcomes from what they are now.

        Late results do not count again: if this batch is settled for the second time, they have been counted.
        """
        for _ in range(5):
            self._breakers.update(stale)
            changes = self._changes({endpoint_id: lanes[endpoint_id] for endpoint_id in stale if endpoint_id in lanes})
            if not changes:
                return
            stale = (await self._store.settle([], changes)).stale
            for change in changes:
                self._breakers[change.endpoint_id] = stale.get(change.endpoint_id, change.after)
        if stale:
            logger.warning("%d breakers changed too often to count this batch's failures", len(stale))


def _waits(batch: list[Attempted]) -> dict[UUID, float]:
    """For how many seconds whose deliveries must wait, since a 429 or a 503 said so."""
    waits: dict[UUID, float] = defaultdict(float)
    for one in batch:
        if one.hold_lane_s is not None:
            lane = one.result.lease.lane.endpoint_id
            waits[lane] = max(waits[lane], one.hold_lane_s)
    return waits


def _gone(batch: list[Attempted]) -> list[UUID]:
    """The endpoints that answered 410."""
    return sorted({one.result.lease.lane.endpoint_id for one in batch if one.outcome.verdict is Verdict.GONE})


def _by_lane(batch: list[Attempted]) -> dict[UUID, list[Attempted]]:
    """The results by endpoint, in the order in which the attempts ended."""
    lanes: dict[UUID, list[Attempted]] = defaultdict(list)
    for one in sorted(batch, key=lambda attempted: attempted.finished):
        lanes[one.result.lease.lane.endpoint_id].append(one)
    return lanes
