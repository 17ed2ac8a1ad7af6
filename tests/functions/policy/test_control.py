from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.policy import breaker as circuit
from forbear.policy import concurrency
from forbear.policy.breaker import Breaker, BreakerState, Outcome
from forbear.policy.control import Control, Trouble, after, disable_reason
from forbear.policy.model import Adaptive, AutoDisable, BreakerRule, Limits, Policy
from forbear.policy.verdict import ErrorClass
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

POLICY = Policy()
WELL = Control(CLOSED, version=3)
TRICKLE = Breaker(
    BreakerState.HALF_OPEN_TRICKLE, since=NOW, failures=0, trips=1, until=None, epoch=7, reason="…", allows=16
)
HOUR = seconds(3_600)
DAY = 24 * HOUR


def test_success_upon_success_writes_nothing() -> None:
    assert after(POLICY, WELL, [answered(200, in_flight=100)] * 1_000, NOW) is WELL


def test_what_a_success_could_change_is_not_passed_over() -> None:
    """The quick way for healthy endpoints must see every other state."""
    well = [answered(200, in_flight=60, started=NOW)]
    for control in (
        replace(WELL, breaker=replace(CLOSED, failures=1)),
        replace(WELL, breaker=replace(CLOSED, recent=(BEGAN,))),
        replace(WELL, breaker=replace(TRICKLE, allows=1)),
        replace(WELL, limit=50),
        replace(WELL, trouble=Trouble(BEGAN, BEGAN, 1)),
    ):
        assert after(POLICY, control, well, NOW) != control
    slow = after(POLICY, WELL, well, NOW, slow=True)
    assert slow == replace(WELL, limit=90, limit_since=NOW)


def test_one_failure_is_counted_by_all_that_it_concerns() -> None:
    assert after(POLICY, WELL, [failed(ErrorClass.TIMEOUT)], NOW) == Control(
        replace(CLOSED, failures=1), limit=90, limit_since=NOW, trouble=Trouble(NOW, NOW, 1), version=3
    )


def test_an_empty_batch_changes_nothing() -> None:
    control = Control(TRICKLE, limit=50, limit_since=BEGAN, trouble=Trouble(BEGAN, BEGAN, 1))
    assert after(POLICY, control, [], NOW, slow=True) is control


# The breaker and the concurrency together


@pytest.mark.parametrize(("limit", "widths"), [(None, [2, 4, 8, 16, 32, 64]), (10, [2, 4, 8])])
def test_a_trickle_ends_at_the_policys_concurrency_or_the_adaptive_one(limit: int | None, widths: list[int]) -> None:
    control = Control(replace(TRICKLE, allows=2), limit=limit, limit_since=NOW)
    seen: list[int] = []
    while control.breaker.allows is not None:
        seen.append(control.breaker.allows)
        old = [answered(200, started=BEGAN)] * control.breaker.allows  # too old to move the limit
        control = after(POLICY, control, old, NOW)
    assert (seen, control.breaker.state, control.limit) == (widths, BreakerState.CLOSED, limit)


def test_without_any_limit_a_trickle_ends_before_a_thousand() -> None:
    policy = Policy(limits=Limits(concurrency=None), adaptive=None)
    control = Control(replace(TRICKLE, allows=512))
    assert after(policy, control, [answered(200)] * 512, NOW).breaker.state is BreakerState.CLOSED


def test_a_failure_in_a_trickle_halves_the_limit_to_a_width_that_was_borne() -> None:
    """RFC 5681 section 3.1. The next trickle ends there, and the additive increase goes on from there."""
    opened = after(POLICY, Control(TRICKLE), [answered(200), answered(500)], NOW)
    assert opened.breaker.state is BreakerState.OPEN
    assert (opened.limit, opened.limit_since) == (8, NOW)
    later = NOW + seconds(60)
    probed = replace(TRICKLE, state=BreakerState.HALF_OPEN_PROBE, allows=None, epoch=9)
    control = after(
        POLICY, replace(opened, breaker=probed), [answered(200, 9, probe=True, started=later)], later + seconds(1)
    )
    while control.breaker.allows is not None:
        widest = control.breaker.allows
        batch = [answered(200, 10, started=later, in_flight=widest)] * widest
        control = after(POLICY, control, batch, later + seconds(2))
    assert (widest, control.limit, control.breaker.state) == (8, 9, BreakerState.CLOSED)


