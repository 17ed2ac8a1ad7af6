"""How far apart steps may be: long ones only while nothing would notice."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from forbear.policy.model import Limits, Policy
from forbear.policy.presets import presets
from infra.simulate.pace import COARSEST_S, FINE_S, FINEST_S, UNRULED_S, Pace
from infra.simulate.receivers import Mode, Outage, RateLimit, Receiver

OUT = Receiver(0.05, outages=(Outage(100, 200, Mode.HANG),))


def paced(policy: Policy | None = None, receiver: Receiver = OUT, rate_per_s: float = 10) -> Pace:
    return Pace(policy or Policy(), receiver, rate_per_s)


def look(
    pace: Pace,
    *,
    now: float = 50,
    breaker: str = "closed",
    limit: int | None = None,
    waiting: int = 0,
    in_flight: int = 1,
) -> bool:
    pace.look(now, breaker, limit, waiting, in_flight)
    return pace.calm


def test_while_all_is_well_a_step_stands_for_many_seconds() -> None:
    pace = paced()
    assert look(pace)
    assert pace.step_s == COARSEST_S
    assert paced(rate_per_s=1_000).step_s == FINEST_S


@pytest.mark.parametrize(
    "trouble",
    [
        lambda pace: look(pace, breaker="open"),
        lambda pace: look(pace, breaker="half_open_trickle"),
        lambda pace: look(pace, waiting=1),
        lambda pace: look(pace, in_flight=26),
        lambda pace: look(pace, limit=3),
        lambda pace: look(pace, now=100),
        lambda pace: look(pace, now=115.9),
        lambda pace: look(pace, now=200),
    ],
)
def test_whatever_may_hold_deliveries_back_makes_steps_short(trouble: Callable[[Pace], bool]) -> None:
    pace = paced()
    assert not trouble(pace)
    assert pace.step_s == FINEST_S


def test_failures_make_steps_short_until_enough_answers_are_good() -> None:
    pace = paced()
    for _ in range(4):
        pace.answered(0.05, failed=True)
    assert not look(pace)
    for _ in range(30):
        pace.answered(0.05, failed=False)
    assert look(pace)


def test_slow_answers_allow_longer_steps_but_not_long_ones() -> None:
    pace = paced()
    look(pace, waiting=1)
    for _ in range(300):
        pace.answered(1.0, failed=False)
    assert pace.step_s == pytest.approx(0.25, rel=0.01)
    for _ in range(300):
        pace.answered(30.0, failed=False)
    assert pace.step_s == FINE_S


def test_no_step_goes_over_a_change_of_the_receiver() -> None:
    assert [paced().edge_after(now) for now in (0, 99, 100, 200)] == [100, 100, 200, float("inf")]


def test_a_policy_that_holds_nothing_back_does_not_mind() -> None:
    pace = paced(presets()["naive"].policy)
    assert look(pace, waiting=100, in_flight=1_000, now=100)
    assert pace.step_s == UNRULED_S
    assert pace.edge_after(0) == float("inf")


def test_a_receiver_that_asks_to_wait_rules_a_policy_that_listens() -> None:
    throttling = Receiver(rate_limit=RateLimit(5, 5, retry_after_s=30))
    naive = presets()["naive"].policy
    listening = naive.model_copy(update={"retry_after": Policy().retry_after})
    assert paced(naive, throttling).calm
    assert not paced(listening, throttling).calm


def test_a_rate_allows_steps_of_half_a_bucket() -> None:
    pace = paced(Policy(limits=Limits(rate_per_s=2, burst=10)), rate_per_s=1)
    look(pace)
    assert pace.step_s == 2.5
