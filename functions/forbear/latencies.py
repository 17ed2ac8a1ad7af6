"""How long a claimer's attempts of late took, by endpoint, where a policy judges their 99th percentile.

Owns the samples; a claimer knows those of its own attempts only, which is a fair sample of the endpoint's. Nothing is
lost with them: the next claimer collects its own.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from uuid import UUID

from forbear.attempting import Attempted
from forbear.policy.model import Adaptive

# No policy looks at more than 1,000 samples to begin with; of an endpoint with more traffic the latest are enough.
_KEPT = 2_000


class Latencies:
    """The samples of one claimer."""

    def __init__(self) -> None:
        self._samples: dict[UUID, deque[tuple[float, float]]] = {}

    def add(self, lanes: Mapping[UUID, Sequence[Attempted]]) -> None:
        """Take in what attempts took, a timeout's time too, for the endpoints whose policy judges it.

        Args:
            lanes: attempts by endpoint, in the order in which they ended.
        """
        for endpoint_id, own in lanes.items():
            adaptive = own[0].result.lease.lane.policy.adaptive
            if adaptive is not None and adaptive.slow_s is not None:
                samples = self._samples.setdefault(endpoint_id, deque(maxlen=_KEPT))
                samples.extend(
                    (one.finished, one.result.attempt.latency_ms / 1000)
                    for one in own
                    if one.result.attempt is not None
                )

    def slow(self, endpoint_id: UUID, rule: Adaptive | None, now: float) -> bool:
        """Whether the 99th percentile (nearest rank) of the window is over the rule's `slow_s`.

        Args:
            endpoint_id: whose.
            rule: the policy's; None, or one without `slow_s`: never.
            now: by the clock that the attempts' ends were taken from, in seconds.

        Returns:
            False also when there are fewer samples in the window than the rule wants.
        """
        samples = self._samples.get(endpoint_id)
        if samples is None or rule is None or rule.slow_s is None:
            return False
        while samples and samples[0][0] < now - rule.window_s:
            samples.popleft()
        if len(samples) < rule.samples:
            return False
        return sorted(latency_s for _, latency_s in samples)[math.ceil(0.99 * len(samples)) - 1] > rule.slow_s
