import math
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.policy.model import Exponential
from forbear.policy.schedule import gap_s, grown_s, jittered_s

RETRIES = st.one_of(st.integers(1, 200), st.sampled_from([10_000, 10**9, 10**18]))


@st.composite
def unending(draw: st.DrawFn) -> Exponential:
    """Any exponential schedule that only its window ends."""
    base_s = draw(st.floats(0.01, 604_800))
    return Exponential(
        base_s=base_s,
        multiplier=draw(st.one_of(st.floats(1, 100), st.just(math.nextafter(1, 2)))),
        cap_s=draw(st.floats(base_s, 604_800)),
        retries=None,
        window_s=3_600,
        jitter=draw(st.sampled_from(["full", "none"])),
    )


def test_gaps_double_from_the_base_up_to_the_cap() -> None:
    schedule = Exponential(base_s=5, multiplier=2, cap_s=60, retries=6)
    assert [gap_s(schedule, n) for n in range(1, 8)] == [5, 10, 20, 40, 60, 60, None]


def test_published_doubling_schedule_of_outpost() -> None:
    """30 s times two, ten retries, the last attempt after 8:31:30 (Outpost's documentation)."""
    schedule = Exponential(base_s=30, multiplier=2, cap_s=86_400, retries=10)
    gaps = [gap_s(schedule, n) for n in range(1, 11)]
    assert gaps == [30, 60, 120, 240, 480, 960, 1_920, 3_840, 7_680, 15_360]
    assert sum(gap for gap in gaps if gap is not None) == 8 * 3_600 + 31 * 60 + 30


def test_multiplier_one_is_a_fixed_interval() -> None:
    schedule = Exponential(base_s=30, multiplier=1, cap_s=3_600, retries=None, window_s=60)
    assert {gap_s(schedule, n) for n in (1, 2, 10_000, 10**9)} == {30}


def test_no_retries_is_one_attempt_only() -> None:
    assert gap_s(Exponential(retries=0), 1) is None


@pytest.mark.parametrize("n", [0, -1])
def test_a_retry_before_the_first_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match="n counts retries, from 1"):
        gap_s(Exponential(), n)


@pytest.mark.parametrize("n", [10_000, 10**9, 10**400])
def test_a_growing_gap_stays_at_the_cap_for_ever(n: int) -> None:
    assert gap_s(Exponential(retries=None, window_s=60), n) == 14_400


@given(unending(), RETRIES)
def test_a_gap_is_positive_and_never_over_the_cap(schedule: Exponential, n: int) -> None:
    gap = gap_s(schedule, n)
    assert gap is not None
    assert 0 < gap <= schedule.cap_s


@given(unending(), st.lists(RETRIES, min_size=2, max_size=30))
def test_gaps_never_shrink(schedule: Exponential, retries: list[int]) -> None:
    gaps = [gap_s(schedule, n) or math.nan for n in sorted(retries)]
    assert all(earlier <= later for earlier, later in pairwise(gaps))


@given(st.integers(0, 1_000_000), st.integers(1, 2_000_000))
def test_exactly_the_allowed_retries_have_a_gap(retries: int, n: int) -> None:
    assert (gap_s(Exponential(retries=retries), n) is None) == (n > retries)


@given(st.floats(1e-300, 1e6), st.floats(1, 1e6), st.integers(0, 60), st.floats(1e-300, 1e6))
def test_growth_is_the_capped_power_where_that_can_be_computed(
    base_s: float, multiplier: float, steps: int, cap_s: float
) -> None:
    try:
        power = multiplier**steps
    except OverflowError:
        power = math.inf
    assert grown_s(base_s, multiplier, steps, cap_s) == min(cap_s, base_s * power)


@given(unending(), RETRIES, st.integers(0))
def test_jitter_stays_between_zero_and_the_gap(schedule: Exponential, n: int, seed: int) -> None:
    gap = gap_s(schedule, n)
    assert gap is not None
    delay_s = jittered_s(schedule, gap, Random(seed))
    assert 0 <= delay_s <= gap
    if schedule.jitter == "none":
        assert delay_s == gap


@given(unending(), RETRIES, st.floats(0, 1e6), st.integers(0))
def test_a_floor_is_never_undercut_and_jitter_adds_at_most_the_gap(
    schedule: Exponential, n: int, floor_s: float, seed: int
) -> None:
    gap = gap_s(schedule, n)
    assert gap is not None
    delay_s = jittered_s(schedule, gap, Random(seed), floor_s)
    assert floor_s <= delay_s <= floor_s + gap
    if schedule.jitter == "none":
        assert delay_s == max(gap, floor_s)


@given(unending(), st.floats(0, 1e6), st.integers(0))
def test_the_same_seed_gives_the_same_delay(schedule: Exponential, gap: float, seed: int) -> None:
    assert jittered_s(schedule, gap, Random(seed)) == jittered_s(schedule, gap, Random(seed))


def test_full_jitter_is_uniform() -> None:
    """The Kolmogorov-Smirnov distance of 10,000 draws to the uniform distribution, at a level of one in a million."""
    rng, count, gap = Random(2_024), 10_000, 30.0
    delays = sorted(jittered_s(Exponential(), gap, rng) for _ in range(count))
    distance = max(max((i + 1) / count - x / gap, x / gap - i / count) for i, x in enumerate(delays))
    assert distance < 2.69 / math.sqrt(count)


def test_a_thousand_failures_of_one_second_do_not_come_back_in_one() -> None:
    """Full jitter over 30 s spreads 1,000 deliveries to about 33 a second; a lockstep would be 1,000 in one."""
    rng = Random(7)
    seconds = [int(jittered_s(Exponential(), 30.0, rng)) for _ in range(1_000)]
    assert max(seconds.count(second) for second in range(30)) < 60


def test_deliveries_that_were_told_the_same_floor_do_not_come_back_in_lockstep() -> None:
    rng = Random(7)
    delays = {jittered_s(Exponential(), 5.0, rng, floor_s=120.0) for _ in range(1_000)}
    assert len(delays) > 900
    assert min(delays) >= 120
