import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.policy.schedule import Exponential, Ladder, Schedule, TwoPhase, gap_s, grown_s
from tests.functions.policy.builders import GAPS, SCHEDULES, every

BEYOND = [10_000, 1_000_000, 10**9, 10**18]
RETRIES = st.one_of(st.integers(1, 200), st.sampled_from(BEYOND))


@st.composite
def unending(draw: st.DrawFn) -> Exponential:
    """Any exponential schedule that only its window ends."""
    base_s = draw(st.floats(0.01, 604_800))
    return Exponential(
        base_s=base_s,
        multiplier=draw(st.one_of(st.floats(1, 100), st.just(math.nextafter(1, 2)))),
        cap_s=draw(st.floats(base_s, 2_592_000)),
        window_s=3_600,
    )


def gaps_of(schedule: Schedule, count: int) -> list[float | None]:
    return [gap_s(schedule, n) for n in range(1, count + 1)]


# Exponential


def test_gaps_double_from_the_base_up_to_the_cap_until_the_retries_are_used_up() -> None:
    assert gaps_of(Exponential(base_s=5, multiplier=2, cap_s=60, retries=6), 7) == [5, 10, 20, 40, 60, 60, None]


def test_multiplier_one_is_a_fixed_interval_for_ever() -> None:
    schedule = Exponential(base_s=30, multiplier=1, cap_s=3_600, window_s=60)
    assert {gap_s(schedule, n) for n in (1, 2, *BEYOND, 10**400)} == {30}


@pytest.mark.parametrize("n", [*BEYOND, 10**400])
def test_a_growing_gap_stays_at_the_cap_for_ever(n: int) -> None:
    assert gap_s(Exponential(base_s=5, multiplier=2, cap_s=14_400, window_s=60), n) == 14_400
    assert gap_s(Exponential(base_s=5, multiplier=math.nextafter(1, 2), cap_s=5.0, window_s=60), n) == 5


@given(unending(), RETRIES)
def test_an_exponential_gap_is_positive_and_never_over_the_cap(schedule: Exponential, n: int) -> None:
    gap = gap_s(schedule, n)
    assert gap is not None
    assert 0 < gap <= schedule.cap_s


@given(unending(), st.lists(RETRIES, min_size=2, max_size=30))
def test_exponential_gaps_never_shrink(schedule: Exponential, retries: list[int]) -> None:
    gaps = [gap_s(schedule, n) or math.nan for n in sorted(retries)]
    assert all(earlier <= later for earlier, later in pairwise(gaps))


@given(st.floats(1e-300, 1e6), st.floats(1, 1e6), st.integers(0, 60), st.floats(1e-300, 1e6))
def test_growth_is_the_capped_power_where_that_can_be_computed(
    base_s: float, multiplier: float, steps: int, cap_s: float
) -> None:
    try:
        power = multiplier**steps
    except OverflowError:
        power = math.inf
    assert grown_s(base_s, multiplier, steps, cap_s) == min(cap_s, base_s * power)


# Ladder


def test_a_ladder_gives_its_gaps_and_ends() -> None:
    assert gaps_of(Ladder(gaps_s=(5, 300, 1_800)), 5) == [5, 300, 1_800, None, None]


def test_a_ladder_may_come_down_again() -> None:
    """The gaps are what the owner listed: only a formula promises that they grow."""
    assert gaps_of(Ladder(gaps_s=(300, 5)), 2) == [300, 5]


def test_a_ladder_without_gaps_is_one_attempt_only() -> None:
    assert gap_s(Ladder(gaps_s=()), 1) is None


def test_a_gap_of_zero_is_a_retry_at_once() -> None:
    assert gaps_of(Ladder(gaps_s=(0, 0)), 3) == [0, 0, None]


def test_a_ladder_repeats_its_last_gap_for_as_long_as_it_is_told() -> None:
    schedule = Ladder(gaps_s=(3, 10), repeat_last=True, window_s=60)
    assert gaps_of(schedule, 4) == [3, 10, 10, 10]
    assert {gap_s(schedule, n) for n in BEYOND} == {10}


