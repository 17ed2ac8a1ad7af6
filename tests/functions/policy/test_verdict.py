from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.policy.model import Policy, Verdicts
from forbear.policy.schedule import Ladder
from forbear.policy.verdict import Answer, DeadReason, Decision, ErrorClass, Progress, Verdict, classify
from tests.functions.policy.builders import (
    ANSWERS,
    LISTS,
    POLICIES,
    PROGRESS,
    TABLES,
    answered,
    decided,
    every,
    failed,
    policy_of,
    progress_of,
)

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
    ],
)
def test_by_default_each_status_has_the_verdict_that_the_documentation_gives(
    statuses: Iterable[int], verdict: Verdict
) -> None:
    assert {classify(Verdicts(), answered(status)) for status in statuses} == {verdict}


def test_a_status_of_its_own_beats_its_class() -> None:
    """A receiver that redirects on success, is out of stock with a 409, and must not be asked again after a 501."""
    verdicts = Verdicts(
        success=("2xx", "302", "404"),
        retry=("5xx", "409"),
        limited=("4xx", "204"),
        permanent=("3xx", "501"),
        gone=("403", "202"),
    )
    statuses = (200, 202, 204, 301, 302, 400, 403, 404, 409, 429, 500, 501)
    assert [classify(verdicts, answered(status)) for status in statuses] == [
        Verdict.SUCCESS,
        Verdict.GONE,
        Verdict.LIMITED,
        Verdict.PERMANENT,
        Verdict.SUCCESS,
        Verdict.LIMITED,
        Verdict.GONE,
        Verdict.SUCCESS,
        Verdict.RETRY,
        Verdict.LIMITED,
        Verdict.RETRY,
        Verdict.PERMANENT,
    ]


def test_a_policy_may_retry_whatever_is_not_a_2xx() -> None:
    verdicts = Verdicts(retry=("3xx", "4xx", "5xx"), limited=(), permanent=(), gone=())
    assert {classify(verdicts, answered(status)) for status in range(300, 600)} == {Verdict.RETRY}


@given(TABLES, st.integers(200, 599))
def test_a_status_has_the_verdict_of_its_own_list_or_else_of_the_list_of_its_class(
    verdicts: Verdicts, status: int
) -> None:
    listed = {name: Verdict(each) for each in LISTS for name in getattr(verdicts, each)}
    own, of_class = listed.get(f"{status}"), listed[f"{status}"[0] + "xx"]
    assert classify(verdicts, answered(status)) is (own or of_class)


@given(TABLES, st.one_of(st.none(), st.integers(max_value=199), st.integers(min_value=600)))
def test_what_is_no_final_status_is_retried_under_every_table(verdicts: Verdicts, status: int | None) -> None:
    """RFC 9110 section 15: a client treats an invalid status like a 5xx. An attempt of which nothing is known, too."""
    assert classify(verdicts, Answer(status=status, error=None, retry_after=())) is Verdict.RETRY


@given(TABLES, st.sampled_from(ErrorClass), st.one_of(st.none(), st.integers(100, 600)))
def test_an_error_decides_whatever_the_status_was(verdicts: Verdicts, error: ErrorClass, status: int | None) -> None:
    """The head of an answer whose body never came is no success and no refusal."""
    unsendable = error is ErrorClass.UNSENDABLE
    assert classify(verdicts, failed(error, status)) is (Verdict.PERMANENT if unsendable else Verdict.RETRY)


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
        *((answered(s), Verdict.PERMANENT, DeadReason.PERMANENT) for s in (300, 301, 302, 303, 304, 307, 308)),
        (answered(410), Verdict.GONE, DeadReason.GONE),
        (failed(ErrorClass.UNSENDABLE), Verdict.PERMANENT, DeadReason.UNSENDABLE),
    ],
)
def test_what_no_retry_can_mend_is_dead_at_once(answer: Answer, verdict: Verdict, dead: DeadReason) -> None:
    decision = decided(Policy(), answer)
    assert (decision.verdict, decision.delay_s, decision.dead) == (verdict, None, dead)


