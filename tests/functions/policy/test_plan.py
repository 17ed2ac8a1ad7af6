"""What a schedule means: its attempts, when it gives up, and the way back from there."""

from __future__ import annotations

import importlib
import math
from itertools import pairwise
from random import Random
from statistics import fmean

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from forbear.policy.model import Policy
from forbear.policy.part import DAY_S, HOUR_S, YEAR_S
from forbear.policy.plan import MOST_RETRIES, MOST_ROWS, Ending, PlannedAttempt, derive, plan
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
    gap_s,
    jittered_s,
    spread_s,
)
from tests.functions.policy.builders import JITTERS, SCHEDULES

REPOST = Exponential(base_s=30, multiplier=3, cap_s=3 * HOUR_S, retries=13)
REPOST_S = [0, 30, 120, 390, 1_200, 3_630, 10_920, 21_720, 32_520, 43_320, 54_120, 64_920, 75_720, 86_520]
# Whose attempts are more than any table holds, and whose gaps grow by less than a thousandth.
ENDLESS: list[Schedule] = [
    Exponential(base_s=30, multiplier=1, retries=MOST_RETRIES),
    Exponential(base_s=0.01, multiplier=1, window_s=YEAR_S, jitter=FullJitter()),
    Exponential(base_s=0.01, multiplier=1.0001, window_s=YEAR_S),
    Exponential(base_s=0.01, multiplier=math.nextafter(1, 2), window_s=YEAR_S),
    Exponential(base_s=0.01, multiplier=1.00003, retries=MOST_RETRIES),
    Ladder(gaps_s=(9, 0, 0.01), repeat_last=True, window_s=YEAR_S),
    TwoPhase(fast_s=(9, 0), slow_s=0.01, window_s=YEAR_S),
]


def lived(schedule: Schedule, rng: Random) -> list[float]:
    """When the attempts of one delivery begin that never succeeds, as the claimer would have it."""
    begun = [0.0]
    while (gap := gap_s(schedule, len(begun))) is not None:
        delay_s = jittered_s(schedule, gap, rng)
        if schedule.window_s is not None and begun[-1] + delay_s > schedule.window_s:
            break
        begun.append(begun[-1] + delay_s)
    return begun


# Rows


def test_a_published_table_comes_out_to_the_second() -> None:
    """Repost's: 0, 30 s, 2 min, 6.5 min, 20 min, 1 h, 3 h, 6 h and so on."""
    planned = plan(REPOST)
    assert [row.elapsed_s for row in planned.rows] == REPOST_S
    assert [row.attempt for row in planned.rows] == list(range(1, 15))
    assert planned.on_paper == Ending(14, 86_520)
    assert planned.more == 0


def test_a_row_tells_the_gap_and_what_jitter_makes_of_all_gaps_so_far() -> None:
    schedule = Ladder(gaps_s=(10, 100), jitter=ProportionalJitter(ratio=0.2))
    assert plan(schedule).rows == (
        PlannedAttempt(1, 0, 0, 0, 0, 0),
        PlannedAttempt(2, 10, 10, 8, 10, 12),
        PlannedAttempt(3, 100, 110, 88, 110, 132),
    )


def test_a_policy_is_planned_by_its_schedule() -> None:
    assert plan(Policy(schedule=REPOST)) == plan(REPOST)


def test_no_retries_are_one_attempt_only() -> None:
    for schedule in (Ladder(gaps_s=()), Exponential(base_s=5, multiplier=2, retries=0)):
        planned = plan(schedule)
        assert planned.rows == (PlannedAttempt(1, 0, 0, 0, 0, 0),)
        assert planned.on_paper == planned.expected == Ending(1, 0)


@pytest.mark.parametrize(("window_s", "last_s"), [(9, 0), (10, 10), (29.9, 20), (30, 30)])
def test_the_last_attempt_begins_within_the_window(window_s: float, last_s: float) -> None:
    planned = plan(Exponential(base_s=10, multiplier=1, window_s=window_s, jitter=NoJitter()))
    assert planned.on_paper == planned.expected == Ending(len(planned.rows), last_s)
    assert planned.rows[-1].elapsed_s == last_s


def test_what_comes_first_ends_the_schedule() -> None:
    by_retries = Exponential(base_s=10, multiplier=1, retries=2, window_s=1_000)
    by_window = Exponential(base_s=10, multiplier=1, retries=1_000, window_s=25)
    assert plan(by_retries).on_paper == plan(by_window).on_paper == Ending(3, 20)


def test_jitter_does_not_carry_a_row_over_the_window() -> None:
    schedule = Ladder(gaps_s=(60,) * 3, window_s=180, jitter=AdditiveJitter(ratio=1))
    last = plan(schedule).rows[-1]
    assert (last.elapsed_s, last.earliest_s, last.expected_s, last.latest_s) == (180, 180, 180, 180)


