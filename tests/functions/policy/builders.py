"""What the tests of decisions share: answers, where a delivery stands, and policies of every kind."""

from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import strategies as st

from forbear.policy.model import Policy, RetryAfterRule, Verdicts
from forbear.policy.schedule import (
    AdditiveJitter,
    EqualJitter,
    Exponential,
    FullJitter,
    Jitter,
    Ladder,
    NoJitter,
    ProportionalJitter,
    Schedule,
    TwoPhase,
)
from forbear.policy.verdict import Answer, Decision, ErrorClass, Progress, decide

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
FIRST = Progress(tries=0, limited=0, started_at=None, held_s=0.0)


class Always(Random):
    """A source of randomness that gives one value, from 0 up to (not including) 1."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def random(self) -> float:
        return self.value


EARLIEST = Always(0.0)
LATEST = Always(1 - 2**-53)


def answered(status: int, *retry_after: str) -> Answer:
    return Answer(status=status, error=None, retry_after=retry_after)


def failed(error: ErrorClass, status: int | None = None, *retry_after: str) -> Answer:
    return Answer(status=status, error=error, retry_after=retry_after)


def every(gap_s: float, *, jitter: Jitter | None = None, retries: int = 16, window_s: float | None = None) -> Schedule:
    """The same gap before each retry, exact unless a jitter is given."""
    jitter = jitter or NoJitter()
    return Exponential(base_s=gap_s, multiplier=1, retries=retries, window_s=window_s, jitter=jitter)


def policy_of(schedule: Schedule, rule: RetryAfterRule | None = None) -> Policy:
    return Policy(schedule=schedule, retry_after=rule or RetryAfterRule())


def progress_of(tries: int, elapsed_s: float = 0.0, limited: int = 0, held_s: float = 0.0) -> Progress:
    return Progress(tries=tries, limited=limited, started_at=NOW - timedelta(seconds=elapsed_s), held_s=held_s)


def decided(policy: Policy, answer: Answer, progress: Progress = FIRST, rng: Random | int = 1) -> Decision:
    return decide(policy, answer, progress, NOW, Random(rng) if isinstance(rng, int) else rng)


# Strategies


@st.composite
def additive_jitters(draw: st.DrawFn) -> AdditiveJitter:
    min_s = draw(st.floats(0, 86_400))
    return AdditiveJitter(ratio=draw(st.floats(0, 10)), min_s=min_s, max_s=draw(st.floats(min_s, 86_400)))


JITTERS: st.SearchStrategy[Jitter] = st.one_of(
    st.just(FullJitter()),
    st.just(EqualJitter()),
    st.just(NoJitter()),
    st.builds(ProportionalJitter, ratio=st.floats(0.001, 1)),
    additive_jitters(),
)
GAPS = st.one_of(st.just(0.0), st.floats(0, 604_800))
WINDOWS = st.one_of(st.none(), st.floats(1, 2_592_000))


@st.composite
def exponentials(draw: st.DrawFn) -> Exponential:
    base_s = draw(st.floats(0.01, 604_800))
    return Exponential(
        base_s=base_s,
        multiplier=draw(st.floats(1, 100)),
        cap_s=draw(st.floats(base_s, 2_592_000)),
        retries=draw(st.integers(0, 20)),
        window_s=draw(WINDOWS),
        jitter=draw(JITTERS),
    )


@st.composite
def ladders(draw: st.DrawFn) -> Ladder:
    gaps_s = draw(st.lists(GAPS, max_size=10))
    repeat_last = bool(gaps_s) and gaps_s[-1] >= 0.01 and draw(st.booleans())
    listed = st.one_of(st.none(), st.integers(0, len(gaps_s)))
    return Ladder(
        gaps_s=tuple(gaps_s),
        repeat_last=repeat_last,
        retries=draw(st.integers(0, 20) if repeat_last else listed),
        window_s=draw(WINDOWS),
        jitter=draw(JITTERS),
    )


@st.composite
def two_phases(draw: st.DrawFn) -> TwoPhase:
    return TwoPhase(
        fast_s=tuple(draw(st.lists(GAPS, max_size=10))),
        slow_s=draw(st.floats(0.01, 604_800)),
        retries=draw(st.integers(0, 20)),
        window_s=draw(WINDOWS),
        jitter=draw(JITTERS),
    )


SCHEDULES = st.one_of(exponentials(), ladders(), two_phases())
"""Schedules of every kind, with 20 retries at most."""


@st.composite
def rules(draw: st.DrawFn) -> RetryAfterRule:
    mode = draw(st.sampled_from(["floor", "exact", "tiered", "ignore"]))
    cap_s = draw(st.floats(1, 604_800))
    return RetryAfterRule.model_validate(
        {
            "mode": mode,
            "cap_s": cap_s,
            "min_s": draw(st.floats(0, min(cap_s, 3_600))),
            "ignore_above_s": draw(st.floats(cap_s, 2_592_000)) if mode == "tiered" else None,
            "fractions": draw(st.booleans()),
        }
    )


LISTS = ("success", "retry", "limited", "permanent", "gone")


@st.composite
def verdict_tables(draw: st.DrawFn) -> Verdicts:
    """Any list for each class, and for some statuses of their own."""
    owns = st.dictionaries(st.integers(200, 599).map(str), st.sampled_from(LISTS), max_size=20)
    named = {**draw(owns), **{f"{n}xx": draw(st.sampled_from(LISTS)) for n in (2, 3, 4, 5)}}
    lists = {each: tuple(name for name, listed in named.items() if listed == each) for each in LISTS}
    return Verdicts(**lists, limited_attempts=draw(st.integers(1, 5)))


TABLES = st.one_of(st.just(Verdicts()), verdict_tables())
POLICIES = st.builds(Policy, schedule=SCHEDULES, retry_after=rules(), verdicts=TABLES)
HINTS = st.one_of(
    st.integers(0, 10**6).map(str),
    st.floats(0, 10**6).map(lambda wait_s: f"{wait_s:.3f}"),
    st.text(max_size=20),
    st.sampled_from(["9" * 5_000, "1m0s", "-1", "Sun, 01 Mar 2026 14:00:00 GMT", "Fri, 31 Dec 9999 23:59:59 GMT"]),
)
ANSWERS = st.builds(
    Answer,
    status=st.one_of(st.none(), st.integers(0, 1_000), st.sampled_from([200, 404, 410, 429, 500, 503])),
    error=st.one_of(st.none(), st.none(), st.sampled_from(ErrorClass)),
    retry_after=st.lists(HINTS, max_size=2).map(tuple),
)
PROGRESS = st.one_of(
    st.just(FIRST),
    st.builds(
        progress_of,
        tries=st.one_of(st.integers(1, 25), st.just(10**9)),
        elapsed_s=st.floats(0, 10**7),
        limited=st.integers(0, 5),
        held_s=st.floats(0, 10**7),
    ),
)
