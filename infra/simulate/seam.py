"""Where the simulation meets Forbear: a simulated reply becomes the attempt that a claimer would settle.

The policy's decision and the result are made by the very functions that the claimer calls; this stands for
`forbear.attempting.attempt`, whose request would leave the machine.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from forbear.attempting import Attempted, judged
from forbear.leases import Lease
from forbear.policy.verdict import Answer, decide
from forbear.sender import Response
from infra.simulate.receivers import Reply
from infra.simulate.world import at


def attempted(lease: Lease, reply: Reply, began: float, now: float, rng: Random) -> Attempted:
    """What an attempt came to.

    Args:
        lease: The delivery.
        reply: What its receiver made of it.
        began: When the attempt began, in virtual seconds.
        now: When it is settled: the end of the step in which it ended.
        rng: For jitter.

    Returns:
        The result to settle. Waits count from the answer, so what has passed of them since then is taken off.
    """
    finished = began + reply.latency_s
    retry_after = () if reply.retry_after_s is None else (str(reply.retry_after_s),)
    response = Response(reply.status, b"", retry_after, b"", reply.error, "", reply.latency_s, None)
    answer = Answer(reply.status, reply.error, retry_after)
    decision = decide(lease.lane.policy, answer, lease.progress, at(finished), rng)
    late_s = now - finished
    if decision.delay_s is not None:
        decision = replace(decision, delay_s=max(0.0, decision.delay_s - late_s))
    if decision.hold_lane_s is not None:
        decision = replace(decision, hold_lane_s=max(0.0, decision.hold_lane_s - late_s))
    return judged(lease, response, decision, headers=b"", started=at(began), began=began, finished=finished)
