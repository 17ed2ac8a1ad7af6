"""Spans of time, as people type and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.cli.durations import read, written
from infra.cli.errors import UsageError


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [("30s", 30), ("0.25s", 0.25), ("1d12h", 129_600), (" 2H ", 7_200), ("1w", 604_800), ("1.5h30m", 7_200), ("0s", 0)],
)
def test_a_duration_is_typed_in_units(typed: str, seconds: float) -> None:
    assert read("--cap", typed) == seconds


@pytest.mark.parametrize("typed", ["", "30", "s", "-1s", "1 h", "1h-", "1e3s", ".5s", "1.s", "nans", "1y", "\u0661s"])
def test_what_is_no_duration_is_refused_with_what_would_be_one(typed: str) -> None:
    with pytest.raises(UsageError, match=r"--cap: .* is no duration: write 90s, 30m"):
        read("--cap", typed)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "0.25s"),
        (9.999, "10s"),
        (32.54, "32.5s"),
        (59.99, "1m"),
        (90, "1m30s"),
        (3_600.4, "1h"),
        (86_520, "1d2m"),
        (8 * 86_400, "8d"),
        (6_000 * 86_400, "6000d"),
    ],
)
def test_a_duration_is_written_as_exactly_as_one_reads_it(seconds: float, text: str) -> None:
    assert written(seconds) == text


@given(st.integers(0, 10**9))
def test_what_is_written_can_be_typed(seconds: int) -> None:
    assert read("--cap", written(seconds)) == seconds


@given(st.floats(0, 1e9))
def test_rounding_takes_no_more_than_a_hundredth_or_half_a_second(seconds: float) -> None:
    assert abs(read("--cap", written(seconds)) - seconds) <= max(min(seconds * 0.01, 0.5), 0.005) + 1e-6
