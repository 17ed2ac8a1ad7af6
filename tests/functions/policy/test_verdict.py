from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.policy.model import Exponential, Policy, RetryAfterRule, Verdicts
from forbear.policy.verdict import Answer, DeadReason, Decision, ErrorClass, Progress, Verdict, classify, decide

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
FIRST = Progress(tries=0, limited=0, started_at=None, held_s=0.0)


def answered(status: int, *retry_after: str) -> Answer:
    return Answer(status=status, error=None, retry_after=retry_after)


def failed(error: ErrorClass, status: int | None = None, *retry_after: str) -> Answer:
    return Answer(status=status, error=error, retry_after=retry_after)


def policy_of(retry_after: RetryAfterRule | None = None, **schedule: Any) -> Policy:
    """A policy whose gaps are exact: no jitter unless asked for."""
    return Policy(schedule=Exponential(**{"jitter": "none", **schedule}), retry_after=retry_after or RetryAfterRule())


def progress_of(tries: int, elapsed_s: float = 0.0, limited: int = 0, held_s: float = 0.0) -> Progress:
    return Progress(tries=tries, limited=limited, started_at=NOW - timedelta(seconds=elapsed_s), held_s=held_s)


def decided(policy: Policy, answer: Answer, progress: Progress = FIRST, seed: int = 1) -> Decision:
    return decide(policy, answer, progress, NOW, Random(seed))


# Verdicts


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        (range(200, 300), Verdict.SUCCESS),
        (range(300, 400), Verdict.PERMANENT),
        ([408, 425, 429], Verdict.RETRY),
        ([410], Verdict.GONE),
        (sorted(set(range(400, 500)) - {408, 410, 425, 429}), Verdict.LIMITED),
        (range(500, 600), Verdict.RETRY),
        ([100, 101, 103, 199, 600, 700, 999, 0, -1], Verdict.RETRY),
    ],
)
def test_a_status_has_one_verdict(statuses: list[int], verdict: Verdict) -> None:
    assert {classify(answered(status)) for status in statuses} == {verdict}


@pytest.mark.parametrize("error", list(ErrorClass))
@pytest.mark.parametrize("status", [None, 200, 302, 404, 410, 503])
def test_an_error_decides_whatever_the_status_was(error: ErrorClass, status: int | None) -> None:
    unsendable = error is ErrorClass.UNSENDABLE
    assert classify(failed(error, status)) is (Verdict.PERMANENT if unsendable else Verdict.RETRY)


def test_an_attempt_of_which_nothing_is_known_is_retried() -> None:
    assert classify(Answer(status=None, error=None, retry_after=())) is Verdict.RETRY


# How a delivery ends


def test_success_ends_the_delivery_alive() -> None:
    assert decided(Policy(), answered(204)) == Decision(
        verdict=Verdict.SUCCESS,
        delay_s=None,
        dead=None,
        retry_after_s=None,
        retry_after_honoured=False,
        hold_lane_s=None,
    )


@pytest.mark.parametrize(
    ("answer", "verdict", "dead"),
    [
        *(
            (answered(status), Verdict.PERMANENT, DeadReason.PERMANENT)
            for status in (300, 301, 302, 303, 304, 307, 308)
        ),
        (answered(410), Verdict.GONE, DeadReason.GONE),
        (failed(ErrorClass.UNSENDABLE), Verdict.PERMANENT, DeadReason.UNSENDABLE),
    ],
)
def test_what_no_retry_can_mend_is_dead_at_once(answer: Answer, verdict: Verdict, dead: DeadReason) -> None:
    decision = decided(Policy(), answer)
    assert (decision.verdict, decision.delay_s, decision.dead) == (verdict, None, dead)


@pytest.mark.parametrize("error", sorted(set(ErrorClass) - {ErrorClass.UNSENDABLE}))
def test_every_transport_error_is_a_failed_attempt_with_a_next_one(error: ErrorClass) -> None:
    decision = decided(policy_of(base_s=5), failed(error))
    assert (decision.verdict, decision.delay_s, decision.dead) == (Verdict.RETRY, 5, None)


def test_n_retries_are_n_plus_one_attempts() -> None:
    policy = policy_of(base_s=1, multiplier=1, cap_s=1, retries=3)
    decisions = [decided(policy, answered(500), progress_of(tries)) for tries in range(4)]
    assert [decision.delay_s for decision in decisions] == [1, 1, 1, None]
    assert [decision.dead for decision in decisions] == [None, None, None, DeadReason.EXHAUSTED]


def test_no_retries_means_one_attempt() -> None:
    assert decided(policy_of(retries=0), answered(500)).dead is DeadReason.EXHAUSTED


@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 409, 422, 451, 499])
def test_a_probably_final_4xx_gets_three_attempts(status: int) -> None:
    outcomes = [decided(Policy(), answered(status), progress_of(tries=n, limited=n)) for n in range(3)]
    assert [outcome.dead for outcome in outcomes] == [None, None, DeadReason.PERMANENT]
    assert {outcome.verdict for outcome in outcomes} == {Verdict.LIMITED}


