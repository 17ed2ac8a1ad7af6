"""The adaptive concurrency of an endpoint: additive increase, multiplicative decrease (AIMD).

Owns how the limit moves with outcomes. It must not know lanes, nor how many deliveries are in flight now: the claim
keeps to the limit. After AIMDLimit of Netflix's concurrency-limits, with a floor of 1 and, unlike there, at most one
step a round trip, as TCP does it (RFC 5681 section 3.1): what was sent before the last step says nothing about it, and
a thousand answers to one overload are one overload.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from forbear.policy.breaker import Outcome, answered
from forbear.policy.model import Adaptive
from forbear.policy.verdict import ErrorClass, Verdict

# RFC 6585 section 4 and RFC 9110 section 15.6.4: too many requests, and too much load.
_OVERLOAD = frozenset({429, 503})


def after(
    rule: Adaptive | None,
    cap: int | None,
    limit: int | None,
    since: datetime | None,
    outcomes: Sequence[Outcome],
    *,
    now: datetime,
    slow: bool = False,
) -> tuple[int | None, datetime | None]:
    """The limit after a batch of outcomes.

    A timeout, a 429 or a 503 makes it `rule.decrease` times as much, rounded down; an answer under 500 whose attempt
    found at least half of the limit in use makes it one more. Anything else moves nothing: a 500 may be a quick way of
    not doing the work. In a batch with both, the decrease wins.

    Slow answers decrease it as well, but only a whole `rule.window_s` after the last step: until then the percentile
    still sees latencies from before it, and would punish one peak again with every round trip. Meanwhile nothing
    increases it.

    Args:
        rule: The endpoint's rule; None keeps the limit at the cap.
        cap: The policy's own limit, at least 1; None when it sets none, and then there is nothing to adapt.
        limit: The limit before the batch; None at the cap.
        since: When it last changed; None if it never did. Attempts that began before move nothing.
        outcomes: The batch, in any order.
        now: When the batch is settled, timezone-aware, by the database's clock.
        slow: Whether the 99th percentile of the latency over `rule.window_s` is over `rule.slow_s`.

    Returns:
        The limit, from 1 to below the cap or None at the cap, and when it last changed: `now` if it did here.
    """
    if rule is None or cap is None:
        return None, None
    width = cap if limit is None else min(limit, cap)
    dropped = used = fresh = False
    for outcome in outcomes:
        if since is not None and outcome.started < since:
            continue
        fresh = True
        if _dropped(outcome):
            dropped = True
            break
        used = used or (outcome.in_flight * 2 >= width and answered(outcome))
    if slow and fresh and (since is None or now - since >= timedelta(seconds=rule.window_s)):
        dropped = True
    stepped = width
    if dropped:
        stepped = max(1, int(width * rule.decrease))
    elif used and not slow:
        stepped = min(cap, width + 1)
    return below(cap, stepped), since if stepped == width else now


def below(cap: int, width: int) -> int | None:
    """A width as a limit: None when it is the cap or more, so that the policy's own limit holds."""
    return width if width < cap else None


def _dropped(outcome: Outcome) -> bool:
    """Whether the receiver could not bear the attempt. What a policy calls a success is none of that."""
    if outcome.error is not None:
        return outcome.error is ErrorClass.TIMEOUT
    return outcome.status in _OVERLOAD and outcome.verdict is not Verdict.SUCCESS
