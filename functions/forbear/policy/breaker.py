"""The breaker of an endpoint: when attempts stop because it fails, and how they start again.

Closed lets everything go; open lets nothing go until a time; half-open lets one probe go, and then a trickle that
doubles. The steps that hand deliveries out are the claim's: from open to half-open with its probe, and from closed to a
trickle of one after a hold. Every other step is made here, from the outcomes of a batch. It must not know lanes, leases
or SQL.

Every change of state raises the epoch. An outcome carries the epoch under which its delivery was claimed, so whatever
was in flight across a change counts for nothing. A trickle that doubles stays in its state and epoch: what fails of an
earlier width still opens the breaker.

All outcomes of a batch are taken to have happened when it is settled: batches are milliseconds apart.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from forbear.policy.model import BreakerRule
from forbear.policy.schedule import grown_s
from forbear.policy.verdict import ErrorClass, Verdict

# What went wrong on our side says nothing about the receiver.
OURS = frozenset({ErrorClass.UNSENDABLE, ErrorClass.INTERNAL})


class BreakerState(StrEnum):
    """Whether attempts may go."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN_PROBE = "half_open_probe"
    HALF_OPEN_TRICKLE = "half_open_trickle"


@dataclass(frozen=True, slots=True)
class Breaker:
    """A breaker as it is stored.

    Attributes:
        state: Whether attempts may go.
        since: When this state began.
        failures: Failures in a row that counted.
        trips: Openings since it was last closed; the cool-down grows with them.
        until: When a probe may go, while open; else None.
        epoch: Rises with every change of state and never falls.
        reason: Why the state is what it is, for people; None before the first change.
        allows: How many deliveries may be in flight, in the trickle; else None.
        passed: Good answers at this width of the trickle.
        failing_since: The first failure of an unbroken row, for a rule with `failing_s`; else None.
        recent: When the last failures were, oldest first, successes between them or not; only as many and as long as
            `within_s` or `volume` of the rule can see them.
    """

    state: BreakerState
    since: datetime
    failures: int
    trips: int
    until: datetime | None
    epoch: int
    reason: str | None
    allows: int | None = None
    passed: int = 0
    failing_since: datetime | None = None
    recent: tuple[datetime, ...] = ()


@dataclass(slots=True)  # not frozen: see forbear.leases
class Outcome:
    """An attempt's result, as the control of its endpoint sees it.

    Attributes:
        verdict: What the result amounted to.
        status: The HTTP status; None when there was none.
        error: Why there was no whole answer; None when one came.
        epoch: The breaker's epoch when the delivery was claimed.
        probe: Whether the attempt was the probe of a half-open breaker.
        started: When the attempt began, by the database's clock.
        in_flight: How many of the endpoint's deliveries were in flight just after this one was claimed.
    """

    verdict: Verdict
    status: int | None
    error: ErrorClass | None
    epoch: int
    probe: bool
    started: datetime
    in_flight: int


def after(rule: BreakerRule | None, breaker: Breaker, outcomes: Sequence[Outcome], now: datetime, cap: int) -> Breaker:
    """The breaker after a batch of outcomes.

    Args:
        rule: The endpoint's rule; None leaves the breaker as it is.
        breaker: The breaker before the batch.
        outcomes: The batch, in the order in which the attempts ended.
        now: When the batch is settled, timezone-aware, by the database's clock.
        cap: The most deliveries that may be in flight at once while it is closed, at least 1; a trickle ends there.

    Returns:
        The breaker to store; the very object that came in when nothing has changed, so that nothing needs to be
        written. A batch ends as its outcomes would one by one.
    """
    if rule is None:
        return breaker
    current = breaker
    for outcome in outcomes:
        if outcome.epoch == current.epoch:
            current = _after_one(rule, current, outcome, now, cap)
    return breaker if current is breaker or current == breaker else current


