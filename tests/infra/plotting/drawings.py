"""Figures for the tests of drawing."""

from __future__ import annotations

from typing import Literal

from hypothesis import strategies as st

from infra.plotting.figure import MOST, Axis, Figure, Panel, Series, Span

TIME = Axis("since the start", "time")
LOG_TIME = Axis("since the start", "time", log=True)
COUNT = Axis("attempts")
STATES = Axis("breaker", names=("closed", "half-open", "open"))


def panel(*series: Series, x: Axis = TIME, y: Axis = COUNT, title: str = "", spans: tuple[Span, ...] = ()) -> Panel:
    return Panel(x, y, series, title, spans)


ONE = Figure(
    "Attempts over time",
    (
        (
            panel(
                Series(
                    "slow", [0, 30, 120, 7_200], [1, 2, 3, 4], "step", [(0, 0), (15, 45), (60, 180), (3_600, 9_000)]
                ),
                Series("fast", [0, 1, 2], [1, 2, 3], "points"),
                x=LOG_TIME,
            ),
        ),
    ),
    "Two schedules.",
    "jitter",
)
GRID = Figure(
    "An outage",
    (
        (
            panel(Series("load", [0, 3_600], [0, 900]), title="naive", spans=(Span("outage", 600, 1_200),)),
            panel(Series("load", [0, 3_600], [0, 90]), title="default", spans=(Span("outage", 600, 1_200),)),
        ),
        (
            panel(Series("state", [0, 700, 3_600], [0, 2, 0], "step"), y=STATES),
            panel(Series("state", [0, 3_600], [1, 1], "step"), y=STATES),
        ),
    ),
)

VALUES = st.one_of(st.floats(-MOST, MOST), st.sampled_from([0.0, 1e-320, 1.0, 59.0, 86_400.0, 1_000_000.0]))
# Whatever prints, and what means something to matplotlib or XML.
NAMES = st.text(st.characters(exclude_categories=("C", "Z")) | st.sampled_from(" $_\\{}<&"), max_size=12)


@st.composite
def series(draw: st.DrawFn) -> Series:
    points = draw(st.lists(st.tuples(VALUES, VALUES), max_size=8))
    spread = [(x, x + 1) for x, _ in points] if draw(st.booleans()) else []
    style: Literal["line", "step", "points"] = draw(st.sampled_from(["line", "step", "points"]))
    return Series(
        draw(NAMES), [x for x, _ in points], [y for _, y in points], style, [(a, min(b, MOST)) for a, b in spread]
    )


@st.composite
def figures(draw: st.DrawFn) -> Figure:
    x = Axis(draw(NAMES), draw(st.sampled_from(["number", "time"])), draw(st.booleans()))
    y = Axis(draw(NAMES), log=draw(st.booleans()))

    def a_panel() -> Panel:
        spans = [Span(draw(NAMES), *sorted(draw(st.tuples(VALUES, VALUES)))) for _ in range(draw(st.integers(0, 2)))]
        return Panel(x, y, tuple(draw(st.lists(series(), max_size=3))), draw(NAMES), tuple(spans))

    columns = draw(st.integers(1, 3))
    rows = tuple(tuple(a_panel() for _ in range(columns)) for _ in range(draw(st.integers(1, 2))))
    return Figure(draw(NAMES), rows)