def test_retries_end_a_ladder_that_repeats() -> None:
    assert gaps_of(Ladder(gaps_s=(3, 10), repeat_last=True, retries=4), 5) == [3, 10, 10, 10, None]


@pytest.mark.parametrize("repeat_last", [False, True])
def test_retries_may_cut_a_ladder(repeat_last: bool) -> None:
    assert gaps_of(Ladder(gaps_s=(3, 10, 180), repeat_last=repeat_last, retries=2), 3) == [3, 10, None]


# Two phases


def test_a_fast_ladder_is_followed_by_a_fixed_slow_interval() -> None:
    schedule = TwoPhase(fast_s=(1, 5, 30), slow_s=3_600, retries=6)
    assert gaps_of(schedule, 7) == [1, 5, 30, 3_600, 3_600, 3_600, None]


def test_the_slow_interval_goes_on_for_ever() -> None:
    assert {gap_s(TwoPhase(fast_s=(1,), slow_s=60, window_s=60), n) for n in BEYOND} == {60}


def test_without_a_fast_phase_the_slow_interval_is_all() -> None:
    assert gaps_of(TwoPhase(fast_s=(), slow_s=60, retries=2), 3) == [60, 60, None]


def test_retries_may_end_it_in_the_fast_phase() -> None:
    assert gaps_of(TwoPhase(fast_s=(1, 5, 30), slow_s=60, retries=2), 3) == [1, 5, None]


# All of them


def test_no_retries_is_one_attempt_only() -> None:
    assert gap_s(every(30, retries=0), 1) is None
    assert gap_s(Ladder(gaps_s=(5,), retries=0), 1) is None
    assert gap_s(TwoPhase(fast_s=(5,), slow_s=60, retries=0), 1) is None


@given(SCHEDULES, st.integers(max_value=0))
def test_a_retry_before_the_first_is_refused(schedule: Schedule, n: int) -> None:
    with pytest.raises(ValueError, match="n counts retries, from 1"):
        gap_s(schedule, n)


@given(st.integers(0, 1_000_000), st.integers(1, 2_000_000))
def test_exactly_the_allowed_retries_have_a_gap(retries: int, n: int) -> None:
    for schedule in (
        every(30, retries=retries),
        Ladder(gaps_s=(1,), repeat_last=True, retries=retries),
        TwoPhase(fast_s=(1,), slow_s=2, retries=retries),
    ):
        assert (gap_s(schedule, n) is None) == (n > retries)


@given(SCHEDULES)
def test_a_schedule_that_has_ended_does_not_go_on(schedule: Schedule) -> None:
    gaps = [gap_s(schedule, n) for n in (*range(1, 23), *BEYOND)]
    first = gaps.index(None)
    assert set(gaps[first:]) == {None}
    assert all(gap is not None and gap >= 0 for gap in gaps[:first])


@given(st.lists(GAPS, min_size=1, max_size=10), st.integers(1, 12))
def test_a_ladder_that_repeats_is_two_phases_of_which_the_slow_one_is_its_last_gap(gaps: list[float], n: int) -> None:
    last = gaps[-1] + 1
    ladder = Ladder(gaps_s=(*gaps, last), repeat_last=True, retries=11)
    assert gap_s(ladder, n) == gap_s(TwoPhase(fast_s=tuple(gaps), slow_s=last, retries=11), n)


@given(st.floats(0.01, 604_800), st.integers(1, 20))
def test_a_fixed_interval_is_the_same_in_every_kind(interval_s: float, n: int) -> None:
    kinds = (
        every(interval_s, retries=10),
        Ladder(gaps_s=(interval_s,), repeat_last=True, retries=10),
        TwoPhase(fast_s=(), slow_s=interval_s, retries=10),
    )
    assert {gap_s(schedule, n) for schedule in kinds} == {interval_s if n <= 10 else None}
