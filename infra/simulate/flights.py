"""The deliveries of a simulation: which are due, which are in flight, and what the simulated receiver makes of each.

Owns what the database cannot tell in time: when a delivery that was claimed a moment ago fell due, and when its answer
comes. Pure but for the random sources that it is given; times are virtual seconds.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random

from forbear.attempting import Attempted
from forbear.leases import Lease
from infra.simulate.pace import Pace
from infra.simulate.receivers import Reply, Working
from infra.simulate.seam import attempted
from infra.simulate.series import Counts
from infra.simulate.world import number_of

# When it ends, which delivery's it is, its lease, when it began, and what will have come of it.
type Flight = tuple[float, int, Lease, float, Reply]


@dataclass(slots=True)
class Flights:
    """The deliveries of one run.

    Args:
        times: When each arrives, in order.
        receiver: Where they go.
        timeout_s: How long an attempt may take.
        jitter: For the waits between attempts.
        counts: Is told what happens.
        pace: Is told how answers come.

    Attributes:
        waiting: How many are due and not claimed.
    """

    times: array[float]
    receiver: Working
    timeout_s: float
    jitter: Random
    counts: Counts
    pace: Pace
    waiting: int = field(default=0, init=False)
    _arrived: int = field(default=0, init=False)
    _due: array[float] = field(init=False)  # by delivery: when it is due, or was last
    _retries: list[float] = field(default_factory=list, init=False)  # when those that wait for a retry are due; a heap
    _flying: list[Flight] = field(default_factory=list, init=False)  # a heap

    def __post_init__(self) -> None:
        self._due = self.times[:]
        self.counts.add(self.counts.arrivals, self.times)

    def move_to(self, now: float) -> None:
        """Count what has fallen due."""
        arrived = bisect_right(self.times, now, self._arrived)
        self.waiting += arrived - self._arrived
        self._arrived = arrived
        while self._retries and self._retries[0] <= now:
            heappop(self._retries)
            self.waiting += 1

    def ordered(self, leases: Sequence[Lease]) -> list[Lease]:
        """What a claim brought, in the order in which it fell due."""
        due = self._due
        numbers = [number_of(lease.delivery_id) for lease in leases]
        order = sorted(range(len(leases)), key=lambda place: (due[numbers[place]], numbers[place]))
        return [leases[place] for place in order]

    def send(self, leases: Sequence[Lease], before: float, now: float) -> None:
        """Begin attempts: each when it fell due, if that was after the step before, else now, when it was let go."""
        began = []
        for lease in leases:
            number = number_of(lease.delivery_id)
            due = self._due[number]
            at = due if due > before else now
            began.append(at)
            reply = self.receiver.receive(at, self.timeout_s)
            heappush(self._flying, (at + reply.latency_s, number, lease, at, reply))
        self.counts.add(self.counts.attempts, began)

    def ended(self, now: float) -> list[Attempted]:
        """What has ended by now, to be settled at once: those that come back count as due from then on."""
        results, delivered, dead = [], [], []
        while self._flying and self._flying[0][0] <= now:
            end, number, lease, began, reply = heappop(self._flying)
            one = attempted(lease, reply, began, now, self.jitter)
            results.append(one)
            outcome = one.result.outcome
            self.pace.answered(reply.latency_s, failed=outcome != "delivered")
            if outcome == "delivered":
                delivered.append(end)
            elif outcome == "dead":
                dead.append(end)
            else:
                self._due[number] = now + one.result.delay_s
                heappush(self._retries, self._due[number])
        self.counts.add(self.counts.successes, delivered)
        self.counts.add(self.counts.dead, dead)
        return results

    def drop(self, number: int, now: float) -> None:
        """Some of what is due has ended without an attempt."""
        self.waiting -= number
        self.counts.add(self.counts.dead, [now] * number)

    @property
    def in_flight(self) -> int:
        """How many attempts are under way."""
        return len(self._flying)

    @property
    def next_end(self) -> float:
        """When the next attempt ends; infinity when none is under way."""
        return self._flying[0][0] if self._flying else float("inf")

    @property
    def next_due(self) -> float:
        """When the next delivery falls due; infinity when none will as things are."""
        arrival = self.times[self._arrived] if self._arrived < len(self.times) else float("inf")
        return min(arrival, self._retries[0]) if self._retries else arrival
