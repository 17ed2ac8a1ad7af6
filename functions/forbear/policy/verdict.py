"""What an attempt's result means for its delivery: a verdict, and when to try again or why to end.

Joins the schedule, the window, the limits of the verdicts and `Retry-After`. It must not know how attempts are sent or
stored. Leases that lapsed do not pass through here: the store settles them without moving the schedule on.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from random import Random

from forbear.policy import retry_after
from forbear.policy.model import Policy, RetryAfterRule, Verdicts
from forbear.policy.schedule import gap_s, jittered_s, spread_s


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
    # Nothing decides this one here: the claim does, under `breaker.dead_letter`.
    CIRCUIT_OPEN = "circuit_open"


@dataclass(slots=True)  # not frozen: see forbear.leases
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


@dataclass(slots=True)  # not frozen: see forbear.leases
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


@dataclass(slots=True)  # not frozen: see forbear.leases
class Decision:
    """What becomes of a delivery after an attempt.

    Attributes:
        verdict: What the attempt's result amounts to.
        delay_s: Seconds from the answer's arrival to the next attempt; None when the delivery ends here.
        dead: Why it ends without success; None on success and when there is a next attempt.
        retry_after_s: What the receiver asked for, in seconds before the policy's bounds; None without a header that
            can be understood, on an answer that is not retryable, and under a policy that ignores the header.
        retry_after_honoured: Whether there is a next attempt and it waits for that, within the policy's bounds. Not so
            for a wait that the policy does not believe.
        hold_lane_s: For how many seconds the whole lane has to wait, because a 429 or a 503 said so and the policy
            honours it; None if none did. It holds for the other deliveries even when this one ends.
    """

    verdict: Verdict
    delay_s: float | None
    dead: DeadReason | None
    retry_after_s: float | None
    retry_after_honoured: bool
    hold_lane_s: float | None


_RETRYABLE = frozenset({Verdict.RETRY, Verdict.LIMITED})
# A 429 says to send less, whether or not it says for how long. Without a moment's pause a lane would go on as fast as
# the answers come.
THROTTLED_S = 1.0
# RFC 6585 section 4 and RFC 9110 section 15.6.4: these two speak of the server's load, so of every delivery to it.
_ABOUT_THE_WHOLE_LANE = frozenset({429, 503})


def classify(verdicts: Verdicts, answer: Answer) -> Verdict:
    """The verdict on an attempt's result.

    A status has the verdict of the list that it stands in, or else of the list that its class stands in. Every error is
    retried but `UNSENDABLE`, which no retry can mend. What is no final status at all (1xx, 600 and up, none) is retried
    like a server's fault, as RFC 9110 section 15 has it for invalid statuses.

    Args:
        verdicts: What the policy makes of the statuses.
        answer: What the attempt saw.
    """
    if answer.error is not None:
        return Verdict.PERMANENT if answer.error is ErrorClass.UNSENDABLE else Verdict.RETRY
    if answer.status is None:
        return Verdict.RETRY
    return (
        _listed(verdicts, str(answer.status))
        or _listed(verdicts, f"{answer.status // 100}xx")
        or Verdict.RETRY  # an invalid status: the lists hold every class from 2xx to 5xx, and nothing else
    )


def _listed(verdicts: Verdicts, name: str) -> Verdict | None:
    """The verdict in whose list a status or a class stands; None if it stands in none.

    Searching five short tuples takes no longer than hashing the policy's verdicts, so there is no table to keep.
    """
    if name in verdicts.success:
        return Verdict.SUCCESS
    if name in verdicts.retry:
        return Verdict.RETRY
    if name in verdicts.limited:
        return Verdict.LIMITED
    if name in verdicts.permanent:
        return Verdict.PERMANENT
    return Verdict.GONE if name in verdicts.gone else None


def decide(policy: Policy, answer: Answer, progress: Progress, now: datetime, rng: Random) -> Decision:
    """What becomes of a delivery after an attempt.

    Args:
        policy: The endpoint's policy.
        answer: What the attempt saw.
        progress: Where the delivery stood before this attempt.
        now: When the answer arrived, timezone-aware, by the database's clock.
        rng: The source of randomness for jitter.

    Returns:
        The decision. Where a hint is honoured, jitter only adds to it, and it changes neither how many retries there
        are nor how long the window is.
    """
    verdict = classify(policy.verdicts, answer)
    if verdict not in _RETRYABLE:
        return Decision(
            verdict=verdict,
            delay_s=None,
            dead=_ends_at_once(verdict, answer),
            retry_after_s=None,
            retry_after_honoured=False,
            hold_lane_s=None,
        )
    rule = policy.retry_after
    hint_s = None if rule.mode == "ignore" else retry_after.parse(answer.retry_after, now, fractions=rule.fractions)
    wait_s = None if hint_s is None else _honoured_s(rule, hint_s)
    dead: DeadReason | None = None
    delay_s: float | None = None
    if verdict is Verdict.LIMITED and progress.limited + 1 >= policy.verdicts.limited_attempts:
        dead = DeadReason.PERMANENT
    else:
        delay_s = _next_delay_s(policy, progress, wait_s, now, rng)
        dead = DeadReason.EXHAUSTED if delay_s is None else None
    return Decision(
        verdict=verdict,
        delay_s=delay_s,
        dead=dead,
        retry_after_s=hint_s,
        retry_after_honoured=wait_s is not None and delay_s is not None,
        hold_lane_s=_hold_s(rule, answer.status, wait_s),
    )


def _hold_s(rule: RetryAfterRule, status: int | None, wait_s: float | None) -> float | None:
    """For how long an answer holds the whole lane: as it asks to, and after a 429 for a moment in any case."""
    if status not in _ABOUT_THE_WHOLE_LANE:
        return None
    if status == 429 and rule.mode != "ignore":
        return max(THROTTLED_S, wait_s or 0.0)
    return wait_s


def _ends_at_once(verdict: Verdict, answer: Answer) -> DeadReason | None:
    """Why a delivery ends with a verdict that allows no retry; None on success."""
    if verdict is Verdict.SUCCESS:
        return None
    if answer.error is ErrorClass.UNSENDABLE:
        return DeadReason.UNSENDABLE
    return DeadReason.GONE if verdict is Verdict.GONE else DeadReason.PERMANENT


def _honoured_s(rule: RetryAfterRule, hint_s: float) -> float | None:
    """How long a wait that was asked for is within a policy's bounds, in seconds; None when it is not believed."""
    if rule.mode == "floor":
        return min(hint_s, rule.cap_s)
    if rule.ignore_above_s is not None and hint_s > rule.ignore_above_s:
        return None
    return min(max(hint_s, rule.min_s), rule.cap_s)


def _next_delay_s(policy: Policy, progress: Progress, wait_s: float | None, now: datetime, rng: Random) -> float | None:
    """Seconds to the next attempt, at least `wait_s`; None when there is none, by the retries or by the window."""
    schedule = policy.schedule
    gap = gap_s(schedule, progress.tries + 1)
    if gap is None:
        return None
    if wait_s is None or policy.retry_after.mode == "floor":
        delay_s = jittered_s(schedule, gap, rng, wait_s or 0.0)
    else:
        # Exact: the wait takes the gap's place. Its jitter is no wider than that of either, so that "in a second" is
        # not spread over the hours of a late gap, nor four hours over minutes more than the schedule ever spreads.
        width_s = min(spread_s(schedule, gap)[1], spread_s(schedule, wait_s)[1])
        delay_s = wait_s + rng.uniform(0.0, width_s)
    if schedule.window_s is not None:
        # Without an earlier attempt this one is the first, and the window begins with it.
        elapsed_s = 0.0 if progress.started_at is None else (now - progress.started_at).total_seconds()
        if elapsed_s + delay_s > schedule.window_s + progress.held_s:
            return None
    return delay_s