def test_a_limit_that_is_lower_already_stays_lower() -> None:
    opened = after(POLICY, Control(TRICKLE, limit=3, limit_since=NOW), [answered(500)], NOW)
    assert opened.limit == 3


def test_a_failure_at_a_width_of_one_leaves_a_limit_of_one() -> None:
    assert after(POLICY, Control(replace(TRICKLE, allows=1)), [answered(500)], NOW).limit == 1


def test_a_policy_that_does_not_adapt_keeps_its_own_limit() -> None:
    fixed = Policy(adaptive=None)
    assert after(fixed, Control(TRICKLE), [answered(500), answered(429)], NOW).limit is None
    assert after(fixed, Control(CLOSED, limit=50, limit_since=BEGAN), [answered(404)], NOW).limit is None


def test_closing_leaves_the_limit_as_it_is() -> None:
    control = Control(replace(TRICKLE, allows=8), limit=10, limit_since=NOW)
    closed = after(POLICY, control, [answered(200, started=BEGAN)] * 8, NOW)
    assert (closed.breaker.state, closed.limit) == (BreakerState.CLOSED, 10)


def test_a_failure_of_a_closed_breaker_halves_nothing() -> None:
    opened = after(POLICY, WELL, [answered(500)] * 5, NOW)
    assert (opened.breaker.state, opened.limit) == (BreakerState.OPEN, None)


# Disabling: Svix's rule, 5 days without a success, several failures, at least 12 hours apart

RULE = AutoDisable()


def attempted(
    answers: dict[float, int], rule: AutoDisable | None = RULE, epoch: int = 7
) -> tuple[Control, datetime | None]:
    """The control after answers at so many hours, each settled by itself, and when it told to disable."""
    policy = Policy(disable=rule, breaker=None, adaptive=None)
    control = Control(CLOSED)
    for at_h, status in answers.items():
        now = BEGAN + at_h * HOUR
        control = after(policy, control, [answered(status, epoch)], now)
        if disable_reason(rule, control) is not None:
            return control, now
    return control, None


def test_five_days_of_failures_disable_and_are_told() -> None:
    control, disabled = attempted(dict.fromkeys(range(0, 200, 6), 500))
    assert disabled == BEGAN + 5 * DAY
    assert disable_reason(RULE, control) == (
        "no success since 2026-03-01T12:00:00Z: 5 failures or more, the last at 2026-03-06T12:00:00Z"
    )


def test_it_disables_exactly_at_the_threshold() -> None:
    """Neither the minute's step of the last failure nor a greater-than may let it slip by."""
    almost: dict[float, int] = dict.fromkeys((0, 1, 2, 3, 119.995), 500)
    assert attempted(almost)[1] is None
    assert attempted(almost | {120: 500})[1] == BEGAN + 5 * DAY
    fifth = AutoDisable(after_s=60, failures=5, spread_s=0)
    assert attempted(dict.fromkeys((0, 0.01, 0.02, 0.03), 500), fifth)[1] is None
    assert attempted(dict.fromkeys((0, 0.01, 0.02, 0.03, 0.04), 500), fifth)[1] == BEGAN + 0.04 * HOUR


def test_sporadic_failures_with_successes_between_them_never_disable() -> None:
    sporadic: dict[float, int] = {at_h: 200 if at_h % 60 == 0 else 500 for at_h in range(0, 2_000, 6)}
    assert attempted(sporadic)[1] is None


