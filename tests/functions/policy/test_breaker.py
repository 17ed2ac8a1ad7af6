from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.policy.breaker import Breaker, BreakerState, Outcome, after
from forbear.policy.model import BreakerRule
from forbear.policy.verdict import Answer, ErrorClass, Verdict, classify

BEGAN = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
NOW = BEGAN + timedelta(minutes=5)
RULE = BreakerRule(failures=5, cooldown_s=30, cooldown_multiplier=2, cooldown_cap_s=600)
CLOSED = Breaker(BreakerState.CLOSED, since=BEGAN, failures=0, trips=0, until=None, epoch=7, reason=None)
HALF_OPEN = Breaker(BreakerState.HALF_OPEN, since=BEGAN, failures=5, trips=1, until=None, epoch=7, reason="5 failures")


def answered(status: int, epoch: int = 7, *, probe: bool = False) -> Outcome:
    return Outcome(classify(Answer(status, None, ())), status, None, epoch, probe)


def failed(error: ErrorClass, epoch: int = 7, *, probe: bool = False, status: int | None = None) -> Outcome:
    return Outcome(classify(Answer(status, error, ())), status, error, epoch, probe)


# Closed


def test_the_fifth_failure_in_a_row_opens() -> None:
    four = after(RULE, CLOSED, [answered(500)] * 4, NOW)
    assert four == replace(CLOSED, failures=4)
    five = after(RULE, four, [answered(503)], NOW)
    assert five == Breaker(
        BreakerState.OPEN,
        since=NOW,
        failures=5,
        trips=1,
        until=NOW + timedelta(seconds=30),
        epoch=8,
        reason="5 failures in a row, the last: 503",
    )


def test_a_batch_and_single_outcomes_end_alike() -> None:
    one_by_one = CLOSED
    for _ in range(5):
        one_by_one = after(RULE, one_by_one, [answered(500)], NOW)
    assert one_by_one == after(RULE, CLOSED, [answered(500)] * 5, NOW)


def test_a_transport_error_counts_and_is_named() -> None:
    assert after(RULE, CLOSED, [failed(ErrorClass.TIMEOUT)] * 5, NOW).reason == "5 failures in a row, the last: timeout"


def test_a_single_failure_can_open_and_is_named_so() -> None:
    opened = after(BreakerRule(failures=1), CLOSED, [failed(ErrorClass.DNS)], NOW)
    assert (opened.state, opened.reason) == (BreakerState.OPEN, "1 failure, the last: dns")


def test_success_resets_the_count() -> None:
    assert after(RULE, CLOSED, [*[answered(500)] * 4, answered(200), *[answered(500)] * 4], NOW).failures == 4


@pytest.mark.parametrize("status", [302, 400, 404, 410, 429])
def test_what_only_shows_that_the_receiver_answers_neither_counts_nor_resets(status: int) -> None:
    assert after(RULE, CLOSED, [answered(status)] * 100, NOW) is CLOSED
    assert after(RULE, CLOSED, [answered(500), answered(status), answered(500)], NOW).failures == 2


def test_a_payload_that_cannot_be_sent_neither_counts_nor_resets() -> None:
    assert after(RULE, CLOSED, [failed(ErrorClass.UNSENDABLE)] * 100, NOW) is CLOSED


@pytest.mark.parametrize("status", [408, 425, 500, 502, 503, 504])
def test_what_is_worth_a_retry_counts(status: int) -> None:
    assert after(RULE, CLOSED, [answered(status)], NOW).failures == 1


def test_endless_success_writes_nothing() -> None:
    assert after(RULE, CLOSED, [answered(200)] * 1_000, NOW) is CLOSED


def test_a_batch_that_ends_where_it_began_writes_nothing() -> None:
    one = replace(CLOSED, failures=1)
    assert after(RULE, one, [answered(200), answered(500)], NOW) is one


def test_outcomes_of_another_epoch_count_for_nothing() -> None:
    assert after(RULE, CLOSED, [answered(500, epoch=6), answered(500, epoch=8)] * 50, NOW) is CLOSED


