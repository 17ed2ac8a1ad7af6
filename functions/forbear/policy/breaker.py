"""The breaker of an endpoint: when attempts stop because it fails, and what a probe's answer changes.

Closed lets everything go; open lets nothing go until a time; half-open lets one probe go. The step from open to
half-open is the claim's, since it hands out the probe; every other step is made here, from the outcomes of a batch. It
must not know lanes, leases or SQL.

Every change of state raises the epoch. An outcome carries the epoch under which its delivery was claimed, so whatever
was in flight across a change counts for nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from forbear.policy.model import BreakerRule
from forbear.policy.schedule import grown_s
from forbear.policy.verdict import ErrorClass, Verdict

# What went wrong on our side says nothing about the receiver.
_OURS = frozenset({ErrorClass.UNSENDABLE, ErrorClass.INTERNAL})


class BreakerState(StrEnum):
    """Whether attempts may go."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True)
class Breaker:
    """A breaker as it is stored.

    Attributes:
        state: Whether attempts may go.
        since: When this state began.
        failures: Failures in a row that counted.
        trips: Openings in a row without an answered probe between them; the cool-down grows with them.
        until: When a probe may go, while open; None while closed.
        epoch: Rises with every change of state and never falls.
        reason: Why the state is what it is, for people; None before the first change.
    """

    state: BreakerState
    since: datetime
    failures: int
    trips: int
    until: datetime | None
    epoch: int
    reason: str | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """An attempt's result, as the breaker sees it.

    Attributes:
        verdict: What the result amounted to.
        status: The HTTP status; None when there was none.
        error: Why there was no whole answer; None when one came.
        epoch: The breaker's epoch when the delivery was claimed.
        probe: Whether the attempt was the probe of a half-open breaker.
    """

    verdict: Verdict
    status: int | None
    error: ErrorClass | None
    epoch: int
    probe: bool


def after(rule: BreakerRule, breaker: Breaker, outcomes: Sequence[Outcome], now: datetime) -> Breaker:
    """The breaker after a batch of outcomes.

    Args:
        rule: The endpoint's rule.
        breaker: The breaker before the batch.
        outcomes: The batch, in the order in which the attempts ended.
        now: When the batch is settled, timezone-aware, by the database's clock.

    Returns:
        The breaker to store; the very object that came in when nothing has changed, so that nothing needs to be
        written.
    """
    current = breaker
    for outcome in outcomes:
        if outcome.epoch == current.epoch:
            current = _after_one(rule, current, outcome, now)
    return breaker if current == breaker else current


def _after_one(rule: BreakerRule, breaker: Breaker, outcome: Outcome, now: datetime) -> Breaker:
    if breaker.state is BreakerState.CLOSED:
        return _counted(rule, breaker, outcome, now)
    if breaker.state is BreakerState.HALF_OPEN and outcome.probe:
        return _probed(rule, breaker, outcome, now)
    return breaker


def _counted(rule: BreakerRule, breaker: Breaker, outcome: Outcome, now: datetime) -> Breaker:
    """A closed breaker after an outcome. A 4xx, 429 included, says that the receiver answers, not that it is well."""
    if outcome.verdict is Verdict.SUCCESS:
        return replace(breaker, failures=0)
    if outcome.verdict is not Verdict.RETRY or outcome.status == 429 or outcome.error in _OURS:
        return breaker
    failures = breaker.failures + 1
    if failures < rule.failures:
        return replace(breaker, failures=failures)
    in_a_row = "1 failure" if failures == 1 else f"{failures} failures in a row"
    return _opened(rule, replace(breaker, failures=failures), f"{in_a_row}, the last: {_result(outcome)}", now)


def _probed(rule: BreakerRule, breaker: Breaker, outcome: Outcome, now: datetime) -> Breaker:
    """A half-open breaker after its probe: any whole answer under 500 closes it, a 404 and a 429 included."""
    if outcome.error in _OURS:
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
    if outcome.error is None and outcome.status is not None and 200 <= outcome.status < 500:
        return Breaker(
            state=BreakerState.CLOSED,
            since=now,
            failures=0,
            trips=0,
            until=None,
            epoch=breaker.epoch + 1,
            reason=f"the probe was answered: {outcome.status}",
        )
    return _opened(rule, replace(breaker, failures=breaker.failures + 1), f"the probe failed: {_result(outcome)}", now)


def _opened(rule: BreakerRule, breaker: Breaker, reason: str, now: datetime) -> Breaker:
    """The breaker opened once more, with a cool-down that has grown with the openings before this one."""
    cooldown_s = grown_s(rule.cooldown_s, rule.cooldown_multiplier, breaker.trips, rule.cooldown_cap_s)
    return replace(
        breaker,
        state=BreakerState.OPEN,
        since=now,
        trips=breaker.trips + 1,
        until=now + timedelta(seconds=cooldown_s),
        epoch=breaker.epoch + 1,
        reason=reason,
    )


def _result(outcome: Outcome) -> str:
    """An outcome in a word: the error class, or else the status."""
    return str(outcome.error or outcome.status)
