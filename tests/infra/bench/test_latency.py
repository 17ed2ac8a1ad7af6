"""The latency group at tiny scale."""

from __future__ import annotations

import asyncio

from infra.bench.figure import at_most
from infra.bench.groups.latency import Times, awake, figures, waking
from infra.bench.world import World


def test_events_are_followed_from_post_to_receipt(world: World) -> None:
    repeats = asyncio.run(awake(world, 5, 2))
    assert [len(each) for each in repeats] == [5, 5]
    assert all(times.posted < times.answered and times.posted < times.received for each in repeats for times in each)


def test_a_sleeping_stack_is_woken(world: World) -> None:
    ((times,),) = asyncio.run(waking(world, 1, 1))
    assert times.posted < times.received


def test_a_percentile_is_of_the_time_from_post_to_receipt() -> None:
    repeats = [[Times(1.0, 1.5, 1.0 + ms / 1000) for ms in range(1, 101)]]
    half, most = figures("way", repeats, {50: at_most(15), 99: None})
    assert (round(half.median), round(most.median)) == (50, 99)
    assert half.reached is False
