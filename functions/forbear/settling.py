"""Settling what attempts came to: batches, what they change about their lanes, and what came too late.

Owns the results that wait, the control of the lanes as this claimer knows it, and the latencies that it saw of them.
Knows no SQL, and not when to settle: that is the loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from uuid import UUID

from forbear.attempting import Attempted
from forbear.db import Unavailable
from forbear.latencies import Latencies
from forbear.leases import Lease
from forbear.measuring import count_settled
from forbear.metrics import SETTLE_LATENCY, Collector
from forbear.policy.control import Control, after, disable_reason
from forbear.policy.verdict import Verdict
from forbear.store import LaneChange, Room, Settled, Settlement, Store, Turned

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
        collector: measures it; None: nobody wants to know.

    Attributes:
        results: what has ended and is not settled yet, in order.
    """

    def __init__(self, store: Store, tally: Tally, collector: Collector | None = None) -> None:
        self.results: list[Attempted] = []
        self._tally = tally
        self._collector = collector or Collector()
        self._store = store
        self._controls: dict[UUID, Control] = {}
        self._latencies = Latencies()

    def learn(self, leases: Iterable[Lease]) -> None:
        """Take over the lanes' control that a claim told."""
        for lease in leases:
            self._controls[lease.lane.endpoint_id] = lease.lane.control

    async def settle(
        self, room: Room | None = None, *, step: bool = False, take: Callable[[Turned], None] = lambda _: None
    ) -> None:
        """Record a batch, at most `BATCH` results, and have more done in the same round trip.

        What the database refuses is halved until it is alone: one result must not stop the rest.

        Args:
            room: what to claim, if anything.
            step: whether to work on a due replay.
            take: is given what came of the whole, before anything else is asked: it holds leases that run. Not called
                if the batch had to be halved, for then nothing else was done.

        Raises:
            Unavailable: the database cannot be reached; what is not recorded waits on.
        """
        parts = [self.results[:BATCH]]
        self.results = self.results[BATCH:]
        while parts:
            batch = parts.pop()
            try:
                await self._record(batch, room, step=step, take=take)
            except (Unavailable, asyncio.CancelledError):
                self.results = [*batch, *(one for part in parts for one in part), *self.results]
                raise
            except Exception:
                if len(batch) == 1:
                    logger.exception("a result cannot be recorded; its lease lapses and the attempt counts as lost")
                else:
                    parts += [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
            room, step, take = None, False, lambda _: None

    async def _record(
        self, batch: list[Attempted], room: Room | None, *, step: bool, take: Callable[[Turned], None]
    ) -> None:
        lanes = _by_lane(batch)
        changes = self._changes(lanes)
        same = lanes.keys() - {change.endpoint_id for change in changes if change.after is not None}
        known = {endpoint_id: self._controls[endpoint_id] for endpoint_id in same}
        results = [one.result for one in batch]
        turned = await self._store.turn(Settlement(results, changes, known), room, step=step)
        settled = turned.settled or Settled(frozenset(), {})
        self._take_over(changes, settled.stale)
        take(turned)
        await self._store.keep_late(results, settled.late)
        self._collector.sample(SETTLE_LATENCY, [turned.took_s * 1000])
        self._latencies.add(lanes)
        on_time = [one for place, one in enumerate(batch) if place not in settled.late]
        for one in on_time:
            name = TALLIED[one.result.outcome]
            setattr(self._tally, name, getattr(self._tally, name) + 1)
        self._tally.settled += len(on_time)
        self._tally.late += len(settled.late)
        count_settled(self._collector, on_time, self._store.now())
        # Lanes with late results were left as they were; what came on time still counts for them. If this batch is
        # settled for the second time, its results are late and have been counted.
        again = {batch[place].result.lease.lane.endpoint_id for place in settled.late} | settled.stale.keys()
        if again:
            await self._judge_again({lane: own for lane, own in _by_lane(on_time).items() if lane in again})

    def _changes(self, lanes: dict[UUID, list[Attempted]]) -> list[LaneChange]:
        """What results change about their lanes, in the order of the lanes."""
        changes = []
        for endpoint_id in sorted(lanes):
            own = lanes[endpoint_id]
            policy = own[-1].result.lease.lane.policy
            before = self._controls[endpoint_id]
            slow = self._latencies.slow(endpoint_id, policy.adaptive, self._store.monotonic())
            changed = after(policy, before, [one.outcome for one in own], self._store.now(), slow=slow)
            gone = next((one.outcome.status for one in own if one.outcome.verdict is Verdict.GONE), None)
            # What an earlier batch found is not found again: somebody may have enabled the endpoint since.
            why = None if changed is before else disable_reason(policy.disable, changed)
            change = LaneChange(
                endpoint_id,
                before,
                None if changed is before else changed,
                max((one.hold_lane_s for one in own if one.hold_lane_s is not None), default=None),
                why if gone is None else f"gone: the receiver answered {gone}",
            )
            if change.after is not None or change.wait_s is not None or change.disable is not None:
                changes.append(change)
        return changes

    def _take_over(self, changes: list[LaneChange], stale: dict[UUID, Control]) -> None:
        """Know from now on what was written, and what others had written before."""
        for change in changes:
            if change.after is not None:
                self._controls[change.endpoint_id] = replace(change.after, version=change.before.version + 1)
            if change.disable is not None and change.endpoint_id not in stale:
                logger.warning("endpoint %s is disabled: %s", change.endpoint_id, change.disable)
        self._controls.update(stale)

    async def _judge_again(self, lanes: dict[UUID, list[Attempted]]) -> None:
        """Judge outcomes again from what another claimer made of their lanes meanwhile."""
        for _ in range(5):
            changes = self._changes(lanes)
            if not changes:
                return
            stale = (await self._store.settle([], changes)).stale
            self._take_over(changes, stale)
            lanes = {endpoint_id: lanes[endpoint_id] for endpoint_id in stale}
        if lanes:
            logger.warning("%d endpoints changed too often to count this batch's outcomes", len(lanes))


def _by_lane(batch: list[Attempted]) -> dict[UUID, list[Attempted]]:
    """The results by endpoint, in the order in which the attempts ended."""
    lanes: dict[UUID, list[Attempted]] = defaultdict(list)
    for one in sorted(batch, key=lambda attempted: attempted.finished):
        lanes[one.result.lease.lane.endpoint_id].append(one)
    return lanes
