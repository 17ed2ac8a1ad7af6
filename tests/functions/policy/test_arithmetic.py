"""The arithmetic that articles and senders give for their schedules, as what our schedules give."""

import heapq
import math
from bisect import bisect_right
from collections import Counter
from random import Random

import pytest

from forbear.policy.schedule import (
    EqualJitter,
    Exponential,
    FullJitter,
    Jitter,
    NoJitter,
    ProportionalJitter,
    Schedule,
    gap_s,
    jittered_s,
    spread_s,
)
from tests.functions.policy.builders import every

HOUR_S, DAY_S = 3_600, 86_400
# The schedule of the preset `repost`: times three from 30 seconds, 14 attempts; without its cap and with it.
TRIPLING = Exponential(base_s=30, multiplier=3, retries=13, jitter=NoJitter())
CAPPED = Exponential(base_s=30, multiplier=3, cap_s=3 * HOUR_S, retries=13, jitter=NoJitter())


def gap_before(schedule: Schedule, attempt: int) -> float:
    """The gap between an attempt and the one before it, where the first attempt is number 1."""
    gap = gap_s(schedule, attempt - 1)
    assert gap is not None
    return gap


def gaps_of(schedule: Schedule) -> list[float]:
    gaps: list[float] = []
    while (gap := gap_s(schedule, len(gaps) + 1)) is not None:
        gaps.append(gap)
    return gaps


def mean_s(schedule: Schedule, gap: float) -> float:
    earliest_s, width_s = spread_s(schedule, gap)
    return earliest_s + width_s / 2


def attempts_a_minute(schedule: Schedule, waiting: int, gap: float) -> float:
    """What so many deliveries send, all of them failing, while each waits this gap between two attempts."""
    return waiting * 60 / mean_s(schedule, gap)


def busiest_second(delays: list[float]) -> int:
    return max(Counter(math.floor(delay_s) for delay_s in delays).values())


# Growth


def test_tripling_without_a_cap_waits_eighteen_hours_before_attempt_nine_and_half_a_year_before_fourteen() -> None:
    """Why the source of `repost` caps its gaps."""
    assert gap_before(TRIPLING, 9) / HOUR_S == pytest.approx(18.2, abs=0.05)
    assert gap_before(TRIPLING, 14) / DAY_S == pytest.approx(184.5, abs=0.05)


def test_tripling_under_a_cap_of_three_hours_spends_fifteen_hours_in_its_last_five_gaps() -> None:
    """The source of `repost`: about 24 hours in all, most of them in equal steps at the end."""
    gaps = gaps_of(CAPPED)
    assert gaps[-5:] == [3 * HOUR_S] * 5
    assert sum(gaps[-5:]) == 15 * HOUR_S
    assert sum(gaps) == 86_520


def test_doubling_from_two_seconds_waits_17_minutes_after_attempt_ten_and_nine_hours_after_fifteen() -> None:
    """Why the source of `dropless` caps its gaps at an hour."""
    doubling = Exponential(base_s=2, multiplier=2, retries=15, jitter=NoJitter())
    assert gap_before(doubling, 11) / 60 == pytest.approx(17.1, abs=0.05)
    assert gap_before(doubling, 16) / HOUR_S == pytest.approx(9.1, abs=0.05)


# What a backlog sends


def test_six_thousand_waiting_send_12_000_a_minute_at_a_fixed_interval_and_33_in_a_capped_tail() -> None:
    """The source of `repost` on a fixed 30 seconds beside its own last gaps of three hours."""
    assert attempts_a_minute(every(30), 6_000, gap_before(every(30), 2)) == 12_000
    assert attempts_a_minute(CAPPED, 6_000, gap_before(CAPPED, 14)) == pytest.approx(33.3, abs=0.05)


def test_a_million_waiting_send_5_600_a_minute_in_a_capped_tail() -> None:
    """The same source on what even the last gaps add up to: why a budget belongs beside a schedule."""
    assert attempts_a_minute(CAPPED, 1_000_000, gap_before(CAPPED, 14)) == pytest.approx(5_600, rel=0.01)


# Jitter


def test_full_jitter_gives_up_after_half_of_the_time_on_paper() -> None:
    """A gap that lies evenly between 0 and its length takes half of it: by the means, and by 2,000 deliveries."""
    schedule = Exponential(base_s=2, multiplier=2, cap_s=HOUR_S, retries=15, jitter=FullJitter())
    gaps, rng, count = gaps_of(schedule), Random(5), 2_000
    assert sum(mean_s(schedule, gap) for gap in gaps) == sum(gaps) / 2
    drawn = sum(jittered_s(schedule, gap, rng) for gap in gaps for _ in range(count)) / count
    assert drawn / sum(gaps) == pytest.approx(0.5, abs=0.01)


