from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.policy.breaker import Breaker, BreakerState, Outcome, after
from forbear.policy.model import BreakerRule
from forbear.policy.verdict import ErrorClass, Verdict
from tests.functions.policy.outcomes import (
    BATCHES,
    BEGAN,
    CLOSED,
    NOW,
    answered,
    breakers,
    failed,
    outcomes,
    rules,
    seconds,
)

RULE = BreakerRule(failures=5, cooldown_s=30, cooldown_multiplier=2, cooldown_cap_s=600)
AT_ONCE = RULE.model_copy(update={"slow_start": False})
CAP = 100
OPEN = Breaker(
    BreakerState.OPEN,
    since=NOW,
    failures=5,
    trips=1,
    until=NOW + seconds(30),
    epoch=8,
    reason="5 failures in a row, the last: 503",
)
PROBE = Breaker(
    BreakerState.HALF_OPEN_PROBE, since=BEGAN, failures=5, trips=1, until=None, epoch=7, reason="5 failures"
)
TRICKLE = Breaker(
    BreakerState.HALF_OPEN_TRICKLE, since=NOW, failures=0, trips=3, until=None, epoch=7, reason="…", allows=4
)


# Closed: failures in a row


def test_the_fifth_failure_in_a_row_opens() -> None:
    four = after(RULE, CLOSED, [answered(500)] * 4, NOW, CAP)
    assert four == replace(CLOSED, failures=4)
    assert after(RULE, four, [answered(503)], NOW, CAP) == OPEN


def test_a_transport_error_counts_and_is_named() -> None:
    opened = after(RULE, CLOSED, [failed(ErrorClass.TIMEOUT)] * 5, NOW, CAP)
    assert opened.reason == "5 failures in a row, the last: timeout"


def test_a_single_failure_can_open_and_is_named_so() -> None:
    opened = after(BreakerRule(failures=1), CLOSED, [failed(ErrorClass.DNS)], NOW, CAP)
    assert (opened.state, opened.reason) == (BreakerState.OPEN, "1 failure, the last: dns")


def test_success_resets_the_count() -> None:
    batch = [*[answered(500)] * 4, answered(200), *[answered(500)] * 4]
    assert after(RULE, CLOSED, batch, NOW, CAP).failures == 4


@pytest.mark.parametrize("status", [302, 400, 404, 410, 429])
def test_what_only_shows_that_the_receiver_answers_neither_counts_nor_resets(status: int) -> None:
    assert after(RULE, CLOSED, [answered(status)] * 100, NOW, CAP) is CLOSED
    assert after(RULE, CLOSED, [answered(500), answered(status), answered(500)], NOW, CAP).failures == 2


@pytest.mark.parametrize("error", [ErrorClass.UNSENDABLE, ErrorClass.INTERNAL])
def test_what_went_wrong_on_our_side_neither_counts_nor_resets(error: ErrorClass) -> None:
    assert after(RULE, CLOSED, [failed(error)] * 100, NOW, CAP) is CLOSED
    assert after(RULE, TRICKLE, [failed(error)] * 100, NOW, CAP) is TRICKLE


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_what_is_worth_a_retry_counts(status: int) -> None:
    assert after(RULE, CLOSED, [answered(status)], NOW, CAP).failures == 1


def test_what_passes_a_probe_never_counts() -> None:
    """What a policy calls a success resets, and passes a probe. A 404 that it retries is an answer all the same."""
    retried = replace(answered(404), verdict=Verdict.RETRY)
    assert after(RULE, CLOSED, [retried], NOW, CAP) is CLOSED
    fine = replace(answered(503, probe=True), verdict=Verdict.SUCCESS)
    assert after(RULE, replace(CLOSED, failures=4), [fine], NOW, CAP).failures == 0
    assert after(AT_ONCE, PROBE, [fine], NOW, CAP).state is BreakerState.CLOSED


def test_endless_success_writes_nothing() -> None:
    assert after(RULE, CLOSED, [answered(200)] * 1_000, NOW, CAP) is CLOSED


def test_a_batch_that_ends_where_it_began_writes_nothing() -> None:
    one = replace(CLOSED, failures=1)
    assert after(RULE, one, [answered(200), answered(500)], NOW, CAP) is one


def test_outcomes_of_another_epoch_count_for_nothing() -> None:
    assert after(RULE, CLOSED, [answered(500, epoch=6), answered(500, epoch=8)] * 50, NOW, CAP) is CLOSED


def test_what_was_in_flight_when_the_breaker_opened_counts_for_nothing() -> None:
    opened = after(RULE, CLOSED, [answered(500)] * 5, NOW, CAP)
    assert after(RULE, CLOSED, [answered(500)] * 100, NOW, CAP) == opened
    assert after(RULE, opened, [answered(500), answered(200)] * 50, NOW + seconds(5), CAP) is opened