def test_only_attempts_with_that_verdict_count_against_the_limit() -> None:
    assert decided(Policy(), answered(404), progress_of(tries=9, limited=1)).dead is None
    assert decided(Policy(), answered(404), progress_of(tries=9, limited=2)).dead is DeadReason.PERMANENT
    assert decided(Policy(), answered(500), progress_of(tries=9, limited=2)).dead is None


def test_one_limited_attempt_is_dead_at_once() -> None:
    assert decided(Policy(verdicts=Verdicts(limited_attempts=1)), answered(404)).dead is DeadReason.PERMANENT


def test_a_limited_retry_still_obeys_the_schedule() -> None:
    policy = policy_of(base_s=5, retries=1)
    assert decided(policy, answered(404)).delay_s == 5
    assert decided(policy, answered(404), progress_of(tries=1, limited=1)).dead is DeadReason.EXHAUSTED


@pytest.mark.parametrize(
    ("elapsed_s", "held_s", "dead"),
    [
        (0, 0, None),
        (90, 0, None),  # the next attempt begins with the window's last instant
        (90.001, 0, DeadReason.EXHAUSTED),
        (1_000, 0, DeadReason.EXHAUSTED),
        (1_000, 910, None),
        (1_000, 909.9, DeadReason.EXHAUSTED),
    ],
)
def test_the_next_attempt_begins_within_the_window_or_not_at_all(
    elapsed_s: float, held_s: float, dead: DeadReason | None
) -> None:
    policy = policy_of(base_s=10, multiplier=1, cap_s=10, retries=None, window_s=100)
    assert decided(policy, answered(500), progress_of(3, elapsed_s, held_s=held_s)).dead is dead


def test_the_window_begins_with_the_first_attempt() -> None:
    assert decided(policy_of(base_s=10, retries=None, window_s=10), answered(500)).delay_s == 10
    assert decided(policy_of(base_s=11, retries=None, window_s=10), answered(500)).dead is DeadReason.EXHAUSTED


def test_retries_and_window_end_it_whichever_comes_first() -> None:
    policy = policy_of(base_s=10, multiplier=1, cap_s=10, retries=3, window_s=100)
    assert decided(policy, answered(500), progress_of(3, 50)).dead is DeadReason.EXHAUSTED
    assert decided(policy, answered(500), progress_of(2, 95)).dead is DeadReason.EXHAUSTED
    assert decided(policy, answered(500), progress_of(2, 50)).dead is None


# Retry-After


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
@pytest.mark.parametrize("answer", [answered(429), answered(503), answered(500), answered(408), answered(404)])
def test_a_hint_is_a_floor_up_to_the_cap(answer: Answer, value: str, hint_s: float, delay_s: float) -> None:
    decision = decided(policy_of(base_s=30), Answer(answer.status, answer.error, (value,)))
    assert (decision.retry_after_s, decision.delay_s, decision.retry_after_honoured) == (hint_s, delay_s, True)


@pytest.mark.parametrize(
    "value",
    ["", "soon", "-5", "12.5", "300s", "Tomorrow", "99999999999999999999", "1m0s", "nan", "-1", "1e3", "120, 60"],
)
def test_a_hint_that_is_not_understood_leaves_the_schedule_as_it_is(value: str) -> None:
    decision = decided(policy_of(base_s=30), answered(429, value))
    assert (decision.delay_s, decision.retry_after_s, decision.retry_after_honoured) == (30, None, False)
    assert decision.hold_lane_s is None


def test_two_headers_leave_the_schedule_as_it_is() -> None:
    assert decided(policy_of(base_s=30), answered(503, "120", "60")) == decided(policy_of(base_s=30), answered(503))


def test_a_policy_can_ignore_hints() -> None:
    policy = policy_of(RetryAfterRule(mode="ignore"), base_s=30)
    assert decided(policy, answered(429, "120")) == decided(policy, answered(429))


@pytest.mark.parametrize("status", [200, 202, 301, 410])
def test_a_hint_on_an_answer_that_is_not_retried_means_nothing(status: int) -> None:
    assert decided(Policy(), answered(status, "120")) == decided(Policy(), answered(status))


def test_a_hint_does_not_change_how_many_attempts_there_are() -> None:
    policy = policy_of(retries=2)
    assert decided(policy, answered(429, "120"), progress_of(1)).dead is None
    assert decided(policy, answered(429, "120"), progress_of(2)).dead is DeadReason.EXHAUSTED


def test_a_hint_beyond_the_window_ends_the_delivery_and_was_not_honoured() -> None:
    decision = decided(policy_of(base_s=10, retries=None, window_s=100), answered(503, "101"), progress_of(1))
    assert (decision.dead, decision.delay_s, decision.retry_after_honoured) == (DeadReason.EXHAUSTED, None, False)
    assert decision.retry_after_s == 101


