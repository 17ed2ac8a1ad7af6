"""What is drawn, as values: a figure of panels, a panel's series and shaded spans, and its axes.

Owns no look: `files` and `terminal` draw a figure, each in its way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Literal

MOST: Final = 1e15
"""The greatest value that can be drawn."""


@dataclass(frozen=True, slots=True)
class Series:
    """Named points in the order of their x; two series of one name, in different panels, look the same.

    Attributes:
        name: What the legend calls it.
        x: Where the points are; seconds on an axis of time.
        y: How high they are, one for each x.
        style: `line` joins the points, `step` holds each one's y until the next, `points` leaves them alone.
        spread: For each point, from which x to which it may lie; drawn into files as a bar.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    style: Literal["line", "step", "points"] = "line"
    spread: Sequence[tuple[float, float]] = ()

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y) or (self.spread and len(self.spread) != len(self.x)):
            raise ValueError(f"series {self.name}: {len(self.x)} x, {len(self.y)} y, {len(self.spread)} spreads")
        if not all(abs(value) <= MOST for value in (*self.x, *self.y, *chain.from_iterable(self.spread))):
            raise ValueError(f"series {self.name}: leave out what is beyond {MOST:g} or no number")


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the x axis that is shaded; spans of one name look the same."""

    name: str
    start: float
    end: float

    def __post_init__(self) -> None:
        if not -MOST <= self.start <= self.end <= MOST:
            raise ValueError(f"span {self.name}: from {self.start:g} to {self.end:g} is no span")


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis.

    Attributes:
        label: What it shows, and the unit where its ticks carry none.
        kind: `time` has ticks in seconds, minutes, hours and days, `number` in plain numbers.
        log: Whether it is logarithmic; what is not positive is then drawn at its lower edge.
        names: Names for 0, 1, 2, …, in place of numbers.
    """

    label: str
    kind: Literal["number", "time"] = "number"
    log: bool = False
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes and what is drawn between them."""

    x: Axis
    y: Axis
    series: tuple[Series, ...]
    title: str = ""
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture.

    Attributes:
        title: What it shows, in a line.
        rows: The panels, row by row, equally many in each. A row shares the y axis of its first panel and a column the
            x axis of its first, over the values of all, so that panels can be compared by eye.
        description: What it shows, for those who cannot see it.
        spread: What the legend calls the spreads of points.
    """

    title: str
    rows: tuple[tuple[Panel, ...], ...]
    description: str = ""
    spread: str = "spread"

    def __post_init__(self) -> None:
        if not self.rows or not self.rows[0] or len({len(row) for row in self.rows}) != 1:
            raise ValueError("a figure needs rows of panels, equally many in each")

    @property
    def panels(self) -> Iterator[Panel]:
        """All panels."""
        return (panel for row in self.rows for panel in row)

    @property
    def series_names(self) -> list[str]:
        """The names of all series, each once, in order."""
        return list(dict.fromkeys(series.name for panel in self.panels for series in panel.series))

    @property
    def span_names(self) -> list[str]:
        """The names of all spans, each once, in order."""
        return list(dict.fromkeys(span.name for panel in self.panels for span in panel.spans))