def test_a_threshold_that_was_lowered_opens_with_the_next_failure() -> None:
    opened = after(BreakerRule(failures=2), replace(CLOSED, failures=4), [answered(500)], NOW, CAP)
    assert (opened.state, opened.failures) == (BreakerState.OPEN, 5)


@pytest.mark.parametrize("breaker", [CLOSED, OPEN, PROBE, TRICKLE])
def test_without_a_rule_the_breaker_stays_as_it_is(breaker: Breaker) -> None:
    batch = [answered(500, breaker.epoch, probe=True), answered(200, breaker.epoch, probe=True)] * 50
    assert after(None, breaker, batch, NOW, CAP) is breaker


# Closed: within a time


def settled(rule: BreakerRule, breaker: Breaker, statuses: dict[float, int]) -> Breaker:
    """The breaker after answers at so many seconds, each settled by itself; stops where it opens."""
    for at_s, status in statuses.items():
        if breaker.state is BreakerState.CLOSED:
            breaker = after(rule, breaker, [answered(status)], BEGAN + seconds(at_s), CAP)
    return breaker


WITHIN = BreakerRule(failures=5, within_s=60)


def test_five_failures_in_a_row_within_a_minute_open() -> None:
    opened = settled(WITHIN, CLOSED, dict.fromkeys((0, 15, 30, 45, 60), 503))
    assert (opened.state, opened.since) == (BreakerState.OPEN, BEGAN + seconds(60))
    assert opened.reason == "5 failures in a row within 60 s, the last: 503"


def test_five_failures_in_a_row_over_more_than_a_minute_do_not_open() -> None:
    assert settled(WITHIN, CLOSED, dict.fromkeys((0, 15, 30, 45, 60.5), 503)).state is BreakerState.CLOSED
    assert settled(WITHIN, CLOSED, dict.fromkeys(range(0, 16_000, 16), 503)).state is BreakerState.CLOSED


def test_the_last_five_of_a_long_row_open_it() -> None:
    opened = settled(WITHIN, CLOSED, dict.fromkeys((0, 100, 200, 300, 301, 302, 303, 304, 305), 500))
    assert (opened.failures, opened.since) == (8, BEGAN + seconds(304))


def test_a_success_within_the_minute_starts_the_row_anew() -> None:
    failing = settled(WITHIN, CLOSED, {0: 500, 1: 500, 2: 500, 3: 500, 4: 200, 5: 500, 6: 500, 7: 500, 8: 500})
    assert (failing.state, failing.failures) == (BreakerState.CLOSED, 4)
    assert settled(WITHIN, failing, {9: 500}).state is BreakerState.OPEN


VOLUME = BreakerRule(failures=None, volume=20, volume_window_s=300)


def test_twenty_failures_within_five_minutes_open_whatever_succeeds_between_them() -> None:
    each_way = {at_s + half / 2: (500, 200)[half] for at_s in range(0, 400, 15) for half in (0, 1)}
    opened = settled(VOLUME, CLOSED, each_way)
    assert (opened.state, opened.since) == (BreakerState.OPEN, BEGAN + seconds(19 * 15))
    assert opened.reason == "20 failures within 300 s, the last: 500"


def test_twenty_failures_over_more_than_five_minutes_do_not_open() -> None:
    each_way = {at_s + half / 2: (500, 200)[half] for at_s in range(0, 40_000, 16) for half in (0, 1)}
    assert settled(VOLUME, CLOSED, each_way).state is BreakerState.CLOSED


def test_a_row_and_a_volume_share_one_memory_and_keep_their_own_counts() -> None:
    """The row ends with a success, the volume's window does not; nor may old failures lengthen a new row."""
    both = BreakerRule(failures=3, within_s=60, volume=5, volume_window_s=300)
    failing = settled(both, CLOSED, {0: 500, 1: 500, 2: 200, 3: 500, 4: 500})
    assert (failing.state, failing.failures, len(failing.recent)) == (BreakerState.CLOSED, 2, 4)
    in_a_row = settled(both, failing, {5: 500})
    assert in_a_row.reason == "3 failures in a row within 60 s, the last: 500"
    by_volume = settled(both, failing, {5: 200, 6: 500})
    assert by_volume.reason == "5 failures within 300 s, the last: 500"


