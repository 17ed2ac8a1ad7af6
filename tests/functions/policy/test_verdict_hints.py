"""What becomes of `Retry-After`: how long the delivery waits, and the lane."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
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
    gap_s,
    spread_s,
)
from forbear.policy.verdict import THROTTLED_S, Answer, DeadReason, ErrorClass, Progress
from tests.functions.policy.builders import (
    ANSWERS,
    EARLIEST,
    JITTERS,
    LATEST,
    NOW,
    POLICIES,
    PROGRESS,
    answered,
    decided,
    every,
    failed,
    policy_of,
    progress_of,
)

EXACT = RetryAfterRule(mode="exact")
TIERED = RetryAfterRule(mode="tiered", cap_s=14_400, ignore_above_s=86_400)
RETRYABLE = [answered(429), answered(503), answered(500), answered(408), answered(404)]


# Floor


@pytest.mark.parametrize(
    ("value", "hint_s", "delay_s"),
    [
        ("120", 120, 120),
        ("30", 30, 30),
        ("10", 10, 30),
        ("0", 0, 30),
        ("2592000", 2_592_000, 14_400),
        ("Sun, 01 Mar 2026 12:02:00 GMT", 120, 120),
        ("Sunday, 01-Mar-26 12:02:00 GMT", 120, 120),
        ("Sun Mar  1 12:02:00 2026", 120, 120),
        ("Fri, 31 Dec 9999 23:59:59 GMT", pytest.approx(2.5e11, rel=0.01), 14_400),
    ],
)
@pytest.mark.parametrize("answer", RETRYABLE)
def test_by_default_a_hint_is_a_floor_up_to_the_cap(answer: Answer, value: str, hint_s: float, delay_s: float) -> None:
    decision = decided(policy_of(every(30)), replace(answer, retry_after=(value,)))
    assert (decision.retry_after_s, decision.delay_s, decision.retry_after_honoured) == (hint_s, delay_s, True)


def test_a_floor_is_never_undercut_by_jitter() -> None:
    """Not even by the one that goes below the gap: clamping first and spreading then sends too early."""
    policy = policy_of(every(30, jitter=ProportionalJitter(ratio=0.2)))
    assert decided(policy, answered(429, "120"), rng=EARLIEST).delay_s == 120
    assert decided(policy, answered(429, "120"), rng=LATEST).delay_s == pytest.approx(132)
    assert decided(policy, answered(429, "26"), rng=EARLIEST).delay_s == 26


def test_a_floor_knows_no_shortest_wait() -> None:
    """Asked to wait for no time at all, the schedule is what paces, even within a second."""
    decision = decided(policy_of(every(0.1)), answered(503, "0"))
    assert (decision.delay_s, decision.hold_lane_s) == (0.1, 0)


# Exact


@pytest.mark.parametrize(
    ("value", "delay_s"),
    [
        ("120", 120),
        ("3600", 3_600),
        ("5", 5),
        ("1", 1),
        ("0", 1),
        ("14400", 14_400),
        ("2592000", 14_400),
        ("Sun, 01 Mar 2026 12:02:00 GMT", 120),
        ("Sun, 01 Mar 2026 12:00:00 GMT", 1),
    ],
)
@pytest.mark.parametrize("gap", [30, 3_600])
@pytest.mark.parametrize("answer", RETRYABLE)
def test_an_exact_hint_is_the_delay_even_where_the_schedule_would_wait_longer(
    answer: Answer, gap: float, value: str, delay_s: float
) -> None:
    decision = decided(policy_of(every(gap), EXACT), replace(answer, retry_after=(value,)))
    assert (decision.delay_s, decision.retry_after_honoured) == (delay_s, True)


@pytest.mark.parametrize("value", [None, "soon", "-5"])
def test_without_a_hint_that_can_be_understood_the_schedule_goes_on(value: str | None) -> None:
    answer = answered(429) if value is None else answered(429, value)
    assert decided(policy_of(every(30), EXACT), answer).delay_s == 30
    assert decided(policy_of(every(30), TIERED), answer).delay_s == 30


@pytest.mark.parametrize(
    ("jitter", "gap", "hint", "latest_s"),
    [
        (NoJitter(), 30, "120", 120),
        (FullJitter(), 3_600, "10", 20),  # as a gap of 10 s would be spread
        (FullJitter(), 5, "3600", 3_605),  # as the schedule spreads its own gap
        (EqualJitter(), 3_600, "10", 15),
        (ProportionalJitter(ratio=0.2), 3_600, "10", 14),
        (AdditiveJitter(ratio=0.1, min_s=2, max_s=900), 36_000, "10", 12),
        (FullJitter(), 0, "10", 10),
    ],
)
def test_jitter_only_adds_to_an_exact_hint_and_no_more_than_to_either_gap(
    jitter: Jitter, gap: float, hint: str, latest_s: float
) -> None:
    """So "in ten seconds" is not spread over the hour that the schedule would have waited."""
    policy = policy_of(Ladder(gaps_s=(gap,), jitter=jitter), EXACT)
    assert decided(policy, answered(429, hint), rng=EARLIEST).delay_s == float(hint)
    assert decided(policy, answered(429, hint), rng=LATEST).delay_s == pytest.approx(latest_s)


@pytest.mark.parametrize(("value", "delay_s"), [("1.5", 1.5), ("0.503", 1), ("0.0", 1), ("120.1", 120.1)])
def test_fractions_of_a_second_are_for_the_policy_to_accept(value: str, delay_s: float) -> None:
    accepting = RetryAfterRule(mode="exact", fractions=True)
    assert decided(policy_of(every(30), accepting), answered(429, value)).delay_s == delay_s
    refused = decided(policy_of(every(30), EXACT), answered(429, value))
    assert (refused.delay_s, refused.retry_after_s) == (30, None)


# Tiered


@pytest.mark.parametrize(
    ("value", "delay_s"),
    [
        ("0", 1),
        ("120", 120),
        ("14400", 14_400),
        ("14401", 14_400),
        ("86400", 14_400),
        ("Sun, 01 Mar 2026 14:00:00 GMT", 7_200),
        ("Sun, 01 Mar 2026 20:00:00 GMT", 14_400),
        ("Mon, 02 Mar 2026 12:00:00 GMT", 14_400),
    ],
)
@pytest.mark.parametrize("gap", [30, 36_000])
def test_tiers_up_to_four_hours_are_exact_and_up_to_a_day_four_hours(gap: float, value: str, delay_s: float) -> None:
    decision = decided(policy_of(every(gap), TIERED), answered(503, value))
    assert (decision.delay_s, decision.retry_after_honoured, decision.hold_lane_s) == (delay_s, True, delay_s)


@pytest.mark.parametrize("value", ["86401", "999999999999", "Mon, 02 Mar 2026 12:00:01 GMT"])
@pytest.mark.parametrize("answer", RETRYABLE)
def test_more_than_a_day_is_not_believed(answer: Answer, value: str) -> None:
    """Schedule and lane go on as without the header; what was asked for stays as evidence."""
    policy = policy_of(every(30, jitter=FullJitter()), TIERED)
    decision = decided(policy, replace(answer, retry_after=(value,)))
    assert decision.retry_after_s is not None
    assert decision.retry_after_s > 86_400
    assert replace(decision, retry_after_s=None) == decided(policy, answer)
    assert not decision.retry_after_honoured


# Ignored, or not understood


@pytest.mark.parametrize(
    "value",
    ["", "soon", "-5", "12.5", "300s", "Tomorrow", "99999999999999999999", "1m0s", "nan", "-1", "1e3", "120, 60"],
)
def test_a_hint_that_is_not_understood_leaves_the_schedule_as_it_is(value: str) -> None:
    decision = decided(policy_of(every(30)), answered(503, value))
    assert (decision.delay_s, decision.retry_after_s, decision.retry_after_honoured) == (30, None, False)
    assert decision.hold_lane_s is None


def test_two_headers_leave_the_schedule_as_it_is() -> None:
    assert decided(policy_of(every(30)), answered(503, "120", "60")) == decided(policy_of(every(30)), answered(503))


def test_a_policy_can_ignore_hints() -> None:
    policy = policy_of(every(30), RetryAfterRule(mode="ignore"))
    assert decided(policy, answered(429, "120")) == decided(policy, answered(429))


@pytest.mark.parametrize("status", [200, 202, 301, 410])
def test_a_hint_on_an_answer_that_is_not_retried_means_nothing(status: int) -> None:
    assert decided(Policy(), answered(status, "120")) == decided(Policy(), answered(status))


def test_a_hint_counts_on_whatever_status_the_policy_retries() -> None:
    policy = Policy(schedule=every(30), verdicts=Verdicts(retry=("3xx", "5xx"), permanent=(), limited=("4xx",)))
    assert decided(policy, answered(302, "120")).delay_s == 120


# How it ends all the same


@pytest.mark.parametrize("rule", [RetryAfterRule(), EXACT, TIERED])
def test_a_hint_does_not_change_how_many_attempts_there_are(rule: RetryAfterRule) -> None:
    policy = policy_of(every(30, retries=2), rule)
    assert decided(policy, answered(429, "1"), progress_of(1)).dead is None
    assert decided(policy, answered(429, "1"), progress_of(2)).dead is DeadReason.EXHAUSTED


@pytest.mark.parametrize("rule", [RetryAfterRule(), EXACT, TIERED])
def test_a_hint_beyond_the_window_ends_the_delivery_and_was_not_honoured(rule: RetryAfterRule) -> None:
    decision = decided(policy_of(every(10, window_s=100), rule), answered(503, "101"), progress_of(1))
    assert (decision.dead, decision.delay_s, decision.retry_after_honoured) == (DeadReason.EXHAUSTED, None, False)
    assert decision.retry_after_s == 101


def test_an_exact_hint_may_still_fit_into_a_window_that_the_gap_does_not() -> None:
    policy = policy_of(every(90, window_s=100), EXACT)
    assert decided(policy, answered(503), progress_of(1, elapsed_s=50)).dead is DeadReason.EXHAUSTED
    assert decided(policy, answered(503, "50"), progress_of(1, elapsed_s=50)).delay_s == 50


# The lane


@pytest.mark.parametrize(
    ("answer", "hold_lane_s"),
    [
        (answered(429, "120"), 120),
        (answered(503, "120"), 120),
        (answered(503, "99999"), 14_400),
        (failed(ErrorClass.TIMEOUT, 503, "120"), 120),  # the head had come, the body had not
        (answered(429), 1),
        (answered(429, "0"), 1),
        (answered(429, "soon"), 1),
        (answered(503, "soon"), None),
        (answered(500, "120"), None),
        (answered(408, "120"), None),
        (answered(404, "120"), None),
        (answered(200, "120"), None),
    ],
)
@pytest.mark.parametrize("rule", [RetryAfterRule(), EXACT])
def test_only_429_and_503_hold_the_lane(rule: RetryAfterRule, answer: Answer, hold_lane_s: float | None) -> None:
    assert decided(Policy(retry_after=rule), answer).hold_lane_s == hold_lane_s


def test_the_lane_is_held_even_when_the_delivery_that_was_told_so_ends() -> None:
    decision = decided(policy_of(every(30, retries=0)), answered(503, "120"))
    assert (decision.dead, decision.hold_lane_s) == (DeadReason.EXHAUSTED, 120)


# Properties


def _honoured_s(rule: RetryAfterRule, hint_s: float) -> float:
    return min(hint_s if rule.mode == "floor" else max(hint_s, rule.min_s), rule.cap_s)


@given(POLICIES, ANSWERS, PROGRESS, st.integers(0))
def test_a_next_attempt_is_within_the_window_and_no_later_than_gap_and_hint_and_jitter(
    policy: Policy, answer: Answer, progress: Progress, seed: int
) -> None:
    decision = decided(policy, answer, progress, seed)
    if decision.delay_s is None:
        return
    gap = gap_s(policy.schedule, progress.tries + 1)
    assert gap is not None
    earliest_s, width_s = spread_s(policy.schedule, gap)
    wait_s = _honoured_s(policy.retry_after, decision.retry_after_s or 0.0) if decision.retry_after_honoured else 0.0
    assert 0 <= decision.delay_s <= max(earliest_s, wait_s) + width_s
    if policy.schedule.window_s is not None:
        elapsed_s = 0.0 if progress.started_at is None else (NOW - progress.started_at).total_seconds()
        assert elapsed_s + decision.delay_s <= policy.schedule.window_s + progress.held_s


@given(POLICIES, ANSWERS, PROGRESS, st.integers(0))
def test_a_hint_that_is_honoured_is_waited_for_and_holds_the_lane_as_long(
    policy: Policy, answer: Answer, progress: Progress, seed: int
) -> None:
    decision, rule = decided(policy, answer, progress, seed), policy.retry_after
    if decision.retry_after_honoured:
        assert decision.delay_s is not None
        assert decision.retry_after_s is not None
        assert decision.delay_s >= _honoured_s(rule, decision.retry_after_s)
    if decision.hold_lane_s is not None:
        assert answer.status in {429, 503}
        if answer.status == 503:
            assert decision.retry_after_s is not None
            assert decision.hold_lane_s == _honoured_s(rule, decision.retry_after_s)
        assert answer.status == 503 or decision.hold_lane_s >= THROTTLED_S


@given(POLICIES, ANSWERS, PROGRESS, st.integers(0))
def test_a_hint_that_is_not_honoured_changes_nothing(
    policy: Policy, answer: Answer, progress: Progress, seed: int
) -> None:
    decision = decided(policy, answer, progress, seed)
    if decision.delay_s is None or decision.retry_after_honoured:
        return
    silent = decided(policy, replace(answer, retry_after=()), progress, seed)
    assert replace(decision, retry_after_s=None) == silent


@given(JITTERS, st.floats(0.01, 86_400), st.integers(0, 86_400), st.integers(0))
def test_an_exact_delay_begins_at_the_hint_and_is_spread_no_wider_than_the_schedule_would(
    jitter: Jitter, gap: float, hint_s: int, seed: int
) -> None:
    schedule = Exponential(base_s=gap, multiplier=1, retries=1, jitter=jitter)
    rule = RetryAfterRule(mode="exact", min_s=0, cap_s=86_400)
    delay_s = decided(policy_of(schedule, rule), answered(429, str(hint_s)), rng=seed).delay_s
    assert delay_s is not None
    assert hint_s <= delay_s <= hint_s + min(spread_s(schedule, gap)[1], spread_s(schedule, hint_s)[1])


@given(POLICIES, st.integers(1, 10**6), PROGRESS, st.integers(0))
def test_a_floor_only_ever_puts_off(policy: Policy, hint_s: int, progress: Progress, seed: int) -> None:
    floored = policy.model_copy(update={"retry_after": RetryAfterRule()})
    told, silent = (decided(floored, each, progress, seed) for each in (answered(503, str(hint_s)), answered(503)))
    assume(told.delay_s is not None)
    assert told.delay_s is not None
    assert silent.delay_s is not None
    assert told.delay_s >= silent.delay_s
