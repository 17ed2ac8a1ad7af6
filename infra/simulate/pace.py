"""How far apart the steps of a simulation may be.

Owns what is known of how things go: how long answers take, how many fail, when the receiver changes. Pure.

A step gathers what happens in its time and lets the breaker, the budget and the adaptive concurrency see it all at its
end. That changes nothing while none of them would act, which is what this module is to find out.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Final

from forbear.policy.breaker import BreakerState
from forbear.policy.model import Policy
from infra.simulate.receivers import Receiver

FINEST_S: Final = 0.05
# Against answers that take seconds, a hundredth is as good as a thousandth.
FINE_S: Final = 0.5
LATENCIES_A_STEP: Final = 4
# Deliveries that a step gathers when it may be as long as it likes, and how long that is at most: a step's leases, and
# those of the one before it, last 90 s.
GATHERED: Final = 1_000
COARSEST_S: Final = 50.0
# Under a policy that holds nothing back, steps still order what arrives at a busy receiver.
UNRULED_S: Final = 5.0
# More failures than this share of the latest answers are trouble, and a lane that might be held back soon.
TROUBLE: Final = 0.1
# Less than one in so many of the concurrency is in use while all is well.
USED: Final = 4
_WEIGHT: Final = 0.04


class Pace:
    """The pace of one simulation.

    Args:
        policy: The endpoint's policy.
        receiver: The receiver.
        rate_per_s: How many events arrive a second.
    """

    def __init__(self, policy: Policy, receiver: Receiver, rate_per_s: float) -> None:
        self._edges = receiver.edges
        self._timeout_s = policy.timeout_s
        self._cap = policy.limits.concurrency
        self._latency_s = receiver.latency_s
        self._failing = 0.0
        obeys = receiver.asks_to_wait and policy.retry_after.mode != "ignore"
        limits = policy.limits
        self._ruled = bool(policy.breaker or policy.budget or limits.concurrency or limits.rate_per_s or obeys)
        longest_s = COARSEST_S if self._ruled else UNRULED_S
        if limits.rate_per_s is not None and limits.bucket_size is not None:
            longest_s = min(longest_s, limits.bucket_size / limits.rate_per_s / 2)
        self._coarse_s = max(FINEST_S, min(longest_s, GATHERED / rate_per_s))
        self.calm = not self._ruled

    def answered(self, latency_s: float, *, failed: bool) -> None:
        """Take note of an answer."""
        self._latency_s += _WEIGHT * (latency_s - self._latency_s)
        self._failing += _WEIGHT * (failed - self._failing)

    def look(self, now: float, breaker: str, limit: int | None, waiting: int, in_flight: int) -> None:
        """Decide whether all is calm, at the end of a step.

        Args:
            now: The step's time.
            breaker: The breaker's state.
            limit: The adaptive limit; None at the policy's own.
            waiting: Deliveries that are due and could not be claimed.
            in_flight: Deliveries that are in flight now.
        """
        if not self._ruled:
            return
        cap = self._cap if limit is None else limit
        turned = self._edges[: bisect_right(self._edges, now)][-1:]
        self.calm = (
            breaker == BreakerState.CLOSED
            and waiting == 0
            and self._failing < TROUBLE
            and (cap is None or in_flight <= cap // USED)
            # What an edge brings is known when the last attempt from before it, and the first ones after it, are over.
            and not (turned and now - turned[0] <= self._timeout_s + 1)
        )

    @property
    def step_s(self) -> float:
        """How long the next step is at least, in seconds."""
        if self.calm:
            return self._coarse_s
        return min(FINE_S, max(FINEST_S, self._latency_s / LATENCIES_A_STEP))

    def edge_after(self, now: float) -> float:
        """When the receiver changes next, which no step goes over; infinity if it does not, or if nobody minds."""
        later = bisect_right(self._edges, now)
        return self._edges[later] if self._ruled and later < len(self._edges) else math.inf