def test_what_was_in_flight_when_the_breaker_opened_counts_for_nothing() -> None:
    opened = after(RULE, CLOSED, [answered(500)] * 5, NOW)
    assert after(RULE, CLOSED, [answered(500)] * 100, NOW) == opened
    assert after(RULE, opened, [answered(500), answered(200)] * 50, NOW + timedelta(seconds=5)) is opened


def test_a_threshold_that_was_lowered_opens_with_the_next_failure() -> None:
    opened = after(BreakerRule(failures=2), replace(CLOSED, failures=4), [answered(500)], NOW)
    assert (opened.state, opened.failures) == (BreakerState.OPEN, 5)


# Half-open


@pytest.mark.parametrize("status", [200, 204, 301, 400, 404, 408, 410, 425, 429, 499])
def test_a_probe_answered_with_anything_under_500_closes(status: int) -> None:
    assert after(RULE, replace(HALF_OPEN, trips=9), [answered(status, probe=True)], NOW) == Breaker(
        BreakerState.CLOSED,
        since=NOW,
        failures=0,
        trips=0,
        until=None,
        epoch=8,
        reason=f"the probe was answered: {status}",
    )


@pytest.mark.parametrize(
    ("outcome", "result"),
    [
        (answered(500, probe=True), "500"),
        (answered(503, probe=True), "503"),
        (answered(600, probe=True), "600"),
        (answered(101, probe=True), "101"),
        (failed(ErrorClass.CONNECT, probe=True), "connect"),
        (failed(ErrorClass.TIMEOUT, probe=True, status=200), "timeout"),  # a head without its body is no answer
    ],
)
def test_a_failed_probe_opens_with_a_longer_cool_down(outcome: Outcome, result: str) -> None:
    assert after(RULE, HALF_OPEN, [outcome], NOW) == Breaker(
        BreakerState.OPEN,
        since=NOW,
        failures=6,
        trips=2,
        until=NOW + timedelta(seconds=60),
        epoch=8,
        reason=f"the probe failed: {result}",
    )


def test_a_probe_that_could_not_be_sent_lets_another_one_go_at_once() -> None:
    """It says nothing about the receiver, and a half-open breaker without a probe in flight would wait for nobody."""
    opened = after(RULE, HALF_OPEN, [failed(ErrorClass.UNSENDABLE, probe=True)], NOW)
    assert (opened.state, opened.until, opened.epoch) == (BreakerState.OPEN, NOW, 8)
    assert (opened.trips, opened.failures) == (HALF_OPEN.trips, HALF_OPEN.failures)


def test_only_the_probe_decides() -> None:
    assert after(RULE, HALF_OPEN, [answered(200), answered(500), answered(404)] * 10, NOW) is HALF_OPEN


def test_a_probe_of_an_earlier_half_open_decides_nothing() -> None:
    assert after(RULE, HALF_OPEN, [answered(200, epoch=6, probe=True)], NOW) is HALF_OPEN


def test_after_recovery_the_cool_down_begins_small_again() -> None:
    closed = after(RULE, replace(HALF_OPEN, trips=9), [answered(200, probe=True)], NOW)
    opened = after(RULE, closed, [answered(500, epoch=8)] * 5, NOW)
    assert opened.until == NOW + timedelta(seconds=30)


def test_the_cool_down_grows_to_its_cap_and_stays_there() -> None:
    waits = []
    for trips in (0, 1, 2, 3, 4, 5, 6, 10_000, 10**9):
        until = after(RULE, replace(HALF_OPEN, trips=trips), [answered(500, probe=True)], NOW).until
        assert until is not None
        waits.append((until - NOW).total_seconds())
    assert waits == [30, 60, 120, 240, 480, 600, 600, 600, 600]


# Properties


@st.composite
def breakers(draw: st.DrawFn) -> Breaker:
    state = draw(st.sampled_from(BreakerState))
    return Breaker(
        state=state,
        since=BEGAN,
        failures=draw(st.integers(0, 4)) if state is BreakerState.CLOSED else draw(st.integers(1, 100)),
        trips=draw(st.one_of(st.integers(0, 20), st.sampled_from([10_000, 10**9]))),
        until=BEGAN + timedelta(seconds=30) if state is BreakerState.OPEN else None,
        epoch=draw(st.integers(0, 3)),
        reason=draw(st.sampled_from([None, "5 failures in a row, the last: 500"])),
    )


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    error = draw(st.one_of(st.none(), st.none(), st.sampled_from(ErrorClass)))
    status = draw(st.sampled_from([200, 204, 302, 404, 410, 429, 500, 503] + ([] if error is None else [None])))
    verdict = classify(Answer(status, error, ()))
    return Outcome(verdict, status, error, epoch=draw(st.integers(0, 5)), probe=draw(st.booleans()))


