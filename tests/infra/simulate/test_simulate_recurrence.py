"""The storm by arithmetic."""

from __future__ import annotations

import pytest

from infra.simulate.recurrence import storm_attempts


@pytest.mark.parametrize(("minute", "attempts"), [(1, 600), (2, 1_800), (5, 5_400), (10, 11_400), (11, 12_600)])
def test_a_storm_grows_as_its_source_says(minute: int, attempts: int) -> None:
    """600 events a minute, an outage of ten minutes, a fixed gap of 30 s."""
    assert storm_attempts(600, minute) == attempts


@pytest.mark.parametrize("minute", [0, -1, 12])
def test_it_does_not_speak_of_other_minutes(minute: int) -> None:
    with pytest.raises(ValueError, match="minutes 1 to 11"):
        storm_attempts(600, minute)
