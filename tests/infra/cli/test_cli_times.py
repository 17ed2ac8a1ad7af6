"""Times as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear import rfc3339
from infra.cli.errors import UsageError
from infra.cli.times import future, past

NOW = datetime(2030, 1, 31, 12, 0, 0, 123_456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("2h", "2030-01-31T10:00:00.123Z"),
        ("2h ago", "2030-01-31T10:00:00.123Z"),
        ("90S", "2030-01-31T11:58:30.123Z"),
        ("1d12h", "2030-01-30T00:00:00.123Z"),
        (" 1w ", "2030-01-24T12:00:00.123Z"),
        ("now", "2030-01-31T12:00:00.123Z"),
        ("2030-01-30", "2030-01-30T00:00:00.000Z"),
        ("2030-01-30T09:30:00+02:00", "2030-01-30T07:30:00.000Z"),
        ("2030-01-30T09:30:00.5Z", "2030-01-30T09:30:00.500Z"),
    ],
)
def test_a_time_may_be_a_distance_back_a_day_or_rfc_3339(typed: str, meant: str) -> None:
    assert past(typed, NOW) == meant


@pytest.mark.parametrize(
    ("typed", "meant"), [("2h", "2030-01-31T14:00:00.123Z"), ("in 1m", "2030-01-31T12:01:00.123Z")]
)
def test_a_time_to_come_is_reckoned_forward(typed: str, meant: str) -> None:
    assert future(typed, NOW) == meant


@pytest.mark.parametrize(
    "typed", ["", "h", "2", "-2h", "2 h", "2030-02-30", "2030-01-30T09:30:00", "999999w", "yesterday", "\u0661h"]
)
def test_what_is_no_time_is_refused_with_what_would_be_one(typed: str) -> None:
    with pytest.raises(UsageError, match="is no time: write a distance such as"):
        past(typed, NOW)


@given(st.integers(0, 999_999), st.sampled_from([("s", 1), ("m", 60), ("h", 3_600)]))
def test_a_distance_is_as_long_as_its_units_say(number: int, unit: tuple[str, int]) -> None:
    letter, seconds = unit
    try:
        read = rfc3339.parse(past(f"{number}{letter}", NOW))
    except rfc3339.InvalidTime:
        assert NOW.year - number * seconds / 31_556_952 < 1971
    else:
        assert abs(NOW - read - timedelta(seconds=number * seconds)) < timedelta(milliseconds=1)
