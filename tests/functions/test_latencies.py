"""When an endpoint's attempts of late count as slow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.attempting import Attempted
from forbear.latencies import Latencies
from forbear.policy.model import Adaptive, Policy

RULE = Adaptive(slow_s=3.0, window_s=60.0, samples=100)
ENDPOINT = uuid4()


def attempted(latency_s: float, at: float = 0.0, rule: Adaptive | None = RULE) -> Attempted:
    """An attempt as far as its latency is looked at."""
    lane = SimpleNamespace(policy=Policy(adaptive=rule))
    attempt = SimpleNamespace(latency_ms=latency_s * 1000)
    stand_in: Any = SimpleNamespace(
        result=SimpleNamespace(lease=SimpleNamespace(lane=lane), attempt=attempt), finished=at
    )
    return cast(Attempted, stand_in)


def seen(*latencies_s: float, at: float = 0.0) -> Latencies:
    """The samples of attempts that ended at a time."""
    latencies = Latencies()
    latencies.add({ENDPOINT: [attempted(latency_s, at) for latency_s in latencies_s]})
    return latencies


@pytest.mark.parametrize(
    ("fast", "slow", "judged"),
    [(98, 2, True), (99, 1, False), (99, 0, False), (0, 100, True), (0, 99, False), (197, 3, True), (198, 2, False)],
)
def test_the_99th_percentile_of_enough_samples_decides(fast: int, slow: int, judged: bool) -> None:
    """One in a hundred may be slow, two are too many; with fewer than `samples` nothing is said."""
    assert seen(*[0.1] * fast, *[5.0] * slow).slow(ENDPOINT, RULE, 1.0) is judged


def test_as_long_as_allowed_is_not_slow() -> None:
    assert not seen(*[3.0] * 100).slow(ENDPOINT, RULE, 1.0)


def test_what_is_older_than_the_window_does_not_count() -> None:
    latencies = seen(*[5.0] * 100, at=0.0)
    assert latencies.slow(ENDPOINT, RULE, 60.0)
    assert not latencies.slow(ENDPOINT, RULE, 60.1)


def test_nothing_is_kept_where_nothing_judges_it() -> None:
    latencies = Latencies()
    for rule in (None, Adaptive(slow_s=None)):
        latencies.add({ENDPOINT: [attempted(5.0, rule=rule)] * 200})
        assert not latencies.slow(ENDPOINT, rule, 1.0)
    assert not latencies.slow(ENDPOINT, RULE, 1.0)


@given(st.lists(st.floats(0, 30), min_size=100, max_size=300))
def test_the_percentile_is_the_nearest_rank(latencies_s: list[float]) -> None:
    """As many as one in a hundred, rounded down, may be over the bound."""
    over = sum(latency_s * 1000 / 1000 > 3.0 for latency_s in latencies_s)
    assert seen(*latencies_s).slow(ENDPOINT, RULE, 1.0) is (over > len(latencies_s) - -(-99 * len(latencies_s) // 100))
