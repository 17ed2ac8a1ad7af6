from dataclasses import replace

import pytest

from forbear.policy.breaker import Breaker, BreakerState, Outcome, after
from forbear.policy.model import BreakerRule
from forbear.policy.verdict import ErrorClass
from tests.functions.policy.outcomes import (
    BEGAN,
    NOW,
    answered,
    failed,
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


# Half-open: the probe


@pytest.mark.parametrize("cap", [2, CAP])
@pytest.mark.parametrize("status", [200, 204, 301, 400, 404, 408, 410, 425, 429, 499])
def test_a_probe_answered_with_anything_under_500_starts_a_trickle_of_two(status: int, cap: int) -> None:
    assert after(RULE, replace(PROBE, trips=9), [answered(status, probe=True)], NOW, cap) == Breaker(
        BreakerState.HALF_OPEN_TRICKLE,
        since=NOW,
        failures=0,
        trips=9,
        until=None,
        epoch=8,
        reason=f"the probe was answered: {status}",
        allows=2,
    )


@pytest.mark.parametrize(("rule", "cap"), [(AT_ONCE, CAP), (RULE, 1)])
@pytest.mark.parametrize("status", [200, 404, 410, 429])
def test_without_a_slow_start_or_room_for_one_an_answered_probe_closes(
    rule: BreakerRule, cap: int, status: int
) -> None:
    assert after(rule, replace(PROBE, trips=9), [answered(status, probe=True)], NOW, cap) == Breaker(
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
    assert after(RULE, PROBE, [outcome], NOW, CAP) == Breaker(
        BreakerState.OPEN,
        since=NOW,
        failures=6,
        trips=2,
        until=NOW + seconds(60),
        epoch=8,
        reason=f"the probe failed: {result}",
    )


@pytest.mark.parametrize("error", [ErrorClass.UNSENDABLE, ErrorClass.INTERNAL])
def test_a_probe_that_could_not_be_sent_lets_another_one_go_at_once(error: ErrorClass) -> None:
    """It says nothing about the receiver, and a half-open breaker without a probe in flight would wait for nobody."""
    opened = after(RULE, PROBE, [failed(error, probe=True)], NOW, CAP)
    assert (opened.state, opened.until, opened.epoch) == (BreakerState.OPEN, NOW, 8)
    assert (opened.trips, opened.failures) == (PROBE.trips, PROBE.failures)


def test_only_the_probe_decides() -> None:
    assert after(RULE, PROBE, [answered(200), answered(500), answered(404)] * 10, NOW, CAP) is PROBE


def test_a_probe_of_an_earlier_half_open_decides_nothing() -> None:
    assert after(RULE, PROBE, [answered(200, epoch=6, probe=True)], NOW, CAP) is PROBE


def test_after_recovery_the_cool_down_begins_small_again() -> None:
    closed = after(AT_ONCE, replace(PROBE, trips=9), [answered(200, probe=True)], NOW, CAP)
    assert after(AT_ONCE, closed, [answered(500, epoch=8)] * 5, NOW, CAP).until == NOW + seconds(30)


def test_the_cool_down_grows_to_its_cap_and_stays_there() -> None:
    waits = []
    for trips in (0, 1, 2, 3, 4, 5, 6, 10_000, 10**9):
        until = after(RULE, replace(PROBE, trips=trips), [answered(500, probe=True)], NOW, CAP).until
        assert until is not None
        waits.append((until - NOW).total_seconds())
    assert waits == [30, 60, 120, 240, 480, 600, 600, 600, 600]


# Half-open: the trickle


def test_a_trickle_doubles_whenever_its_width_was_answered() -> None:
    three = after(RULE, TRICKLE, [answered(200)] * 3, NOW, CAP)
    assert three == replace(TRICKLE, passed=3)
    assert after(RULE, three, [answered(204)], NOW, CAP) == replace(TRICKLE, allows=8)


@pytest.mark.parametrize(
    ("cap", "widths"), [(2, [2]), (3, [2]), (5, [2, 4]), (8, [2, 4]), (100, [2, 4, 8, 16, 32, 64])]
)
def test_a_trickle_ends_where_the_next_doubling_would_reach_the_cap(cap: int, widths: list[int]) -> None:
    breaker = replace(TRICKLE, allows=2)
    seen = []
    while breaker.allows is not None:
        seen.append(breaker.allows)
        breaker = after(RULE, breaker, [answered(200)] * breaker.allows, NOW, cap)
    assert seen == widths
    assert breaker == Breaker(
        BreakerState.CLOSED,
        since=NOW,
        failures=0,
        trips=0,
        until=None,
        epoch=8,
        reason=f"no failure in the trickle up to {widths[-1]}",
    )


def test_the_trickle_after_a_hold_begins_with_one() -> None:
    held = replace(TRICKLE, allows=1, trips=0, failures=3)
    assert after(RULE, held, [answered(200)], NOW, CAP) == replace(held, allows=2, failures=0)


@pytest.mark.parametrize("outcome", [answered(503), failed(ErrorClass.TIMEOUT)])
def test_any_failure_in_a_trickle_opens_with_a_longer_cool_down(outcome: Outcome) -> None:
    opened = after(RULE, TRICKLE, [answered(200), outcome, answered(200)], NOW, CAP)
    assert opened == Breaker(
        BreakerState.OPEN,
        since=NOW,
        failures=1,
        trips=4,
        until=NOW + seconds(240),
        epoch=8,
        reason=f"a failure in the trickle of 4: {outcome.error or outcome.status}",
    )


def test_a_failure_in_the_trickle_after_a_hold_is_a_first_opening() -> None:
    opened = after(RULE, replace(TRICKLE, allows=1, trips=0), [answered(500)], NOW, CAP)
    assert (opened.trips, opened.until) == (1, NOW + seconds(30))


def test_a_failure_of_an_earlier_width_still_opens() -> None:
    wider = after(RULE, TRICKLE, [answered(200)] * 4, NOW, CAP)
    assert (wider.allows, wider.epoch) == (8, TRICKLE.epoch)
    assert after(RULE, wider, [answered(500)], NOW, CAP).state is BreakerState.OPEN


@pytest.mark.parametrize("status", [302, 404, 410, 422])
def test_other_answers_pass_in_a_trickle(status: int) -> None:
    assert after(RULE, TRICKLE, [answered(status)], NOW, CAP).passed == 1


def test_a_429_does_nothing_in_a_trickle() -> None:
    assert after(RULE, TRICKLE, [answered(429)] * 100, NOW, CAP) is TRICKLE


def test_an_endpoint_with_little_traffic_leaves_the_trickle_after_a_cool_down_without_a_failure() -> None:
    started = replace(TRICKLE, since=NOW - seconds(30))
    assert after(RULE, started, [answered(404, in_flight=1)], NOW, CAP).state is BreakerState.HALF_OPEN_TRICKLE
    assert after(RULE, started, [answered(200)], NOW - seconds(0.1), CAP).state is BreakerState.HALF_OPEN_TRICKLE
    closed = after(RULE, started, [answered(200, in_flight=3)], NOW, CAP)
    assert (closed.state, closed.trips) == (BreakerState.CLOSED, 0)
    assert closed.reason == "no failure in the trickle for 30 s"


def test_a_backlog_goes_on_doubling_however_slowly_the_receiver_answers() -> None:
    """Or a receiver that takes 10 seconds would get everything at once after a trickle of four."""
    started = replace(TRICKLE, since=NOW - seconds(300))
    assert after(RULE, started, [answered(200, in_flight=4)] * 4, NOW, CAP) == replace(started, allows=8)


@pytest.mark.parametrize("latency_s", [0.05, 1, 5])
@pytest.mark.parametrize("gap_s", [0, 5, 20])
def test_from_recovery_to_closed_it_takes_minutes_and_not_a_day(latency_s: float, gap_s: float) -> None:
    """The default policy, the longest cool-down, a receiver that is well again just after a probe: under 11 minutes."""
    rule = BreakerRule()
    clock = BEGAN
    breaker = replace(PROBE, trips=1_000)
    breaker = after(rule, breaker, [answered(500, probe=True)], clock, CAP)
    recovered = clock
    assert breaker.until is not None
    clock = breaker.until + seconds(latency_s)  # what has failed is waiting, so a probe goes at once
    breaker = replace(breaker, state=BreakerState.HALF_OPEN_PROBE, until=None, epoch=breaker.epoch + 1)  # the claim's
    breaker = after(rule, breaker, [answered(200, breaker.epoch, probe=True)], clock, CAP)
    while breaker.allows is not None:
        clock += seconds(max(gap_s, latency_s))
        arrived = 1 if gap_s else breaker.allows
        batch = [answered(200, breaker.epoch, in_flight=arrived)] * arrived
        breaker = after(rule, breaker, batch, clock, CAP)
    assert breaker.state is BreakerState.CLOSED
    assert clock - recovered < seconds(11 * 60)