def test_the_policys_own_table_decides_what_is_dead_at_once() -> None:
    verdicts = Verdicts(retry=("429", "5xx", "410"), limited=(), permanent=("3xx", "4xx"), gone=("501",))
    policy = Policy(schedule=every(30), verdicts=verdicts)
    assert [decided(policy, answered(status)).dead for status in (410, 404, 501, 500)] == [
        None,
        DeadReason.PERMANENT,
        DeadReason.GONE,
        None,
    ]


@pytest.mark.parametrize("error", sorted(set(ErrorClass) - {ErrorClass.UNSENDABLE}))
def test_every_transport_error_is_a_failed_attempt_with_a_next_one(error: ErrorClass) -> None:
    decision = decided(policy_of(every(5)), failed(error))
    assert (decision.verdict, decision.delay_s, decision.dead) == (Verdict.RETRY, 5, None)


def test_n_retries_are_n_plus_one_attempts() -> None:
    policy = policy_of(every(1, retries=3))
    decisions = [decided(policy, answered(500), progress_of(tries)) for tries in range(4)]
    assert [decision.delay_s for decision in decisions] == [1, 1, 1, None]
    assert [decision.dead for decision in decisions] == [None, None, None, DeadReason.EXHAUSTED]


def test_a_ladder_gives_the_gap_of_the_retry_that_comes_next_and_ends_with_its_list() -> None:
    policy = policy_of(Ladder.model_validate({"gaps_s": [0, 5, 300], "jitter": {"kind": "none"}}))
    assert [decided(policy, answered(500), progress_of(tries)).delay_s for tries in range(4)] == [0, 5, 300, None]


def test_no_retries_means_one_attempt() -> None:
    assert decided(policy_of(every(30, retries=0)), answered(500)).dead is DeadReason.EXHAUSTED
    assert decided(policy_of(Ladder(gaps_s=())), answered(500)).dead is DeadReason.EXHAUSTED


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
    policy = policy_of(every(5, retries=1))
    assert decided(policy, answered(404)).delay_s == 5
    assert decided(policy, answered(404), progress_of(tries=1, limited=1)).dead is DeadReason.EXHAUSTED


# The window


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
    policy = policy_of(every(10, window_s=100))
    assert decided(policy, answered(500), progress_of(3, elapsed_s, held_s=held_s)).dead is dead


def test_the_window_begins_with_the_first_attempt() -> None:
    assert decided(policy_of(every(10, window_s=10)), answered(500)).delay_s == 10
    assert decided(policy_of(every(11, window_s=10)), answered(500)).dead is DeadReason.EXHAUSTED


def test_retries_and_window_end_it_whichever_comes_first() -> None:
    policy = policy_of(every(10, retries=3, window_s=100))
    assert decided(policy, answered(500), progress_of(3, 50)).dead is DeadReason.EXHAUSTED
    assert decided(policy, answered(500), progress_of(2, 95)).dead is DeadReason.EXHAUSTED
    assert decided(policy, answered(500), progress_of(2, 50)).dead is None


# Properties


@given(POLICIES, ANSWERS, PROGRESS, st.integers(0))
def test_a_delivery_either_succeeds_or_goes_on_or_ends_with_a_reason(
    policy: Policy, answer: Answer, progress: Progress, seed: int
) -> None:
    decision = decided(policy, answer, progress, seed)
    assert (decision.verdict is Verdict.SUCCESS) + (decision.delay_s is not None) + (decision.dead is not None) == 1


@given(POLICIES, ANSWERS, PROGRESS, st.integers(0))
def test_what_only_the_claim_can_know_is_never_decided_here(
    policy: Policy, answer: Answer, progress: Progress, seed: int
) -> None:
    others = {DeadReason.EXPIRED, DeadReason.LOST, DeadReason.CIRCUIT_OPEN}
    assert decided(policy, answer, progress, seed).dead not in others


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