@settings(max_examples=60)
@given(SCHEDULES)
def test_rows_follow_the_schedule_until_it_ends(schedule: Schedule) -> None:
    planned = plan(schedule)
    rows = planned.rows
    window_s = math.inf if schedule.window_s is None else schedule.window_s
    assert rows[0] == PlannedAttempt(1, 0, 0, 0, 0, 0)
    for before, row in pairwise(rows):
        assert row.attempt == before.attempt + 1
        assert row.gap_s == gap_s(schedule, before.attempt)
        assert row.elapsed_s == before.elapsed_s + row.gap_s
        assert (row.earliest_s, row.expected_s, row.latest_s) >= (
            before.earliest_s,
            before.expected_s,
            before.latest_s,
        )
        assert row.earliest_s <= row.expected_s * (1 + 1e-9)
        assert row.expected_s <= row.latest_s * (1 + 1e-9)
    assert max(rows[-1].elapsed_s, rows[-1].latest_s) <= window_s
    following = gap_s(schedule, len(rows))
    assert following is None or rows[-1].elapsed_s + following > window_s
    assert planned.on_paper == Ending(len(rows), rows[-1].elapsed_s)
    assert planned.more == 0


@settings(max_examples=60)
@given(SCHEDULES, st.integers(0, 2**32))
def test_every_delivery_s_attempts_lie_between_earliest_and_latest(schedule: Schedule, seed: int) -> None:
    for row, begun_s in zip(plan(schedule).rows, lived(schedule, Random(seed)), strict=False):
        assert row.earliest_s * (1 - 1e-9) <= begun_s <= row.latest_s * (1 + 1e-9)


@given(SCHEDULES, st.integers(1, 30))
def test_a_limit_leaves_rows_out_and_changes_nothing_else(schedule: Schedule, limit: int) -> None:
    whole, part = plan(schedule), plan(schedule, limit)
    assert part.rows == whole.rows[:limit]
    assert part.more == len(whole.rows) - len(part.rows)
    assert (part.on_paper, part.expected) == (whole.on_paper, whole.expected)


@pytest.mark.parametrize("limit", [0, -1, MOST_ROWS + 1])
def test_a_limit_is_from_one_row_to_the_most(limit: int) -> None:
    with pytest.raises(ValueError, match=f"from 1 to {MOST_ROWS} rows"):
        plan(REPOST, limit)


# However long


