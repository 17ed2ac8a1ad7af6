"""One attempt: from a lease in hand to the result to settle.

Joins the request, the sender and the policy's decision. Knows no SQL and no loop. Whatever happens to an attempt ends
as a result; only the cancellation of the claimer's own task passes through.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random

from forbear.leases import START_WITHIN_S, Endpoint, Lease, UnknownKey, Unsendable, evidence_of, request_for
from forbear.policy.breaker import Outcome
from forbear.policy.verdict import Answer, DeadReason, Decision, ErrorClass, Verdict, decide
from forbear.sender import Response, Sender
from forbear.sender.reasons import bounded
from forbear.store import Attempt, Result

logger = logging.getLogger(__name__)

# What this machine lacks now it may have again in a moment. So many seconds, by chance; by its delay a delivery may as
# well go to another claimer.
SHORT_FOR_S = (1.0, 5.0)
KEYLESS_FOR_S = (30.0, 60.0)
# The schema refuses more, and with it the whole batch; senders keep no more either.
KEPT_BODY_BYTES = 16 << 10


@dataclass(slots=True)  # not frozen: see forbear.leases
class Attempted:
    """A result to settle, what the lane's control makes of it, and how long the lane must wait (None: it need not).

    `finished`: when the answer was there, by the store's `monotonic`. `unsent`: this machine lacked something to send
    it with, and had better rest.
    """

    result: Result
    outcome: Outcome
    hold_lane_s: float | None
    finished: float
    unsent: bool = False


async def attempt(lease: Lease, sender: Sender, now: Callable[[], datetime], rng: Random) -> Attempted:
    """Make the attempt that a lease stands for, or find that none can or need be made.

    Args:
        lease: the delivery in hand.
        sender: what sends the request.
        now: gives the time by the database's clock.
        rng: for jitter.
    """
    if lease.expires_at is not None and lease.expires_at <= now():
        return _without_attempt(lease, "dead", DeadReason.EXPIRED, now())
    if time.monotonic() - lease.claimed > START_WITHIN_S:
        # Too late to be sure that the lease outlives the request: somebody else's turn.
        return _without_attempt(lease, "return", None, now())
    began, started = time.monotonic(), now()
    headers = b""
    try:
        request = request_for(lease, started)
        endpoint = lease.lane.endpoint
        headers = evidence_of(request, len(endpoint.headers) if isinstance(endpoint, Endpoint) else 0)
        response = await sender.send(request)
    except UnknownKey as error:
        # Once the data key is back, everything is mended: nothing is lost by waiting for somebody to put it there.
        logger.warning("%s", error)
        return _without_attempt(lease, "return", None, now(), rng.uniform(*KEYLESS_FOR_S))
    except Unsendable as error:
        response = _failed(ErrorClass.UNSENDABLE, bounded(str(error)), began)
    except Exception:
        logger.exception("an attempt failed in an unforeseen way")
        response = _failed(ErrorClass.INTERNAL, "an unforeseen error in Forbear; it has been logged", began)
    if response.unsent:
        # No attempt at all: it would use up what the policy allows, and the delivery might end without one request.
        logger.warning("nothing can be sent now: %s", response.reason)
        return replace(_without_attempt(lease, "return", None, now(), rng.uniform(*SHORT_FOR_S)), unsent=True)
    answer = Answer(response.status, response.error, response.retry_after)
    decision = decide(lease.lane.policy, answer, lease.progress, now(), rng)
    return judged(lease, response, decision, headers=headers, started=started, began=began, finished=time.monotonic())


def judged(
    lease: Lease,
    response: Response,
    decision: Decision,
    *,
    headers: bytes,
    started: datetime,
    began: float,
    finished: float,
) -> Attempted:
    """The result of an attempt that was made.

    Args:
        lease: the delivery.
        response: what came of the request.
        decision: what the policy makes of it.
        headers: the header block that was sent, without the endpoint's own values.
        started: when the attempt began, by the database's clock.
        began: the same by the store's `monotonic`.
        finished: when the answer was there, by the same.
    """
    endpoint = lease.lane.endpoint
    failed = "retry" if decision.dead is None else "dead"
    result = Result(
        lease=lease,
        outcome="delivered" if decision.verdict is Verdict.SUCCESS else failed,
        reason=decision.dead,
        delay_s=decision.delay_s or 0.0,
        limited=decision.verdict is Verdict.LIMITED,
        attempt=Attempt(
            verdict=decision.verdict,
            began=began,
            latency_ms=response.latency_s * 1000,
            url=endpoint.text if isinstance(endpoint, Endpoint) else "",
            address=response.address,
            request_headers=headers,
            status=response.status,
            response_headers=response.headers,
            response_body=response.body[:KEPT_BODY_BYTES],
            error=response.error,
            error_detail=response.reason,
            retry_after_s=decision.retry_after_s,
            retry_after_honoured=decision.retry_after_honoured,
        ),
    )
    seen = Outcome(
        verdict=decision.verdict,
        status=response.status,
        error=response.error,
        epoch=lease.epoch,
        probe=lease.probe,
        started=started,
        in_flight=lease.lane.in_flight,
    )
    return Attempted(result, seen, decision.hold_lane_s, finished)


def _without_attempt(
    lease: Lease, outcome: str, reason: DeadReason | None, now: datetime, delay_s: float = 0.0
) -> Attempted:
    # For the breaker it is a request that could not be sent: a probe's place is free again.
    seen = Outcome(Verdict.PERMANENT, None, ErrorClass.UNSENDABLE, lease.epoch, lease.probe, now, lease.lane.in_flight)
    return Attempted(Result(lease, outcome, reason, delay_s, limited=False, attempt=None), seen, None, time.monotonic())


def _failed(error: ErrorClass, reason: str, began: float) -> Response:
    return Response(None, b"", (), b"", error, reason, time.monotonic() - began, None)
