"""The control of an endpoint as a whole: its breaker, its adaptive concurrency and whether it is to be disabled.

Joins the three over the outcomes of a batch. It must not know how the state is stored, nor who claims by it; held
lanes, budgets and rates are the claim's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from forbear.policy import breaker as breakers
from forbear.policy import concurrency
from forbear.policy.breaker import OURS, Breaker, BreakerState, Outcome
from forbear.policy.model import AutoDisable, Policy
from forbear.policy.verdict import ErrorClass, Verdict

# Where a trickle ends when nothing else limits the concurrency: the most that a policy could set.
_UNLIMITED = 1_000
# Nobody knows what became of a lost attempt.
_SAYS_NOTHING = OURS | {ErrorClass.LOST}
# How exact the time of the last failure is kept, so that a failing endpoint is not written with every batch.
_TROUBLE_STEP = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class Trouble:
    """A time without any success.

    Attributes:
        since: Its first failure.
        last: Its last failure, to a minute; exact where `disable_reason` turns on it.
        failures: How many there were, up to the `failures` of the rule.
    """

    since: datetime
    last: datetime
    failures: int


@dataclass(frozen=True, slots=True)
class Control:
    """All that the outcomes of attempts change about an endpoint.

    Attributes:
        breaker: Its breaker.
        limit: Its adaptive concurrency; None at the policy's own limit.
        limit_since: When that last changed; None if it never did.
        trouble: What has failed since the last success; None if nothing has, or if nothing disables the endpoint.
        version: Set by the database, to notice that another claimer was quicker; never changed here.
    """

    breaker: Breaker
    limit: int | None = None
    limit_since: datetime | None = None
    trouble: Trouble | None = None
    version: int = 0


def after(
    policy: Policy, control: Control, outcomes: Sequence[Outcome], now: datetime, *, slow: bool = False
) -> Control:
    """The control of an endpoint after a batch of outcomes.

    A failure in a trickle also lowers the adaptive limit, to half of the width that failed, as TCP lowers its
    slow-start threshold (RFC 5681 section 3.1): the next trickle ends at a width that was borne and the additive
    increase goes on from there, instead of every trickle failing at the same width.

    Args:
        policy: The endpoint's policy.
        control: What was known of it before the batch.
        outcomes: The batch, in the order in which the attempts ended.
        now: When the batch is settled, timezone-aware, by the database's clock.
        slow: Whether the 99th percentile of its latency is over `policy.adaptive.slow_s`, judged over its `window_s`
            and with enough samples.

    Returns:
        The control to store; the very object that came in when nothing has changed, so that nothing needs to be
        written.
    """
    if _untroubled(control, slow=slow):
        for outcome in outcomes:
            if outcome.verdict is not Verdict.SUCCESS:
                break
        else:
            return control
    elif not outcomes:
        return control
    own = policy.limits.concurrency
    before = control.breaker
    limit, limit_since = concurrency.after(
        policy.adaptive, own, control.limit, control.limit_since, outcomes, now=now, slow=slow
    )
    cap = limit or own or _UNLIMITED
    breaker = breakers.after(policy.breaker, before, outcomes, now, cap)
    if before.state is BreakerState.HALF_OPEN_TRICKLE and breaker.state is BreakerState.OPEN:
        # By the width that was stored, even if good answers of this batch have doubled it: nothing was claimed by more.
        limit, limit_since = _halved(policy, cap, before.allows or 1, now)
    changed = replace(
        control,
        breaker=breaker,
        limit=limit,
        limit_since=limit_since,
        trouble=_troubled(policy.disable, control.trouble, outcomes, now),
    )
    return control if changed == control else changed


def disable_reason(rule: AutoDisable | None, control: Control) -> str | None:
    """Why an endpoint is to be disabled, for people; None if it is not.

    After Svix: no success for `after_s`, and more than one bad day: at least so many failures, the first and the last
    so far apart. It goes by failures that happened, so silence alone disables nothing.

    Args:
        rule: The endpoint's rule; None never disables.
        control: The control after the batch.
    """
    trouble = control.trouble
    if rule is None or trouble is None or trouble.failures < rule.failures:
        return None
    if trouble.last - trouble.since < _needed(rule):
        return None
    failures = f"{rule.failures} failures or more"
    return f"no success since {_instant(trouble.since)}: {failures}, the last at {_instant(trouble.last)}"


def _untroubled(control: Control, *, slow: bool) -> bool:
    """Whether there is nothing that a success could change; most endpoints are like that at most times."""
    breaker = control.breaker
    return (
        control.trouble is None
        and control.limit is None
        and not slow
        and breaker.state is BreakerState.CLOSED
        and not breaker.failures
        and not breaker.recent
    )


def _halved(policy: Policy, cap: int, width: int, now: datetime) -> tuple[int | None, datetime | None]:
    """The adaptive limit after a trickle has failed at a width; None under a policy that does not adapt."""
    own = policy.limits.concurrency
    if policy.adaptive is None or own is None:
        return None, None
    return concurrency.below(own, min(cap, max(1, width // 2))), now


def _troubled(
    rule: AutoDisable | None, trouble: Trouble | None, outcomes: Sequence[Outcome], now: datetime
) -> Trouble | None:
    """The trouble after a batch, whatever the breaker's epoch: any answer says whether the endpoint ever succeeds."""
    if rule is None:
        return None
    failures = 0
    for outcome in outcomes:
        if outcome.verdict is Verdict.SUCCESS:
            trouble, failures = None, 0
        elif outcome.error not in _SAYS_NOTHING:
            failures += 1
    if not failures:
        return trouble
    if trouble is None:
        return Trouble(now, now, min(failures, rule.failures))
    counted = max(trouble.failures, min(trouble.failures + failures, rule.failures))
    # The step must not hide the one failure upon which the endpoint is to be disabled.
    decides = trouble.last - trouble.since < _needed(rule) <= now - trouble.since
    if counted == trouble.failures and not decides and now - trouble.last < _TROUBLE_STEP:
        return trouble
    return Trouble(trouble.since, max(trouble.last, now), counted)


def _needed(rule: AutoDisable) -> timedelta:
    """How far apart the first failure and the last must be."""
    return timedelta(seconds=max(rule.after_s, rule.spread_s))


def _instant(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