@pytest.mark.parametrize("schedule", ENDLESS)
def test_the_work_is_bounded_however_many_attempts_there_are(
    schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = importlib.import_module("forbear.policy.plan")
    asked = 0

    def counting(schedule: Schedule, n: int) -> float | None:
        nonlocal asked
        asked += 1
        return gap_s(schedule, n)

    monkeypatch.setattr(module, "gap_s", counting)
    planned = plan(schedule, limit=5)
    assert planned.more > MOST_ROWS
    assert asked < 1_000_000


def test_a_fixed_interval_is_counted_exactly_to_its_end() -> None:
    assert plan(ENDLESS[0], limit=1).on_paper == Ending(MOST_RETRIES + 1, 30.0 * MOST_RETRIES)
    fixed = Exponential(base_s=0.5, multiplier=1, window_s=YEAR_S, jitter=FullJitter())
    planned = plan(fixed, limit=1)
    assert planned.on_paper == Ending(int(YEAR_S * 2) + 1, YEAR_S)
    assert planned.expected == Ending(int(YEAR_S * 4) + 1, YEAR_S)


@pytest.mark.parametrize("multiplier", [1.0, math.nextafter(1, 2), 1.00001, 1.0003, 1.002])
@pytest.mark.parametrize("jitter", [NoJitter(), AdditiveJitter(ratio=0.1, min_s=2, max_s=900)])
def test_runs_of_gaps_add_up_like_the_gaps_one_by_one(multiplier: float, jitter: Jitter) -> None:
    schedule = Exponential(base_s=3, multiplier=multiplier, cap_s=2_000, retries=60_000, jitter=jitter)
    gaps = [gap for n in range(1, 60_001) if (gap := gap_s(schedule, n)) is not None]
    means = [least_s + width_s / 2 for least_s, width_s in (spread_s(schedule, gap) for gap in gaps)]
    planned = plan(schedule, limit=1)
    assert planned.on_paper.attempts == planned.expected.attempts == 60_001
    assert planned.on_paper.elapsed_s == pytest.approx(math.fsum(gaps), rel=1e-6)
    assert planned.expected.elapsed_s == pytest.approx(math.fsum(means), rel=1e-6)


@settings(max_examples=25)
@given(st.floats(0.01, 1), st.floats(1, 1.01), st.floats(DAY_S, YEAR_S), JITTERS)
def test_an_end_far_away_is_the_last_that_fits(
    base_s: float, multiplier: float, window_s: float, jitter: Jitter
) -> None:
    schedule = Exponential(base_s=base_s, multiplier=multiplier, window_s=window_s, jitter=jitter)
    end = plan(schedule, limit=1).on_paper
    following = gap_s(schedule, end.attempts)
    assert following is not None
    assert end.elapsed_s <= window_s < end.elapsed_s + following * (1 + 1e-6)


# In expectation


@pytest.mark.parametrize(
    "jitter",
    [FullJitter(), EqualJitter(), ProportionalJitter(ratio=0.5), AdditiveJitter(ratio=0.1, min_s=2, max_s=60)],
)
@pytest.mark.parametrize("window_s", [None, 9_000.0])
def test_the_expectation_is_what_many_deliveries_live_through(jitter: Jitter, window_s: float | None) -> None:
    """By its retries to within the sample's error; by its window to within the longest delay, as promised."""
    schedule = Exponential(
        base_s=5,
        multiplier=2,
        cap_s=600,
        retries=20 if window_s is None else None,
        window_s=window_s,
        jitter=jitter,
    )
    rng = Random(7)
    lives = [lived(schedule, rng) for _ in range(1_500)]
    planned = plan(schedule)
    if window_s is None:
        assert fmean(life[-1] for life in lives) == pytest.approx(planned.expected.elapsed_s, rel=0.01)
        assert {len(life) for life in lives} == {planned.expected.attempts}
    else:
        longest_s = sum(spread_s(schedule, 600))
        assert abs(fmean(life[-1] for life in lives) - planned.expected.elapsed_s) < longest_s
        assert abs(fmean(map(len, lives)) - planned.expected.attempts) < 1
    for at, row in enumerate(planned.rows[:8]):  # which no window cuts
        assert fmean(life[at] for life in lives) == pytest.approx(row.expected_s, rel=0.05)


def test_full_jitter_gives_up_after_half_the_time_on_paper() -> None:
    schedule = REPOST.model_copy(update={"jitter": FullJitter()})
    assert plan(schedule).expected == Ending(14, 86_520 / 2)


@settings(max_examples=60)
@given(SCHEDULES)
def test_without_jitter_the_expectation_is_the_paper(schedule: Schedule) -> None:
    planned = plan(schedule.model_copy(update={"jitter": NoJitter()}))
    assert planned.expected == planned.on_paper


# Backwards


def test_the_retries_of_a_published_schedule_follow_from_its_time_to_give_up() -> None:
    assert derive(24 * HOUR_S, first_s=30, multiplier=3, cap_s=3 * HOUR_S) == 14


@pytest.mark.parametrize(
    ("give_up_s", "attempts"), [(1e-9, 2), (30, 2), (30.001, 3), (120, 3), (86_520, 14), (86_520.1, 15)]
)
def test_the_last_attempt_begins_at_the_time_to_give_up_or_later(give_up_s: float, attempts: int) -> None:
    assert derive(give_up_s, 30, 3, 10_800) == attempts


@settings(max_examples=60)
@given(st.floats(0.01, HOUR_S), st.floats(1, 10), st.floats(1, 1_000), st.floats(0.001, 10 * DAY_S))
def test_the_attempts_are_enough_and_one_fewer_is_not(
    first_s: float, multiplier: float, times: float, give_up_s: float
) -> None:
    cap_s = first_s * times
    assume(give_up_s < first_s * 900_000)
    attempts = derive(give_up_s, first_s, multiplier, cap_s)

    def ends_s(attempts: int) -> float:
        schedule = Exponential(base_s=first_s, multiplier=multiplier, cap_s=cap_s, retries=attempts - 1)
        return plan(schedule, limit=1).on_paper.elapsed_s

    assert ends_s(attempts) >= give_up_s * (1 - 1e-6)
    assert ends_s(attempts - 1) < give_up_s


@pytest.mark.parametrize("give_up_s", [0, -1, math.nan, -math.inf])
def test_a_time_to_give_up_is_above_zero(give_up_s: float) -> None:
    with pytest.raises(ValueError, match="must be above 0"):
        derive(give_up_s, 30, 3, 10_800)


@pytest.mark.parametrize("give_up_s", [30.0 * MOST_RETRIES + 1, 1e300, math.inf])
def test_what_is_never_reached_is_refused_and_said_how_far_it_goes(give_up_s: float) -> None:
    with pytest.raises(ValueError, match="even 1000000 retries end after 30000000 seconds"):
        derive(give_up_s, 30, 1, 30)


def test_the_most_retries_are_enough_for_the_time_that_they_reach() -> None:
    assert derive(30.0 * MOST_RETRIES, 30, 1, 30) == MOST_RETRIES + 1
    with pytest.raises(ValidationError):
        Exponential(base_s=30, multiplier=1, retries=MOST_RETRIES + 1)


@pytest.mark.parametrize(
    ("first_s", "multiplier", "cap_s"), [(0, 3, 10), (30, 0.5, 60), (30, 3, 10), (math.nan, 3, 10), (30, math.inf, 60)]
)
def test_gaps_that_no_schedule_may_have_are_refused(first_s: float, multiplier: float, cap_s: float) -> None:
    with pytest.raises(ValueError, match="Exponential"):
        derive(3_600, first_s, multiplier, cap_s)