RULES = st.builds(
    BreakerRule,
    failures=st.integers(1, 6),
    cooldown_s=st.floats(0.1, 60),
    cooldown_multiplier=st.floats(1, 100),
    cooldown_cap_s=st.floats(60, 86_400),
)
BATCHES = st.lists(outcomes(), max_size=40)


@given(RULES, breakers(), BATCHES)
def test_an_open_breaker_always_knows_when_a_probe_may_go(
    rule: BreakerRule, breaker: Breaker, batch: list[Outcome]
) -> None:
    result = after(rule, breaker, batch, NOW)
    assert (result.until is not None) == (result.state is BreakerState.OPEN)
    if result is not breaker and result.until is not None:
        assert NOW <= result.until <= NOW + timedelta(seconds=rule.cooldown_cap_s)


@given(RULES, breakers(), BATCHES)
def test_the_epoch_rises_with_every_change_of_state_and_never_falls(
    rule: BreakerRule, breaker: Breaker, batch: list[Outcome]
) -> None:
    for outcome in batch:
        result = after(rule, breaker, [outcome], NOW)
        assert result.epoch == breaker.epoch + (result.state is not breaker.state)
        assert (result.since == NOW) == (result.state is not breaker.state) or breaker.since == NOW
        breaker = result


@given(RULES, breakers(), BATCHES)
def test_what_has_not_changed_is_the_same_object(rule: BreakerRule, breaker: Breaker, batch: list[Outcome]) -> None:
    result = after(rule, breaker, batch, NOW)
    assert (result is breaker) == (result == breaker)


@given(RULES, breakers(), BATCHES, st.integers(0, 40))
def test_how_outcomes_are_cut_into_batches_does_not_matter(
    rule: BreakerRule, breaker: Breaker, batch: list[Outcome], cut: int
) -> None:
    halves = after(rule, after(rule, breaker, batch[:cut], NOW), batch[cut:], NOW)
    assert halves == after(rule, breaker, batch, NOW)


@given(RULES, breakers(), BATCHES)
def test_a_breaker_never_leaves_open_by_an_outcome(rule: BreakerRule, breaker: Breaker, batch: list[Outcome]) -> None:
    opened = replace(breaker, state=BreakerState.OPEN, until=NOW)
    assert after(rule, opened, batch, NOW) is opened


@given(RULES, breakers(), BATCHES)
def test_a_closed_breaker_stays_below_its_threshold(rule: BreakerRule, breaker: Breaker, batch: list[Outcome]) -> None:
    healthy = replace(breaker, state=BreakerState.CLOSED, failures=0, until=None)
    result = after(rule, healthy, batch, NOW)
    assert (result.state is BreakerState.CLOSED) == (result.failures < rule.failures)


@given(RULES, breakers(), st.lists(st.sampled_from([404, 410, 429, 302, 422]), max_size=40))
def test_no_4xx_ever_moves_a_closed_breaker(rule: BreakerRule, breaker: Breaker, statuses: list[int]) -> None:
    closed = replace(breaker, state=BreakerState.CLOSED, until=None)
    assert after(rule, closed, [answered(status, closed.epoch) for status in statuses], NOW) is closed


def test_verdicts_count_as_they_stand_whoever_gave_them() -> None:
    """A policy may call a 404 retryable; then it counts. And what it calls a success resets."""
    assert after(RULE, CLOSED, [Outcome(Verdict.RETRY, 404, None, 7, probe=False)], NOW).failures == 1
    four = replace(CLOSED, failures=4)
    assert after(RULE, four, [Outcome(Verdict.SUCCESS, 404, None, 7, probe=False)], NOW).failures == 0
