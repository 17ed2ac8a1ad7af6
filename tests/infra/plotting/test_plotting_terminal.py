"""Figures on a terminal."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.plotting.figure import Axis, Figure, Series
from infra.plotting.terminal import NARROWEST, drawn
from tests.infra.plotting.drawings import GRID, ONE, figures, panel

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def test_a_figure_says_what_it_shows_and_where() -> None:
    text = drawn(ONE, 80)
    lines = text.splitlines()
    assert lines[0] == "Attempts over time"
    assert lines[1] == "attempts"
    assert lines[-1] == "a slow   b fast"
    assert lines[-2].strip() == "since the start"
    assert re.split(r"  +", lines[-3].strip()) == ["1 s", "10 s", "1 min", "10 min", "1 h"]
    assert [line.split("┤")[0].strip() for line in lines if "┤" in line] == ["4", "3", "2", "1", "0"]


def test_each_series_has_a_letter_where_it_is() -> None:
    """The higher of two constant series is the one whose letters stand above."""
    figure = Figure("", ((panel(Series("low", [0, 60], [1, 1]), Series("high", [0, 60], [4, 4])),),))
    inside = [line.partition("│")[2] or line.partition("┤")[2] for line in drawn(figure, 60).splitlines()]
    [low] = [at for at, line in enumerate(inside) if "a" in line]
    [high] = [at for at, line in enumerate(inside) if "b" in line]
    assert high < low


def test_names_stand_beside_their_lines() -> None:
    axis = Axis("", names=("closed", "open"))
    text = drawn(Figure("", ((panel(Series("s", [0, 60], [1, 1]), y=axis),),)), 60)
    [line] = [line for line in text.splitlines() if "a" in line.partition("┤")[2]]
    assert line.startswith("  open┤")


def test_a_span_is_shaded_where_it_is_and_named() -> None:
    text = drawn(GRID, 100)
    [strip] = [line for line in text.splitlines() if "▒" in line and "outage" not in line]
    left = strip.partition("│")[2].partition("│")[0]
    shaded = [at for at, char in enumerate(left) if char == "▒"]
    assert shaded == list(range(shaded[0], shaded[-1] + 1))
    # From 600 to 1,200 of 3,600 seconds.
    assert shaded[0] / 42 == pytest.approx(1 / 6, abs=0.03)
    assert shaded[-1] / 42 == pytest.approx(1 / 3, abs=0.03)
    assert text.splitlines()[-1] == "a load   b state   ▒ outage"


def test_panels_stand_side_by_side_where_there_is_room_and_else_below_each_other() -> None:
    wide, narrow = drawn(GRID, 100).splitlines(), drawn(GRID, 60).splitlines()
    assert any("naive" in line and "default" in line for line in wide)
    assert not any("naive" in line and "default" in line for line in narrow)
    assert len(narrow) > len(wide)


@settings(max_examples=60)
@given(figures(), st.integers(NARROWEST, 160), st.integers(4, 20))
def test_whatever_is_drawn_stays_within_the_width(figure: Figure, width: int, height: int) -> None:
    assert max(map(len, drawn(figure, width, height=height).splitlines()), default=0) <= width


def test_colours_are_only_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = drawn(GRID, 100, coloured=True)
    assert "\x1b" not in drawn(GRID, 100)
    assert "\x1b" in coloured
    plain = [line.rstrip() for line in _COLOUR.sub("", coloured).splitlines()]
    assert plain == drawn(GRID, 100).splitlines()
