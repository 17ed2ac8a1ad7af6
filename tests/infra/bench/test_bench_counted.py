"""What is counted may not get worse unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.bench.counted import accept, problems
from infra.bench.figure import Figure

GROUPS = ["made"]


def wal(value: float, *, group: str = "made", name: str = "WAL", counted: bool = True) -> Figure:
    return Figure(group, name, "bytes", (value,), counted=counted)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "counted.json"
    accept([wal(1000), wal(7, group="other")], ["made", "other"], path)
    return path


@pytest.mark.parametrize("value", [1, 1000, 1050])
def test_what_is_as_good_or_better_is_no_problem(file: Path, value: float) -> None:
    assert problems([wal(value)], GROUPS, file) == []


def test_more_than_five_percent_worse_is_told_with_both_values(file: Path) -> None:
    [problem] = problems([wal(1051)], GROUPS, file)
    assert problem.startswith("made: WAL: 1,051 bytes is 5.1 % more than the accepted 1,000: ")
    assert "--accept" in problem


def test_what_is_not_known_or_not_counted_any_more_is_told(file: Path) -> None:
    found = problems([wal(1, name="new")], GROUPS, file)
    assert [problem.partition(":")[2].split()[0] for problem in found] == ["new:", "WAL"]


def test_groups_that_were_not_measured_are_not_missed(file: Path) -> None:
    assert problems([], [], file) == []
    accept([wal(900)], GROUPS, file)
    assert problems([wal(7, group="other")], ["other"], file) == []
    assert problems([wal(1000)], GROUPS, file) != []


def test_what_is_timed_is_not_compared(file: Path) -> None:
    assert problems([wal(1000), wal(5000, name="timed", counted=False)], GROUPS, file) == []