def test_a_success_clears_the_trouble() -> None:
    control, _ = attempted({0: 500, 1: 500, 2: 200})
    assert control.trouble is None
    failing: dict[float, int] = dict.fromkeys(range(119), 500)
    assert attempted(failing | {119: 200, 120: 500, 121: 500})[1] is None


def test_silence_alone_disables_nothing() -> None:
    """One failure, a long time of nothing, another failure: too few of them."""
    control, disabled = attempted({0: 500, 1_000: 500})
    assert disabled is None
    assert control.trouble == Trouble(BEGAN, BEGAN + 1_000 * HOUR, 2)


def test_many_failures_in_one_bad_hour_disable_nothing() -> None:
    assert attempted(dict.fromkeys((at / 600 for at in range(600)), 500), AutoDisable(after_s=60))[1] is None
    apart: dict[float, int] = dict.fromkeys((0, 0.1, 0.2, 0.3, 0.4, 12), 500)
    assert attempted(apart, AutoDisable(after_s=60))[1] == BEGAN + 12 * HOUR


@pytest.mark.parametrize("status", [302, 404, 410, 429, 500])
def test_whatever_is_no_success_counts(status: int) -> None:
    """An endpoint that answers nothing but 404 is of no use to anybody either."""
    assert attempted(dict.fromkeys(range(0, 121, 6), status))[1] == BEGAN + 5 * DAY


def test_failures_are_counted_as_far_as_the_rule_needs() -> None:
    assert after(POLICY, WELL, [answered(404)] * 9, NOW).trouble == Trouble(NOW, NOW, 5)


def test_outcomes_of_every_epoch_count() -> None:
    """The breaker opens and closes meanwhile; what was in flight across that was answered nevertheless."""
    assert attempted(dict.fromkeys(range(0, 121, 6), 500), epoch=1)[1] == BEGAN + 5 * DAY
    control = after(POLICY, replace(WELL, trouble=Trouble(BEGAN, BEGAN, 5)), [answered(200, epoch=1)], NOW)
    assert control.trouble is None


@pytest.mark.parametrize("error", [ErrorClass.UNSENDABLE, ErrorClass.INTERNAL, ErrorClass.LOST])
def test_what_says_nothing_about_the_receiver_is_no_trouble(error: ErrorClass) -> None:
    assert after(POLICY, WELL, [failed(error)] * 9, NOW).trouble is None


def test_without_a_rule_nothing_disables() -> None:
    control, disabled = attempted(dict.fromkeys(range(0, 2_000, 6), 500), None)
    assert (control.trouble, disabled) == (None, None)
    assert disable_reason(None, Control(CLOSED, trouble=Trouble(BEGAN, BEGAN + 99 * DAY, 99))) is None


def test_an_endpoint_that_fails_for_ever_is_written_for_it_once_a_minute() -> None:
    policy = Policy(breaker=None, adaptive=None)
    control, writes = Control(CLOSED), 0
    for at_s in range(3_600):
        before = control
        control = after(policy, control, [answered(500)], BEGAN + seconds(at_s))
        writes += control is not before
    assert writes <= 60 + RULE.failures
    assert control.trouble is not None
    assert seconds(3_600) - (control.trouble.last - control.trouble.since) <= seconds(60)


# Properties

LIMITS = st.one_of(st.none(), st.integers(1, 49))
INSTANTS = st.integers(-900, 0).map(lambda offset_s: NOW + seconds(offset_s))
DISABLES = st.builds(AutoDisable, after_s=st.floats(60, 600), failures=st.integers(2, 6), spread_s=st.floats(0, 600))


@st.composite
def troubles(draw: st.DrawFn) -> Trouble:
    first, last = sorted((draw(INSTANTS), draw(INSTANTS)))
    return Trouble(first, last, draw(st.integers(1, 8)))


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    adaptive = draw(st.booleans())
    return Policy(
        breaker=draw(st.one_of(st.none(), rules())),
        disable=draw(st.one_of(st.none(), DISABLES)),
        limits=Limits(concurrency=50 if adaptive else draw(st.sampled_from([None, 1, 50]))),
        adaptive=Adaptive() if adaptive else None,
    )


