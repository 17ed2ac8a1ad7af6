"""Outcomes of attempts and breakers, as the tests of the endpoint's control want them."""

from datetime import UTC, datetime, timedelta

from hypothesis import strategies as st

from forbear.policy.breaker import Breaker, BreakerState, Outcome
from forbear.policy.model import BreakerRule, Verdicts
from forbear.policy.verdict import Answer, ErrorClass, Verdict, classify

BEGAN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
NOW = BEGAN + timedelta(minutes=5)
CLOSED = Breaker(BreakerState.CLOSED, since=BEGAN, failures=0, trips=0, until=None, epoch=7, reason=None)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def answered(
    status: int, epoch: int = 7, *, probe: bool = False, started: datetime = NOW, in_flight: int = 1
) -> Outcome:
    return Outcome(_verdict(status, None), status, None, epoch, probe, started, in_flight)


def failed(
    error: ErrorClass, epoch: int = 7, *, probe: bool = False, started: datetime = NOW, status: int | None = None
) -> Outcome:
    return Outcome(_verdict(status, error), status, error, epoch, probe, started, in_flight=1)


def _verdict(status: int | None, error: ErrorClass | None) -> Verdict:
    return classify(Verdicts(), Answer(status, error, ()))


EPOCHS = st.integers(0, 5)
STATUSES = st.sampled_from([200, 200, 204, 302, 404, 408, 410, 429, 500, 503])


@st.composite
def outcomes(draw: st.DrawFn, epochs: st.SearchStrategy[int] = EPOCHS) -> Outcome:
    """Any outcome, more often an answer than an error, begun in the minute before or after `NOW`."""
    error = draw(st.one_of(st.none(), st.none(), st.sampled_from(ErrorClass)))
    status = draw(STATUSES if error is None else st.one_of(st.none(), STATUSES))
    started = NOW + seconds(draw(st.integers(-60, 60)))
    verdict = _verdict(status, error)
    return Outcome(verdict, status, error, draw(epochs), draw(st.booleans()), started, draw(st.integers(0, 40)))


BATCHES = st.lists(outcomes(), max_size=40)


@st.composite
def rules(draw: st.DrawFn) -> BreakerRule:
    """Any rule of a breaker that small batches can open."""
    failures = draw(st.one_of(st.none(), st.integers(1, 6)))
    volume = draw(st.one_of(st.none(), st.integers(1, 8)))
    failing = st.floats(1, 600)
    return BreakerRule(
        failures=failures,
        within_s=None if failures is None else draw(st.one_of(st.none(), st.floats(1, 600))),
        volume=volume,
        volume_window_s=None if volume is None else draw(st.floats(1, 600)),
        failing_s=draw(failing if failures is None and volume is None else st.one_of(st.none(), failing)),
        cooldown_s=draw(st.floats(0.1, 60)),
        cooldown_multiplier=draw(st.floats(1, 100)),
        cooldown_cap_s=draw(st.floats(60, 86_400)),
        slow_start=draw(st.booleans()),
    )


@st.composite
def breakers(draw: st.DrawFn, cap: int = 1_000) -> Breaker:
    """Any breaker as it may be stored under a cap."""
    state = draw(st.sampled_from(BreakerState))
    failures = draw(st.integers(0, 5))
    trickles = state is BreakerState.HALF_OPEN_TRICKLE
    allows = min(2 ** draw(st.integers(0, 5)), cap) if trickles else None
    remembers = state is BreakerState.CLOSED
    ages = sorted(draw(st.lists(st.integers(0, 900), max_size=8))) if remembers else []
    return Breaker(
        state=state,
        since=NOW - seconds(draw(st.integers(1, 300))),
        failures=failures,
        trips=draw(st.one_of(st.integers(0, 20), st.sampled_from([10_000, 10**9]))),
        until=NOW + seconds(30) if state is BreakerState.OPEN else None,
        epoch=draw(st.integers(0, 3)),
        reason=draw(st.sampled_from([None, "5 failures in a row, the last: 500"])),
        allows=allows,
        passed=0 if allows is None else draw(st.integers(0, allows - 1)),
        failing_since=NOW - seconds(draw(st.integers(0, 900))) if remembers and failures else None,
        recent=tuple(NOW - seconds(age) for age in reversed(ages)),
    )