@pytest.mark.parametrize(
    ("row", "volume", "between", "reason"),
    [
        ((3, 300), (4, 10), 404, "3 failures in a row within 300 s"),
        ((6, 600), (2, 10), 404, "6 failures in a row within 600 s"),
        ((3, 10), (4, 300), 200, "4 failures within 300 s"),
        ((2, 10), (6, 600), 200, "6 failures within 600 s"),
    ],
)
def test_the_shared_memory_is_as_long_as_the_longer_of_the_two_needs(
    row: tuple[int, float], volume: tuple[int, float], between: int, reason: str
) -> None:
    rule = BreakerRule(failures=row[0], within_s=row[1], volume=volume[0], volume_window_s=volume[1])
    failing = {at_s + half / 2: (500, between)[half] for at_s in range(0, 2_000, 100) for half in (0, 1)}
    assert settled(rule, CLOSED, failing).reason == f"{reason}, the last: 500"


def test_the_volume_is_forgotten_in_one_write_once_its_window_has_passed() -> None:
    failing = settled(VOLUME, CLOSED, {0: 500, 100: 500, 200: 200})
    assert len(failing.recent) == 2
    assert settled(VOLUME, failing, {350: 200}) is failing
    assert settled(VOLUME, failing, {401: 200}) == CLOSED


def test_nothing_is_remembered_that_the_rule_cannot_use() -> None:
    failing = after(RULE, CLOSED, [answered(500)] * 4, NOW, CAP)
    assert (failing.recent, failing.failing_since) == ((), None)
    both = BreakerRule(failures=3, within_s=600, volume=5, volume_window_s=1)
    each_way = {at_s + half / 2: (500, 200)[half] for at_s in range(0, 400, 15) for half in (0, 1)}
    assert len(settled(both, CLOSED, each_way).recent) == 5


FAILING = BreakerRule(failures=None, failing_s=1_200)


def test_twenty_minutes_of_nothing_but_failures_open() -> None:
    failing = settled(FAILING, CLOSED, dict.fromkeys((0, 1, 2, 3, 1_199), 502))
    assert (failing.state, failing.failing_since) == (BreakerState.CLOSED, BEGAN)
    opened = settled(FAILING, failing, {1_200: 502})
    assert opened.reason == "nothing but failures for 1200 s, the last: 502"


def test_a_success_starts_the_twenty_minutes_anew_and_a_404_does_not() -> None:
    healed = settled(FAILING, CLOSED, {0: 502, 600: 200, 601: 502, 1_500: 502})
    assert (healed.state, healed.failing_since) == (BreakerState.CLOSED, BEGAN + seconds(601))
    assert settled(FAILING, CLOSED, {0: 502, 600: 404, 1_200: 502}).state is BreakerState.OPEN


def test_twenty_minutes_end_with_a_failure_and_never_with_silence_or_a_429() -> None:
    failing = settled(FAILING, CLOSED, {0: 502})
    assert settled(FAILING, failing, {9_000: 429, 9_001: 404}) is failing


def test_what_was_remembered_ends_with_the_opening() -> None:
    """Or the first failure after a recovery would open it again."""
    rule = BreakerRule(failures=None, volume=3, volume_window_s=300, failing_s=600)
    opened = settled(rule, CLOSED, {0: 500, 1: 500, 2: 500})
    assert (opened.state, opened.recent, opened.failing_since) == (BreakerState.OPEN, (), None)


# Properties

STEPS = st.integers(0, 200)


@given(rules(), breakers(), BATCHES)
@settings(max_examples=100)
def test_an_open_breaker_always_knows_when_a_probe_may_go(
    rule: BreakerRule, breaker: Breaker, batch: list[Outcome]
) -> None:
    result = after(rule, breaker, batch, NOW, CAP)
    assert (result.until is not None) == (result.state is BreakerState.OPEN)
    if result is not breaker and result.until is not None:
        assert NOW <= result.until <= NOW + seconds(rule.cooldown_cap_s)


@given(rules(), breakers(), BATCHES)
@settings(max_examples=100)
def test_the_epoch_rises_with_every_change_of_state_and_never_falls(
    rule: BreakerRule, breaker: Breaker, batch: list[Outcome]
) -> None:
    for outcome in batch:
        result = after(rule, breaker, [outcome], NOW, CAP)
        assert result.epoch == breaker.epoch + (result.state is not breaker.state)
        assert (result.since == NOW) == (result.state is not breaker.state) or breaker.since == NOW
        breaker = result


@given(rules(), st.data(), st.integers(1, 200), st.lists(outcomes(st.just(0)), max_size=40))
@settings(max_examples=100)
def test_a_trickle_stays_between_one_and_the_cap(
    rule: BreakerRule, drawn: st.DataObject, cap: int, batch: list[Outcome]
) -> None:
    breaker = replace(drawn.draw(breakers(cap)), epoch=0)
    for outcome in batch:
        breaker = after(rule, breaker, [replace(outcome, epoch=breaker.epoch)], NOW, cap)
        assert (breaker.allows is not None) == (breaker.state is BreakerState.HALF_OPEN_TRICKLE)
        if breaker.allows is not None:
            assert 1 <= breaker.allows <= cap
            assert 0 <= breaker.passed < breaker.allows
        else:
            assert breaker.passed == 0