def _after_one(rule: BreakerRule, breaker: Breaker, outcome: Outcome, now: datetime, cap: int) -> Breaker:
    match breaker.state:
        case BreakerState.CLOSED:
            return _counted(rule, breaker, outcome, now)
        case BreakerState.HALF_OPEN_TRICKLE:
            return _trickled(rule, breaker, outcome, now, cap)
        case BreakerState.HALF_OPEN_PROBE if outcome.probe:
            return _probed(rule, breaker, outcome, now, cap)
        case _:
            return breaker


def _counted(rule: BreakerRule, breaker: Breaker, outcome: Outcome, now: datetime) -> Breaker:
    """A closed breaker after an outcome. A 4xx, 429 included, says that the receiver answers, not that it is well."""
    if outcome.verdict is Verdict.SUCCESS:
        return _row_over(rule, breaker, now)
    if not _counts(outcome):
        return breaker
    failed = replace(
        breaker,
        failures=breaker.failures + 1,
        failing_since=None if rule.failing_s is None else breaker.failing_since or now,
        recent=_remembered(rule, (*breaker.recent, now), now),
    )
    reason = _reason_to_open(rule, failed, now)
    return failed if reason is None else _opened(rule, failed, f"{reason}, the last: {_result(outcome)}", now)


def _row_over(rule: BreakerRule, breaker: Breaker, now: datetime) -> Breaker:
    """A breaker after a success: the row of failures is over.

    The volume's memory stays until all of it has left the window, and goes at once then: an endpoint that is well again
    is written once for it, not once a failure.
    """
    recent = breaker.recent
    if recent and (rule.volume_window_s is None or not _within(recent, 1, rule.volume_window_s, now)):
        recent = ()
    if not breaker.failures and breaker.failing_since is None and recent is breaker.recent:
        return breaker
    return replace(breaker, failures=0, failing_since=None, recent=recent)


def _remembered(rule: BreakerRule, times: tuple[datetime, ...], now: datetime) -> tuple[datetime, ...]:
    """What the rule can still see of the times of failures; nothing under a rule without `within_s` and `volume`.

    One row of times serves both: whatever of it lies in the row of failures is its end, `breaker.failures` long.
    """
    kept = max(0 if rule.within_s is None else rule.failures or 0, rule.volume or 0)
    window = timedelta(seconds=max(rule.within_s or 0.0, rule.volume_window_s or 0.0))
    return tuple(time for time in times[-kept:] if now - time <= window) if kept else ()


def _within(times: tuple[datetime, ...], count: int, window_s: float, now: datetime) -> bool:
    """Whether the last `count` of the times lie within a window that ends now; its edge is in it."""
    return len(times) >= count and now - times[-count] <= timedelta(seconds=window_s)


def _reason_to_open(rule: BreakerRule, breaker: Breaker, now: datetime) -> str | None:
    """Which part of the rule the last failure has fulfilled, for people; None if none."""
    if rule.failures is not None and breaker.failures >= rule.failures:
        if rule.within_s is None:
            return _row(breaker.failures)
        if _within(breaker.recent, rule.failures, rule.within_s, now):
            return f"{_row(rule.failures)} within {rule.within_s:g} s"
    if (
        rule.volume is not None
        and rule.volume_window_s is not None
        and _within(breaker.recent, rule.volume, rule.volume_window_s, now)
    ):
        return f"{rule.volume} failure{'s' if rule.volume > 1 else ''} within {rule.volume_window_s:g} s"
    if rule.failing_s is not None and breaker.failing_since is not None:
        failing = now - breaker.failing_since
        if failing >= timedelta(seconds=rule.failing_s):
            return f"nothing but failures for {failing.total_seconds():.0f} s"
    return None


