import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.policy.schedule import (
    AdditiveJitter,
    EqualJitter,
    FullJitter,
    Jitter,
    NoJitter,
    ProportionalJitter,
    Schedule,
    jittered_s,
    spread_s,
)
from tests.functions.policy.builders import EARLIEST, GAPS, JITTERS, LATEST, every

FULL, EQUAL, TWENTY_PERCENT, TEN_ON_TOP, NONE = (
    every(30, jitter=FullJitter()),
    every(30, jitter=EqualJitter()),
    every(30, jitter=ProportionalJitter(ratio=0.2)),
    every(30, jitter=AdditiveJitter(ratio=0.1)),
    every(30, jitter=NoJitter()),
)
SPREADING = (FULL, EQUAL, TWENTY_PERCENT, TEN_ON_TOP)
SPREADS = JITTERS.map(lambda jitter: every(30, jitter=jitter))
# Hook0's documentation: 10 % of the gap, no less than 2 s and no more than 15 min.
HOOK0 = every(30, jitter=AdditiveJitter(ratio=0.1, min_s=2, max_s=900))


@pytest.mark.parametrize(
    ("schedule", "earliest_s", "latest_s"),
    [(FULL, 0, 100), (EQUAL, 50, 100), (TWENTY_PERCENT, 80, 120), (TEN_ON_TOP, 100, 110), (NONE, 100, 100)],
)
def test_each_jitter_has_an_earliest_and_a_latest_delay(schedule: Schedule, earliest_s: float, latest_s: float) -> None:
    assert list(spread_s(schedule, 100)) == pytest.approx([earliest_s, latest_s - earliest_s])
    assert jittered_s(schedule, 100, EARLIEST) == pytest.approx(earliest_s)
    assert jittered_s(schedule, 100, LATEST) == pytest.approx(latest_s)


def test_proportional_jitter_of_one_goes_down_to_zero_and_not_below() -> None:
    assert spread_s(every(30, jitter=ProportionalJitter(ratio=1)), 100) == (0, 200)


@pytest.mark.parametrize(
    ("gap", "width_s"), [(0, 2), (3, 2), (10, 2), (20, 2), (180, 18), (1_800, 180), (9_000, 900), (36_000, 900)]
)
def test_the_bound_of_an_additive_jitter_is_held_between_its_own(gap: float, width_s: float) -> None:
    assert list(spread_s(HOOK0, gap)) == pytest.approx([gap, width_s])


@pytest.mark.parametrize("schedule", [*SPREADING, NONE])
def test_a_gap_of_zero_stays_immediate(schedule: Schedule) -> None:
    assert spread_s(schedule, 0) == (0, 0)


def test_only_an_additive_jitter_with_a_minimum_spreads_a_gap_of_zero() -> None:
    assert jittered_s(HOOK0, 0, EARLIEST) == 0
    assert jittered_s(HOOK0, 0, LATEST) == pytest.approx(2)


@given(JITTERS, GAPS, st.integers(0))
def test_a_delay_lies_within_the_spread_and_is_never_negative(jitter: Jitter, gap: float, seed: int) -> None:
    schedule = every(30, jitter=jitter)
    earliest_s, width_s = spread_s(schedule, gap)
    assert earliest_s >= 0
    assert width_s >= 0
    for rng in (Random(seed), EARLIEST, LATEST):
        assert earliest_s <= jittered_s(schedule, gap, rng) <= earliest_s + width_s


@given(GAPS)
def test_what_jitter_does_to_the_mean(gap: float) -> None:
    """Full halves it, equal takes a quarter; ± leaves it; what comes on top adds half of it."""
    means = [earliest_s + width_s / 2 for earliest_s, width_s in (spread_s(each, gap) for each in (*SPREADING, NONE))]
    assert means == [pytest.approx(gap * share) for share in (0.5, 0.75, 1, 1.05, 1)]


@given(st.builds(AdditiveJitter, ratio=st.floats(0, 10)), GAPS, st.integers(0))
def test_an_additive_jitter_never_comes_before_the_gap(jitter: AdditiveJitter, gap: float, seed: int) -> None:
    assert jittered_s(every(30, jitter=jitter), gap, Random(seed)) >= gap


@given(st.sampled_from([FULL, EQUAL]), GAPS)
def test_full_and_equal_jitter_never_come_after_the_gap(schedule: Schedule, gap: float) -> None:
    assert jittered_s(schedule, gap, LATEST) <= gap


@given(st.sampled_from(SPREADING), st.floats(0.01, 800), st.floats(1, 1_000))
def test_jitter_grows_with_the_gap(schedule: Schedule, gap: float, factor: float) -> None:
    earliest_s, width_s = spread_s(schedule, gap)
    assert width_s > 0
    assert list(spread_s(schedule, gap * factor)) == pytest.approx([earliest_s * factor, width_s * factor])


@given(SPREADS, GAPS, st.floats(0, 1e6), st.integers(0))
def test_a_floor_lifts_the_earliest_delay_and_leaves_the_width(
    schedule: Schedule, gap: float, floor_s: float, seed: int
) -> None:
    earliest_s, width_s = spread_s(schedule, gap)
    delay_s = jittered_s(schedule, gap, Random(seed), floor_s)
    assert max(floor_s, earliest_s) <= delay_s <= max(floor_s, earliest_s) + width_s
    assert delay_s >= jittered_s(schedule, gap, Random(seed))


@given(SPREADS, GAPS, st.integers(0))
def test_the_same_seed_gives_the_same_delay(schedule: Schedule, gap: float, seed: int) -> None:
    assert jittered_s(schedule, gap, Random(seed)) == jittered_s(schedule, gap, Random(seed))


@given(SPREADS, GAPS, st.integers(0))
def test_a_delay_takes_one_draw_whatever_the_jitter(schedule: Schedule, gap: float, seed: int) -> None:
    """So a seeded simulation of two policies meets the same chances in both."""
    rng, other = Random(seed), Random(seed)
    jittered_s(schedule, gap, rng)
    other.random()
    assert rng.getstate() == other.getstate()


@pytest.mark.parametrize("schedule", SPREADING)
def test_delays_are_even_over_the_spread(schedule: Schedule) -> None:
    """The Kolmogorov-Smirnov distance of 10,000 draws to the uniform distribution, at a level of one in a million."""
    rng, count = Random(2_024), 10_000
    earliest_s, width_s = spread_s(schedule, 30)
    places = sorted((jittered_s(schedule, 30, rng) - earliest_s) / width_s for _ in range(count))
    distance = max(max((i + 1) / count - x, x - i / count) for i, x in enumerate(places))
    assert distance < 2.69 / math.sqrt(count)


@pytest.mark.parametrize("schedule", SPREADING)
def test_deliveries_that_were_told_the_same_floor_do_not_come_back_in_lockstep(schedule: Schedule) -> None:
    rng = Random(7)
    delays = {jittered_s(schedule, 5.0, rng, floor_s=120.0) for _ in range(1_000)}
    assert len(delays) > 900
    assert min(delays) >= 120