@given(rules(), st.lists(st.tuples(STEPS, BATCHES), max_size=8))
@settings(max_examples=100)
def test_what_is_remembered_is_bounded_in_number_and_in_time(
    rule: BreakerRule, settlings: list[tuple[int, list[Outcome]]]
) -> None:
    bound = max(0 if rule.within_s is None else rule.failures or 0, rule.volume or 0)
    breaker, clock = replace(CLOSED, epoch=0), NOW
    for step_s, batch in settlings:
        clock += seconds(step_s)
        before = breaker
        breaker = after(rule, breaker, [replace(outcome, epoch=breaker.epoch) for outcome in batch], clock, CAP)
        assert len(breaker.recent) <= bound
        assert list(breaker.recent) == sorted(breaker.recent)
        if breaker.recent != before.recent and breaker.recent:
            assert breaker.recent[-1] == clock
            assert clock - breaker.recent[0] <= seconds(max(rule.within_s or 0, rule.volume_window_s or 0))
        assert (breaker.failing_since is None) or (rule.failing_s is not None and breaker.failures > 0)


@given(rules(), breakers(), BATCHES)
@settings(max_examples=100)
def test_what_has_not_changed_is_the_same_object(rule: BreakerRule, breaker: Breaker, batch: list[Outcome]) -> None:
    result = after(rule, breaker, batch, NOW, CAP)
    assert (result is breaker) == (result == breaker)
    assert after(rule, result, [], NOW, CAP) is result


@given(rules(), breakers(), BATCHES, st.integers(0, 40))
@settings(max_examples=100)
def test_how_outcomes_are_cut_into_batches_does_not_matter(
    rule: BreakerRule, breaker: Breaker, batch: list[Outcome], cut: int
) -> None:
    halves = after(rule, after(rule, breaker, batch[:cut], NOW, CAP), batch[cut:], NOW, CAP)
    assert halves == after(rule, breaker, batch, NOW, CAP)


@given(rules(), breakers(), BATCHES)
@settings(max_examples=50)
def test_a_breaker_never_leaves_open_by_an_outcome(rule: BreakerRule, breaker: Breaker, batch: list[Outcome]) -> None:
    opened = replace(breaker, state=BreakerState.OPEN, until=NOW, allows=None, passed=0)
    assert after(rule, opened, batch, NOW, CAP) is opened


def opens_by_the_book(rule: BreakerRule, failures: list[datetime], row: int, now: datetime) -> bool:
    """The rule, over every failure that ever counted: the slow and plain way to say it."""
    in_a_row = failures[len(failures) - row :]

    def within(times: list[datetime], count: int | None, window_s: float | None) -> bool:
        return count is not None and sum(window_s is None or now - time <= seconds(window_s) for time in times) >= count

    return (
        within(in_a_row, rule.failures, rule.within_s)
        or (rule.volume is not None and within(failures, rule.volume, rule.volume_window_s))
        or (rule.failing_s is not None and now - in_a_row[0] >= seconds(rule.failing_s))
    )


@given(rules(), st.lists(st.tuples(STEPS, st.sampled_from([200, 404, 429, 500, 503])), max_size=40))
@settings(max_examples=200)
def test_the_bounded_memory_opens_when_a_complete_one_would(rule: BreakerRule, answers: list[tuple[int, int]]) -> None:
    breaker, clock, failures, row = CLOSED, BEGAN, [], 0
    for step_s, status in answers:
        clock += seconds(step_s)
        breaker = after(rule, breaker, [answered(status)], clock, CAP)
        row = 0 if status == 200 else row + (status >= 500)
        failures += [clock] if status >= 500 else []
        opens = status >= 500 and opens_by_the_book(rule, failures, row, clock)
        assert (breaker.state is BreakerState.OPEN) == opens
        if opens:
            return
        assert breaker.failures == row


@given(rules(), breakers(), st.lists(st.sampled_from([404, 410, 429, 302, 422]), max_size=40))
@settings(max_examples=50)
def test_no_4xx_ever_moves_a_closed_breaker(rule: BreakerRule, breaker: Breaker, statuses: list[int]) -> None:
    closed = replace(breaker, state=BreakerState.CLOSED, until=None, allows=None, passed=0)
    assert after(rule, closed, [answered(status, closed.epoch) for status in statuses], NOW, CAP) is closed
