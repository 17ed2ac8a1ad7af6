"""What an attempt's result means for its delivery: a verdict, and when to try again or why to end.

Joins the schedule, the window, the limits of the verdicts and `Retry-After`. It must not know how attempts are sent or
stored. Leases that lapsed do not pass through here: the store settles them without moving the schedule on.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from random import Random

from forbear.policy import retry_after
from forbear.policy.model import Policy, Schedule
from forbear.policy.schedule import gap_s, jittered_s


class ErrorClass(StrEnum):
    """Why an attempt got no whole answer."""

    DNS = "dns"
    CONNECT = "connect"
    TLS = "tls"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    RESET = "reset"
    BLOCKED = "blocked"
    TOO_LARGE = "too_large"
    UNSENDABLE = "unsendable"
    LOST = "lost"
    INTERNAL = "internal"


class Verdict(StrEnum):
    """What an attempt's result amounts to."""

    SUCCESS = "success"
    RETRY = "retry"
    LIMITED = "limited"
    PERMANENT = "permanent"
    GONE = "gone"


class DeadReason(StrEnum):
    """Why a delivery ended without success."""

    EXHAUSTED = "exhausted"
    EXPIRED = "expired"
    PERMANENT = "permanent"
    GONE = "gone"
    UNSENDABLE = "unsendable"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Answer:
    """What an attempt saw, as the policy sees it.

    Attributes:
        status: The HTTP status; None when there was none.
        error: None when a whole (or capped) response came. Where there is an error, it decides and the status does not.
        retry_after: The values of every `Retry-After` header, in order, decoded as latin-1.
    """

    status: int | None
    error: ErrorClass | None
    retry_after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a delivery stands within its generation, before this attempt is counted.

    Attributes:
        tries: Attempts of this generation that moved the schedule on (lost ones do not).
        limited: Attempts of this generation whose verdict was `LIMITED`.
        started_at: When the first attempt of the generation began, timezone-aware; None if this one is the first.
        held_s: For how many seconds the delivery was held; they do not count against a window.
    """

    tries: int
    limited: int
    started_at: datetime | None
    held_s: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a delivery after an attempt.

    Attributes:
        verdict: What the attempt's result amounts to.
        delay_s: Seconds from the answer's arrival to the next attempt; None when the delivery ends here.
        dead: Why it ends without success; None on success and when there is a next attempt.
        retry_after_s: What the receiver asked for, in seconds before the cap; None without a header that can be
            understood, on an answer that is not retryable, and under a policy that ignores the header.
        retry_after_honoured: Whether the next attempt waits at least that long, or as long as the policy's cap.
        hold_lane_s: For how many seconds the whole lane has to wait, because a 429 or a 503 said so; None if none did.
            It holds for the other deliveries even when this one ends.
    """

    verdict: Verdict
    delay_s: float | None
    dead: DeadReason | None
    retry_after_s: float | None
    retry_after_honoured: bool
    hold_lane_s: float | None


_RETRYABLE = frozenset({Verdict.RETRY, Verdict.LIMITED})
# 408 Request Timeout, 425 Too Early and 429 Too Many Requests are about this moment, not about this request.
_TRANSIENT_4XX = frozenset({408, 425, 429})
# RFC 6585 section 4 and RFC 9110 section 15.6.4: these two speak of the server's load, so of every delivery to it.
_ABOUT_THE_WHOLE_LANE = frozenset({429, 503})


def classify(answer: Answer) -> Verdict:
    """The verdict on an attempt's result.

    2xx is success; 410 (RFC 9110 section 15.5.11) gone; 408, 425, 429 and 5xx are retried; any other 4xx is retried a
    few times; 3xx is permanent, because redirects are never followed. Every error is retried but `UNSENDABLE`, which no
    retry can mend. What is no final status at all (1xx, 600 and up, none) counts as a server's fault, as RFC 9110
    section 15 has it for invalid statuses.
    """
    if answer.error is not None:
        return Verdict.PERMANENT if answer.error is ErrorClass.UNSENDABLE else Verdict.RETRY
    status = answer.status
    if status is None or not 200 <= status < 500 or status in _TRANSIENT_4XX:
        return Verdict.RETRY
    if status < 300:
        return Verdict.SUCCESS
    if status < 400:
        return Verdict.PERMANENT
    return Verdict.GONE if status == 410 else Verdict.LIMITED


def decide(policy: Policy, answer: Answer, progress: Progress, now: datetime, rng: Random) -> Decision:
    """What becomes of a delivery after an attempt.

    Args:
        policy: The endpoint's policy.
        answer: What the attempt saw.
        progress: Where the delivery stood before this attempt.
        now: When the answer arrived, timezone-aware, by the database's clock.
        rng: The source of randomness for jitter.

    Returns:
        The decision. Where a hint is obeyed the delay is at least `min(hint, policy.retry_after.cap_s)`, and jitter
        only adds to that.
    """
    verdict = classify(answer)
    if verdict not in _RETRYABLE:
        return Decision(
            verdict=verdict,
            delay_s=None,
            dead=_ends_at_once(verdict, answer),
            retry_after_s=None,
            retry_after_honoured=False,
            hold_lane_s=None,
        )
    hint_s = retry_after.parse(answer.retry_after, now) if policy.retry_after.mode == "floor" else None
    floor_s = None if hint_s is None else min(hint_s, policy.retry_after.cap_s)
    dead: DeadReason | None = None
    delay_s: float | None = None
    if verdict is Verdict.LIMITED and progress.limited + 1 >= policy.verdicts.limited_attempts:
        dead = DeadReason.PERMANENT
    else:
        delay_s = _next_delay_s(policy.schedule, progress, floor_s or 0.0, now, rng)
        dead = DeadReason.EXHAUSTED if delay_s is None else None
    return Decision(
        verdict=verdict,
        delay_s=delay_s,
        dead=dead,
        retry_after_s=hint_s,
        retry_after_honoured=floor_s is not None and delay_s is not None,
        hold_lane_s=floor_s if answer.status in _ABOUT_THE_WHOLE_LANE else None,
    )


def _ends_at_once(verdict: Verdict, answer: Answer) -> DeadReason | None:
    """Why a delivery ends with a verdict that allows no retry; None on success."""
    if verdict is Verdict.SUCCESS:
        return None
    if answer.error is ErrorClass.UNSENDABLE:
        return DeadReason.UNSENDABLE
    return DeadReason.GONE if verdict is Verdict.GONE else DeadReason.PERMANENT


def _next_delay_s(schedule: Schedule, progress: Progress, floor_s: float, now: datetime, rng: Random) -> float | None:
    """Seconds to the next attempt, at least `floor_s`; None when there is none, by the retries or by the window."""
    gap = gap_s(schedule, progress.tries + 1)
    if gap is None:
        return None
    delay_s = jittered_s(schedule, gap, rng, floor_s)
    if schedule.window_s is not None:
        # Without an earlier attempt this one is the first, and the window begins with it.
        elapsed_s = 0.0 if progress.started_at is None else (now - progress.started_at).total_seconds()
        if elapsed_s + delay_s > schedule.window_s + progress.held_s:
            return None
    return delay_s
