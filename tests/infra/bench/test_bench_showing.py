"""Figures as lines of JSON, as a table, and as a page with its history."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from infra.bench import history
from infra.bench.figure import Figure, at_least, at_most
from infra.bench.history import Run
from infra.bench.machine import About
from infra.bench.page import pictures
from infra.bench.showing import document, figure_of, number, table

DRAIN = Figure("end-to-end", "drain, fan-out 1", "1/s", (5000.4, 6100.0, 6400.0), at_least(6000), conditions={"of": 9})
ACK = Figure("latency", "post to receipt", "ms", (16.0, 12.25, 15.5), at_most(15))
ROWS = Figure("end-to-end", "rows written per delivery", "count", (4.24,), counted=True)
ABOUT = About(
    at="2026-01-02T03:04:05Z",
    commit="abc",
    quick=False,
    repeats=3,
    receiver="nginx",
    machine={"cpu": "Made Up", "cores": 2, "storage": "ext4"},
    versions={"python": "3.13"},
    settings={"fsync": "on"},
)


@pytest.mark.parametrize("figure", [DRAIN, ACK, ROWS])
def test_a_figure_comes_back_from_its_line(figure: Figure) -> None:
    assert figure_of(json.loads(json.dumps(document(figure)))) == figure


def test_a_line_tells_the_median_the_spread_and_whether_the_aim_is_reached() -> None:
    told = document(DRAIN)
    assert (told["median"], told["least"], told["greatest"]) == (6100.0, 5000.4, 6400.0)
    assert (told["aim"], told["reached"]) == ({"at_least": 6000}, True)
    assert document(ACK)["reached"] is False
    assert document(ROWS)["reached"] is None


def test_the_table_has_a_row_a_figure_by_group() -> None:
    lines = list(table([DRAIN, ACK, ROWS]))
    assert [line.split("  ")[0] for line in lines if line and not line.startswith(" ")] == ["end-to-end", "latency"]
    rows = {cells[0]: cells[1:] for line in lines if line.startswith("  ") for cells in [re.split("  +", line.strip())]}
    assert rows["drain, fan-out 1"] == ["6,100", "5,000 .. 6,400", "1/s", "at least 6,000", "reached"]
    assert rows["post to receipt"] == ["15.5", "12.2 .. 16", "ms", "at most 15", "not reached"]
    assert rows["rows written per delivery"] == ["4.24", "4.24 .. 4.24", "count"]
    assert lines.index("latency") > lines.index(next(line for line in lines if "rows" in line))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0046, "0.0046"), (4.236, "4.24"), (12.25, "12.2"), (1234567.8, "1,234,568"), (0.0, "0"), (3.0, "3")],
)
def test_numbers_have_some_three_digits(value: float, shown: str) -> None:
    assert number(value) == shown


def test_recorded_runs_are_read_again_and_make_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "benchmarks"
    first = Run(ABOUT, (DRAIN, ROWS))
    second = Run(replace(ABOUT, at="2026-02-03T04:05:06Z"), (replace(DRAIN, values=(7000.0, 7100.0, 7200.0)),))
    history.record(folder, first)
    history.record(folder, second)
    assert history.read(folder) == [first, second]
    page = (tmp_path / "benchmarks.md").read_text()
    assert "*drain*: one claimer works off a backlog" in page  # what the group's module says
    assert "| drain, fan-out 1 | 7,100 | 7,000 to 7,200 | 1/s | at least 6,000 | reached |" in page
    assert "Run 2, 2026-02-03" in page
    assert "| 1 | 2026-01-02T03:04:05Z | abc | 3 | 1: Made Up, 2 cores, storage ext4, receiver nginx |" in page
    assert "benchmarks/end-to-end.svg" in page
    picture = (folder / "end-to-end.svg").read_text()
    assert "drain, fan-out 1" in picture
    assert "rows written" not in picture  # it has no aim


def test_the_pictures_keep_machines_apart() -> None:
    elsewhere = replace(ABOUT, machine={"cpu": "Another", "cores": 64})
    [panel] = pictures([Run(ABOUT, (DRAIN,)), Run(elsewhere, (DRAIN,))])["end-to-end"].panels
    x = {series.name: list(series.x) for series in panel.series if series.name.startswith("median")}
    assert x == {"median on machine 1": [0.0], "median on machine 2": [1.0]}
    [alone] = pictures([Run(ABOUT, (DRAIN,))])["end-to-end"].panels
    assert [series.name for series in alone.series] == ["median", "least", "greatest", "aim"]
