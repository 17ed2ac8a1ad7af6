"""Simulations against the real database: the figures that the sources give, and that the counting can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from forbear.policy.model import Limits, Policy
from forbear.policy.presets import presets
from infra.simulate import pace
from infra.simulate.driver import simulate
from infra.simulate.receivers import Capacity, Mode, Outage, RateLimit, Receiver
from infra.simulate.recurrence import storm_attempts
from infra.simulate.scenarios import SCENARIOS, Scenario
from infra.simulate.series import Run

type Connect = Callable[[], psycopg.Connection[tuple[Any, ...]]]

MINUTE_S = 60.0
NAIVE = presets()["naive"].policy
STORM = SCENARIOS["storm"]
# A receiver in every kind of trouble, for a few minutes.
TROUBLES = Scenario(
    name="troubles",
    summary="",
    rate_per_s=2,
    duration_s=160,
    receiver=Receiver(
        latency_s=0.05,
        capacity=Capacity(8),
        rate_limit=RateLimit(6, 6, 3),
        error_share=0.02,
        outages=(
            Outage(20, 50, Mode.REFUSE),
            Outage(90, 100, Mode.UNAVAILABLE, 5),
            Outage(130, 135, Mode.HANG),
        ),
    ),
    timeout_s=3,
    step_s=10,
)


async def run(url: str, scenario: Scenario, policy: Policy, seed: int = 1) -> Run:
    return await simulate(url, scenario, policy, name="under test", seed=seed)


def by_minute(run: Run, name: str) -> list[int]:
    """A count, minute 1 first."""
    assert run.step_s == MINUTE_S
    return [getattr(interval, name) for interval in run.intervals]


# The storm: 600 events a minute, an outage of ten minutes, 5 s timeout, capacity 30/s


async def test_the_storm_of_a_fixed_gap_grows_as_the_recurrence_says_and_does_not_end(database_url: str) -> None:
    """A first attempt may be repeated within its own minute, which the recurrence leaves out: hence a tenth."""
    storm = await run(database_url, replace(STORM, duration_s=15 * MINUTE_S), NAIVE)
    attempts, backlog = by_minute(storm, "attempts"), by_minute(storm, "backlog")
    for minute in range(5, 12):
        assert attempts[minute - 1] == pytest.approx(storm_attempts(600, minute), rel=0.1), f"minute {minute}"
    assert backlog[10:] == sorted(backlog[10:])
    assert backlog[14] > backlog[10] + 4 * 500
    assert sum(by_minute(storm, "successes")[11:]) == 0


async def test_under_the_default_policy_the_same_load_makes_no_storm_and_is_worked_off(database_url: str) -> None:
    storm = await run(database_url, STORM, Policy())
    attempts, arrivals = by_minute(storm, "attempts"), by_minute(storm, "arrivals")
    for minute in range(2, 11):
        assert attempts[minute - 1] <= 1.1 * arrivals[minute - 1], f"minute {minute}"
    assert storm.intervals[-1].backlog < 30
    assert storm.totals["dead"] == 0
    assert storm.breaker[-1][1] == "closed"


# The metastable case


async def test_under_the_default_policy_a_black_hole_of_ten_seconds_is_got_over(database_url: str) -> None:
    """Capacity 300/s, 280/s offered: 2,800 that wait take 140 s to work off; and a step of the schedule more."""
    ends_s, offered = 20.0, 280
    first_gap_s = 5.0
    scenario = replace(
        SCENARIOS["metastable"],
        rate_per_s=offered,
        duration_s=ends_s + 140 + first_gap_s + 15,
        receiver=Receiver(0.05, Capacity(300), outages=(Outage(10, ends_s, Mode.HANG),)),
        timeout_s=None,
        step_s=5,
    )
    course = await run(database_url, scenario, Policy())
    back = [interval for interval in course.intervals if interval.from_s >= ends_s + 140 + first_gap_s]
    assert len(back) >= 3
    for interval in back:
        assert interval.successes / course.step_s >= 0.95 * offered
    assert max(interval.attempts for interval in course.intervals) / course.step_s <= 300 * 1.1


# What the counting is worth


@pytest.mark.parametrize("name", ["default", "guide", "ladder-13h", "sns", "naive"])
async def test_what_arrives_is_delivered_dead_or_waits_and_the_database_says_the_same(
    name: str, database_url: str, connect: Connect
) -> None:
    course = await run(database_url, TROUBLES, presets()[name].policy)
    totals = course.totals
    assert totals["arrivals"] == totals["successes"] + totals["dead"] + totals["backlog"] > 250
    assert totals["attempts"] >= totals["successes"]
    assert not any(getattr(interval, field) < 0 for interval in course.intervals for field in totals)
    with connect() as connection:
        ended: dict[str, int] = dict(
            connection.execute("SELECT state, count(*) FROM forbear.history GROUP BY state").fetchall()
        )
        assert (ended.get("delivered", 0), ended.get("dead", 0)) == (totals["successes"], totals["dead"])
        assert connection.execute("SELECT count(*) FROM forbear.queue").fetchone() == (totals["backlog"],)
        made = "SELECT count(*) FROM forbear.attempts"
        under_way = "SELECT count(*) FROM forbear.queue WHERE lease_token IS NOT NULL"
        assert connection.execute(f"SELECT ({made}) + ({under_way})").fetchone() == (totals["attempts"],)


async def test_deliveries_that_an_open_breaker_drops_are_counted_dead(database_url: str) -> None:
    policy = Policy()
    assert policy.breaker is not None
    strict = policy.model_copy(update={"breaker": policy.breaker.model_copy(update={"dead_letter": True})})
    course = await run(database_url, replace(TROUBLES, duration_s=80), strict)
    totals = course.totals
    assert totals["dead"] > 20
    assert totals["arrivals"] == totals["successes"] + totals["dead"] + totals["backlog"]


async def test_a_rate_is_kept_however_much_is_due(database_url: str) -> None:
    scenario = replace(TROUBLES, rate_per_s=4, duration_s=60, receiver=Receiver(0.05), step_s=1)
    policy = Policy(limits=Limits(rate_per_s=2, burst=2))
    course = await run(database_url, scenario, policy)
    attempts = [interval.attempts for interval in course.intervals]
    assert max(attempts) <= 4
    assert sum(attempts) == pytest.approx(120, abs=4)


@pytest.mark.parametrize("name", ["default", "naive"])
async def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(
    name: str, fresh_url: Callable[[], str]
) -> None:
    policy = presets()[name].policy
    first, again, other = [await run(fresh_url(), TROUBLES, policy, seed) for seed in (7, 7, 8)]
    assert first == again
    assert first.intervals != other.intervals


@pytest.mark.parametrize("name", ["default", "naive"])
async def test_that_steps_are_coalesced_while_all_is_well_changes_no_number(
    name: str, fresh_url: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = replace(TROUBLES, receiver=replace(TROUBLES.receiver, error_share=0.0, rate_limit=None))
    policy = presets()[name].policy
    coarse = await run(fresh_url(), scenario, policy)
    monkeypatch.setattr(pace, "GATHERED", 0)
    monkeypatch.setattr(pace, "UNRULED_S", pace.FINEST_S)
    assert await run(fresh_url(), scenario, policy) == coarse