@pytest.mark.parametrize(
    ("answer", "hold_lane_s"),
    [
        (answered(429, "120"), 120),
        (answered(503, "120"), 120),
        (answered(503, "99999"), 14_400),
        (failed(ErrorClass.TIMEOUT, 503, "120"), 120),  # the head had come, the body had not
        (answered(429), None),
        (answered(503, "soon"), None),
        (answered(500, "120"), None),
        (answered(408, "120"), None),
        (answered(404, "120"), None),
        (answered(200, "120"), None),
    ],
)
def test_only_429_and_503_hold_the_lane(answer: Answer, hold_lane_s: float | None) -> None:
    assert decided(Policy(), answer).hold_lane_s == hold_lane_s


def test_the_lane_is_held_even_when_the_delivery_that_was_told_so_ends() -> None:
    decision = decided(policy_of(retries=0), answered(503, "120"))
    assert (decision.dead, decision.hold_lane_s) == (DeadReason.EXHAUSTED, 120)


# Properties

HINTS = st.one_of(st.integers(0, 10**6).map(str), st.text(max_size=20), st.sampled_from(["9" * 5_000, "1m0s", "-1"]))
ANSWERS = st.builds(
    Answer,
    status=st.one_of(st.none(), st.integers(0, 1_000), st.sampled_from([200, 404, 410, 429, 500, 503])),
    error=st.one_of(st.none(), st.none(), st.sampled_from(ErrorClass)),
    retry_after=st.lists(HINTS, max_size=2).map(tuple),
)
POLICIES = st.builds(
    Policy,
    schedule=st.builds(
        Exponential,
        base_s=st.floats(0.01, 60),
        multiplier=st.floats(1, 10),
        cap_s=st.floats(60, 604_800),
        retries=st.integers(0, 20),
        window_s=st.one_of(st.none(), st.floats(1, 2_592_000)),
        jitter=st.sampled_from(["full", "none"]),
    ),
    retry_after=st.builds(RetryAfterRule, cap_s=st.floats(1, 604_800), mode=st.sampled_from(["floor", "ignore"])),
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


@given(POLICIES, ANSWERS, PROGRESS, st.integers(0))
def test_a_delivery_either_succeeds_or_goes_on_or_ends_with_a_reason(
    policy: Policy, answer: Answer, progress: Progress, seed: int
) -> None:
    decision = decided(policy, answer, progress, seed)
    assert (decision.verdict is Verdict.SUCCESS) + (decision.delay_s is not None) + (decision.dead is not None) == 1


@given(POLICIES, ANSWERS, PROGRESS, st.integers(0))
def test_a_next_attempt_is_in_the_future_within_the_window_and_not_before_the_hint(
    policy: Policy, answer: Answer, progress: Progress, seed: int
) -> None:
    decision = decided(policy, answer, progress, seed)
    if decision.delay_s is None:
        return
    floor_s = min(decision.retry_after_s or 0.0, policy.retry_after.cap_s)
    assert floor_s <= decision.delay_s <= floor_s + policy.schedule.cap_s
    if policy.schedule.window_s is not None:
        elapsed_s = 0.0 if progress.started_at is None else (NOW - progress.started_at).total_seconds()
        assert elapsed_s + decision.delay_s <= policy.schedule.window_s + progress.held_s


@given(POLICIES, ANSWERS, PROGRESS, st.integers(0))
def test_a_hint_is_reported_as_honoured_exactly_when_the_next_attempt_waits_for_it(
    policy: Policy, answer: Answer, progress: Progress, seed: int
) -> None:
    decision = decided(policy, answer, progress, seed)
    if decision.retry_after_honoured:
        assert decision.delay_s is not None
        assert decision.retry_after_s is not None
        assert decision.delay_s >= min(decision.retry_after_s, policy.retry_after.cap_s)
    else:
        assert decision.retry_after_s is None or decision.delay_s is None
    if decision.hold_lane_s is not None:
        assert answer.status in {429, 503}
        assert decision.retry_after_s is not None
        assert decision.hold_lane_s == min(decision.retry_after_s, policy.retry_after.cap_s)


@given(POLICIES, ANSWERS, PROGRESS, st.integers(0))
def test_a_decision_depends_on_nothing_but_its_arguments(
    policy: Policy, answer: Answer, progress: Progress, seed: int
) -> None:
    assert decided(policy, answer, progress, seed) == decided(policy, answer, progress, seed)


@given(POLICIES, st.integers(200, 600), PROGRESS)
def test_a_delivery_that_is_answered_the_same_for_ever_ends(policy: Policy, status: int, progress: Progress) -> None:
    tries, limited = progress.tries, progress.limited
    for _ in range(25):
        decision = decided(policy, answered(status), Progress(tries, limited, progress.started_at, progress.held_s))
        if decision.delay_s is None:
            return
        tries += 1
        limited += decision.verdict is Verdict.LIMITED
    pytest.fail("the delivery goes on and on")
