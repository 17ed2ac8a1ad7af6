"""Ranges and ticks of axes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.plotting.figure import Axis, Figure, Series, Span
from infra.plotting.scales import column_scales, row_scales, scale
from tests.infra.plotting.drawings import GRID, VALUES, panel

AXES = st.builds(Axis, st.just("x"), st.sampled_from(["number", "time"]), st.booleans())


def said(axis: Axis, values: list[float], most_ticks: int = 8) -> list[str]:
    return [label for _, label in scale(axis, values, most_ticks).ticks]


@given(AXES, st.lists(VALUES, max_size=10), st.integers(4, 12))
def test_an_axis_holds_its_values_and_no_more_ticks_than_wanted(axis: Axis, values: list[float], most: int) -> None:
    drawn = scale(axis, values, most)
    assert 1 <= len(drawn.ticks) <= most
    for value in values:
        if abs(value) >= 1e-9 and (value > 0 or not axis.log):
            assert drawn.low <= value <= drawn.high
    assert axis.log or drawn.low <= 0 <= drawn.high


@given(AXES, st.lists(VALUES, max_size=10), st.integers(4, 12))
def test_ticks_rise_within_the_axis_and_each_says_something_else(axis: Axis, values: list[float], most: int) -> None:
    drawn = scale(axis, values, most)
    places = [place for place, _ in drawn.ticks]
    reach = (drawn.high - drawn.low) * 1e-9
    assert drawn.low - reach <= places[0]
    assert places[-1] <= drawn.high + reach
    assert all(lower < higher for lower, higher in pairwise(places))
    assert len({label for _, label in drawn.ticks}) == len(places)


@given(AXES, st.lists(VALUES, min_size=1, max_size=10), st.data())
def test_the_greater_a_value_the_further_up_it_lies(axis: Axis, values: list[float], drawing: st.DataObject) -> None:
    drawn = scale(axis, values, 8)
    lower, higher = sorted((drawing.draw(VALUES), drawing.draw(VALUES)))
    assert 0 <= drawn.share(lower) <= drawn.share(higher) <= 1
    assert (drawn.share(drawn.low), drawn.share(drawn.high)) == (0, 1)


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (0.5, ["0", "100 ms", "200 ms", "300 ms", "400 ms", "500 ms"]),
        (50, ["0", "10 s", "20 s", "30 s", "40 s", "50 s"]),
        (900, ["0", "5 min", "10 min", "15 min"]),
        (10_800, ["0", "30 min", "1 h", "1.5 h", "2 h", "2.5 h", "3 h"]),
        (90_000, ["0", "6 h", "12 h", "18 h", "1 d"]),
        (8 * 86_400, ["0", "2 d", "4 d", "6 d", "8 d"]),
        (366 * 86_400, ["0", "100 d", "200 d", "300 d"]),
    ],
)
def test_time_is_counted_in_the_units_that_people_count_in(seconds: float, labels: list[str]) -> None:
    assert said(Axis("", "time"), [0, seconds]) == labels


def test_time_by_its_logarithm_has_landmarks() -> None:
    axis = Axis("", "time", log=True)
    assert said(axis, [0, 30, 86_520]) == ["10 s", "1 min", "10 min", "1 h", "6 h", "1 d"]
    assert said(axis, [0.25, 5]) == ["100 ms", "1 s"]
    assert said(axis, [1, 366 * 86_400], most_ticks=5) == ["1 s", "1 min", "1 h", "1 d", "30 d"]


def test_numbers_are_round() -> None:
    assert said(Axis(""), [0, 12_600]) == ["0", "2,000", "4,000", "6,000", "8,000", "10,000", "12,000", "14,000"]
    assert said(Axis(""), [-3, 4]) == ["-3", "-2", "-1", "0", "1", "2", "3", "4"]
    assert said(Axis(""), [-5, -2], most_ticks=4) == ["-6", "-4", "-2", "0"]
    assert said(Axis(""), [0, 0.5], most_ticks=6) == ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]
    assert said(Axis(""), [0, 2]) == ["0", "1", "2"]
    assert said(Axis("", log=True), [3, 5_000]) == ["1", "10", "100", "1,000"]


def test_names_stand_for_numbers() -> None:
    drawn = scale(Axis("", names=("closed", "open")), [0, 1], 8)
    assert list(drawn.ticks) == [(0, "closed"), (1, "open")]
    assert 0 < drawn.share(0) < drawn.share(1) < 1


def test_an_axis_without_values_is_an_axis() -> None:
    for axis in (Axis(""), Axis("", log=True), Axis("", "time"), Axis("", "time", log=True)):
        drawn = scale(axis, [], 8)
        assert drawn.low < drawn.high
        assert drawn.ticks


def test_panels_of_a_row_share_their_height_and_those_of_a_column_their_time() -> None:
    assert row_scales(GRID, 8)[0].high == 1_000
    assert [each.high for each in column_scales(GRID, 8)] == [3_600, 3_600]


def test_spans_and_spreads_are_on_the_axis_too() -> None:
    series = Series("a", [5], [1], spread=[(1, 70)])
    assert column_scales(Figure("", ((panel(series),),)), 8)[0].high == 70
    spanned = panel(series, spans=(Span("outage", 60, 120),))
    assert column_scales(Figure("", ((spanned,),)), 8)[0].high == 120


@pytest.mark.parametrize("x", [[1.0, 2.0], [float("nan")], [1e16], [float("-inf")]])
def test_points_that_cannot_be_drawn_are_refused(x: list[float]) -> None:
    with pytest.raises(ValueError, match="series load"):
        Series("load", x, [1.0])


@pytest.mark.parametrize(("start", "end"), [(2, 1), (float("nan"), 1), (0, float("inf"))])
def test_spans_that_cannot_be_drawn_are_refused(start: float, end: float) -> None:
    with pytest.raises(ValueError, match="span outage"):
        Span("outage", start, end)


def test_a_figure_s_rows_are_equally_long() -> None:
    for rows in ((), ((),), ((panel(),), (panel(), panel()))):
        with pytest.raises(ValueError, match="equally many"):
            Figure("", rows)