CONTROLS = st.builds(
    Control,
    breaker=breakers(50),
    limit=LIMITS,
    limit_since=st.one_of(st.none(), INSTANTS),
    trouble=st.one_of(st.none(), troubles()),
    version=st.integers(0, 9),
)


@given(policies(), CONTROLS, BATCHES, st.booleans())
@settings(max_examples=200)
def test_each_part_is_what_its_own_rule_says(
    policy: Policy, control: Control, batch: list[Outcome], slow: bool
) -> None:
    """The quick way for healthy endpoints included: it changes nothing that the parts would have changed."""
    result = after(policy, control, batch, NOW, slow=slow)
    own = policy.limits.concurrency
    assert (result is control) == (result == control)
    assert result.version == control.version
    assert result.limit is None or (own is not None and 1 <= result.limit < own) or not batch
    if not batch:
        assert result is control
        return
    limit, since = concurrency.after(
        policy.adaptive, own, control.limit, control.limit_since, batch, now=NOW, slow=slow
    )
    assert result.breaker == circuit.after(policy.breaker, control.breaker, batch, NOW, limit or own or 1_000)
    if control.breaker.state is not BreakerState.HALF_OPEN_TRICKLE or result.breaker.state is not BreakerState.OPEN:
        assert result.limit == limit
        assert result.limit is None or result.limit_since == since
    elif policy.adaptive is not None:
        assert (result.limit or 50) <= min(limit or 50, max(1, (control.breaker.allows or 1) // 2))


@given(DISABLES, st.one_of(st.none(), troubles()), BATCHES, st.integers(0, 40), st.integers(0, 300))
@settings(max_examples=200)
def test_trouble_does_not_depend_on_how_outcomes_are_cut_into_batches(
    rule: AutoDisable, trouble: Trouble | None, batch: list[Outcome], cut: int, later_s: int
) -> None:
    policy, now = Policy(disable=rule), NOW + seconds(later_s)
    control = Control(CLOSED, trouble=trouble)
    halves = after(policy, after(policy, control, batch[:cut], now), batch[cut:], now)
    assert halves.trouble == after(policy, control, batch, now).trouble


@given(DISABLES, st.lists(st.tuples(st.integers(0, 100), outcomes()), max_size=40))
@settings(max_examples=200)
def test_an_endpoint_is_disabled_when_the_complete_record_says_so(
    rule: AutoDisable, record: list[tuple[int, Outcome]]
) -> None:
    """The rule over every failure since the last success, as it reads: the bounded record must not differ."""
    policy, control, now = Policy(disable=rule), Control(CLOSED), BEGAN
    failures: list[datetime] = []
    for step_s, outcome in record:
        now += seconds(step_s)
        control = after(policy, control, [outcome], now)
        if outcome.verdict == "success":
            failures = []
        elif outcome.error not in {ErrorClass.UNSENDABLE, ErrorClass.INTERNAL, ErrorClass.LOST}:
            failures.append(now)
        enough = len(failures) >= rule.failures
        apart = enough and failures[-1] - failures[0] >= seconds(max(rule.after_s, rule.spread_s))
        assert (disable_reason(rule, control) is not None) == apart


def test_the_rule_of_a_policy_without_a_breaker_still_adapts_and_disables() -> None:
    policy = Policy(breaker=None)
    assert after(policy, WELL, [answered(503)], NOW) == Control(
        CLOSED, limit=90, limit_since=NOW, trouble=Trouble(NOW, NOW, 1), version=3
    )


def test_a_breaker_by_volume_is_forgotten_through_successes_alone() -> None:
    policy = Policy(breaker=BreakerRule(volume=20, volume_window_s=300), disable=None, adaptive=None)
    failing = after(policy, Control(CLOSED), [answered(500), answered(200)], NOW)
    assert failing.breaker.recent == (NOW,)
    assert after(policy, failing, [answered(200)], NOW + seconds(301)) == Control(CLOSED)