def _probed(rule: BreakerRule, breaker: Breaker, outcome: Outcome, now: datetime, cap: int) -> Breaker:
    """A half-open breaker after its probe: any whole answer under 500 passes, a 404 and a 429 included."""
    if outcome.error in OURS:
        # The delivery could not be sent at all, which says nothing about the receiver. Being open with a cool-down that
        # is over lets the next probe go at once; staying half-open would wait for a probe that nobody has.
        return replace(
            breaker,
            state=BreakerState.OPEN,
            since=now,
            until=now,
            epoch=breaker.epoch + 1,
            reason="the probe could not be sent, another one may go",
        )
    if not answered(outcome):
        failed = replace(breaker, failures=breaker.failures + 1)
        return _opened(rule, failed, f"the probe failed: {_result(outcome)}", now)
    reason = f"the probe was answered: {outcome.status}"
    if not rule.slow_start or cap <= 1:
        return _closed(breaker, reason, now)
    return Breaker(
        state=BreakerState.HALF_OPEN_TRICKLE,
        since=now,
        failures=0,
        trips=breaker.trips,
        until=None,
        epoch=breaker.epoch + 1,
        reason=reason,
        allows=2,
    )


def _trickled(rule: BreakerRule, breaker: Breaker, outcome: Outcome, now: datetime, cap: int) -> Breaker:
    """A trickle after an outcome: as many good answers as it is wide double it, a failure that counts opens it.

    It ends where the next doubling would reach the cap. An endpoint with too little traffic to fill even a narrow
    trickle would take days to get there, so it also ends with a success after `cooldown_s` without a failure, provided
    that the width was not used up: an endpoint with a backlog goes on doubling, however slowly it answers. 429 does
    nothing here; the lane's hold and the adaptive concurrency answer it.
    """
    width = breaker.allows or 1
    if _counts(outcome):
        failed = replace(breaker, failures=breaker.failures + 1)
        return _opened(rule, failed, f"a failure in the trickle of {width}: {_result(outcome)}", now)
    success = outcome.verdict is Verdict.SUCCESS
    if not success and (outcome.status == 429 or not answered(outcome)):
        return breaker
    if success and outcome.in_flight < width and now - breaker.since >= timedelta(seconds=rule.cooldown_s):
        return _closed(breaker, f"no failure in the trickle for {rule.cooldown_s:g} s", now)
    passed = breaker.passed + 1
    if passed >= width and 2 * width >= cap:
        return _closed(breaker, f"no failure in the trickle up to {width}", now)
    going = _row_over(rule, breaker, now) if success else breaker
    return replace(going, passed=passed) if passed < width else replace(going, allows=2 * width, passed=0)


def _closed(breaker: Breaker, reason: str, now: datetime) -> Breaker:
    """The breaker closed, with everything that it counted and remembered forgotten."""
    return Breaker(
        state=BreakerState.CLOSED,
        since=now,
        failures=0,
        trips=0,
        until=None,
        epoch=breaker.epoch + 1,
        reason=reason,
    )


def _opened(rule: BreakerRule, breaker: Breaker, reason: str, now: datetime) -> Breaker:
    """The breaker opened once more, with a cool-down that has grown with the openings before this one."""
    cooldown_s = grown_s(rule.cooldown_s, rule.cooldown_multiplier, breaker.trips, rule.cooldown_cap_s)
    return Breaker(
        state=BreakerState.OPEN,
        since=now,
        failures=breaker.failures,
        trips=breaker.trips + 1,
        until=now + timedelta(seconds=cooldown_s),
        epoch=breaker.epoch + 1,
        reason=reason,
    )


def _counts(outcome: Outcome) -> bool:
    """Whether an outcome is a failure of the receiver: worth a retry, no answer under 500, and not our fault."""
    return outcome.verdict is Verdict.RETRY and not answered(outcome) and outcome.error not in OURS


def answered(outcome: Outcome) -> bool:
    """Whether a whole answer under 500 came, or one that the policy calls a success: the receiver is there."""
    if outcome.error is not None:
        return False
    return outcome.verdict is Verdict.SUCCESS or (outcome.status is not None and 200 <= outcome.status < 500)


def _row(failures: int) -> str:
    return "1 failure" if failures == 1 else f"{failures} failures in a row"


def _result(outcome: Outcome) -> str:
    """An outcome in a word: the error class, or else the status."""
    return str(outcome.error or outcome.status)