def test_a_thousand_failures_of_one_second_come_back_33_a_second_under_full_jitter_and_all_at_once_without() -> None:
    """The thundering herd of the articles on jitter, over a gap of 30 seconds."""
    rng, full, none = Random(7), every(30, jitter=FullJitter()), every(30)
    assert 1_000 / spread_s(full, 30)[1] == pytest.approx(33.3, abs=0.05)
    delays = [jittered_s(full, 30, rng) for _ in range(1_000)]
    assert max(delays) < 30
    assert busiest_second(delays) < 60
    assert busiest_second([jittered_s(none, 30, rng) for _ in range(1_000)]) == 1_000


def test_a_thousand_failures_come_back_83_a_second_under_a_fifth_to_either_side() -> None:
    """A ± of 20 % of 30 seconds is a window of 12 seconds, from 24 to 36."""
    rng, schedule = Random(7), every(30, jitter=ProportionalJitter(ratio=0.2))
    earliest_s, width_s = spread_s(schedule, 30)
    assert earliest_s == pytest.approx(24)
    assert width_s == pytest.approx(12)
    assert 1_000 / width_s == pytest.approx(83.3, abs=0.05)
    delays = [jittered_s(schedule, 30, rng) for _ in range(1_000)]
    assert 24 <= min(delays) <= max(delays) <= 36
    assert busiest_second(delays) < 120


@pytest.mark.parametrize("jitter", [FullJitter(), EqualJitter(), ProportionalJitter(ratio=0.2)])
def test_jitter_spreads_the_last_gap_as_well_as_the_first(jitter: Jitter) -> None:
    """A constant jitter leaves hourly spikes at hourly gaps (FormSG, issue 2093: ± 30 minutes for every gap).

    In units of the gap, the delays of every gap have one distribution: the two-sample Kolmogorov-Smirnov distance, at a
    level of one in a million. A thousand deliveries of the last gap come back a few a minute.
    """
    schedule, rng, count = CAPPED.model_copy(update={"jitter": jitter}), Random(11), 1_000
    short, long = (sorted(jittered_s(schedule, gap, rng) / gap for _ in range(count)) for gap in (30, 3 * HOUR_S))
    distance = max(abs(bisect_right(short, x) - bisect_right(long, x)) / count for x in (*short, *long))
    assert distance < 2.69 * math.sqrt(2 / count)
    assert max(Counter(int(share * 180) for share in long).values()) < 40


# "Exponential Backoff And Jitter" (AWS Architecture Blog)


def race(schedule: Schedule, clients: int, seed: int) -> tuple[float, int]:
    """The article's experiment: clients that all write one row at once, under optimistic concurrency control.

    Each client reads the row's version and then writes with it; a write whose version is no longer the row's fails, and
    the client starts over after its back-off. Every leg over the network takes |N(10, 2)| ms.

    Returns:
        Seconds until the last client has written, and how many writes that took.
    """
    rng = Random(seed)

    def leg_s() -> float:
        return abs(rng.gauss(0.010, 0.002))

    # (when, which client, the version it writes with; None for a read), as they arrive at the row
    arrivals: list[tuple[float, int, int | None]] = [(leg_s(), client, None) for client in range(clients)]
    heapq.heapify(arrivals)
    failures = [0] * clients
    version, writes, finished_s = 0, 0, 0.0
    while arrivals:
        at_s, client, seen = heapq.heappop(arrivals)
        if seen is None:
            heapq.heappush(arrivals, (at_s + leg_s() + leg_s(), client, version))
            continue
        writes += 1
        told_s = at_s + leg_s()
        if seen == version:
            version += 1
            finished_s = max(finished_s, told_s)
            continue
        failures[client] += 1
        gap = gap_s(schedule, failures[client])
        assert gap is not None
        heapq.heappush(arrivals, (told_s + jittered_s(schedule, gap, rng) + leg_s(), client, None))
    assert version == clients
    return finished_s, writes


def contended(jitter: Jitter, clients: int, runs: int = 10) -> tuple[float, float]:
    """The means over some runs, with the article's back-off: 10 ms after the first failure, doubling up to 2 s."""
    schedule = Exponential(base_s=0.01, multiplier=2, cap_s=2, retries=1_000_000, jitter=jitter)
    times, writes = zip(*(race(schedule, clients, seed) for seed in range(runs)), strict=True)
    return sum(times) / runs, sum(writes) / runs


@pytest.mark.parametrize("clients", [50, 100])
def test_the_jitter_experiment_of_the_architecture_blog_comes_out_in_its_order(clients: int) -> None:
    """Backing off without jitter leaves the clients in step: they take long, and about twice the calls."""
    full_s, full_writes = contended(FullJitter(), clients)
    equal_s, equal_writes = contended(EqualJitter(), clients)
    none_s, none_writes = contended(NoJitter(), clients)
    assert full_writes <= equal_writes < none_writes
    assert none_writes > 1.5 * equal_writes
    assert full_s < equal_s
    assert none_s > 5 * equal_s
