"""From where to where an axis goes, and its ticks. Pure; shared by everything that draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, count

from infra.plotting.figure import Axis, Figure, Panel

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_UNITS = ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1, "s"))
# Steps that people count time in, up to ten days; above, it is tens and hundreds of days.
_TIME_STEPS = (
    *(1, 2, 5, 10, 15, 30),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 5)),
)
# Landmarks that divide time about evenly by its logarithm.
_TIME_LANDMARKS = (
    *(1, 10, _MINUTE, 10 * _MINUTE, _HOUR, 6 * _HOUR),
    *(n * _DAY for n in (1, 7, 30, 365)),
)


_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class Scale:
    """The range of an axis, and where its ticks are with what they say, from low to high."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def clipped(self, value: float) -> float:
        """The value, or the end of the axis that it lies beyond."""
        return min(max(value, self.low), self.high)

    def share(self, value: float) -> float:
        """Where a value lies, from 0 (low) to 1 (high); beyond them, at the end."""
        low, value, high = self.low, self.clipped(value), self.high
        if self.log:
            low, value, high = math.log(low), math.log(value), math.log(high)
        return min(max((value - low) / (high - low), 0.0), 1.0)


def column_scales(figure: Figure, most_ticks: int) -> list[Scale]:
    """The x axis of each column of panels, with at most so many ticks."""
    return [
        scale(column[0].x, chain.from_iterable(map(_across, column)), most_ticks)
        for column in zip(*figure.rows, strict=True)
    ]


def _across(panel: Panel) -> Iterator[float]:
    for series in panel.series:
        yield from series.x
        yield from chain.from_iterable(series.spread)
    for span in panel.spans:
        yield from (span.start, span.end)


def row_scales(figure: Figure, most_ticks: int) -> list[Scale]:
    """The y axis of each row of panels, with at most so many ticks."""
    return [
        scale(row[0].y, [y for panel in row for series in panel.series for y in series.y], most_ticks)
        for row in figure.rows
    ]


def scale(axis: Axis, values: Iterable[float], most_ticks: int) -> Scale:
    """An axis that holds values.

    Args:
        axis: Which kind of axis.
        values: What has to fit on it. A logarithmic axis begins at or below the least that is positive; any other
            holds 0. What is smaller than a billionth counts as 0.
        most_ticks: How many ticks at most, 4 or more; names are all kept.
    """
    present = [value if abs(value) >= _LEAST else 0.0 for value in values]
    if axis.names:
        ticks = tuple((float(at), name) for at, name in enumerate(axis.names))
        return Scale(-0.25, len(axis.names) - 0.75, log=False, ticks=ticks)
    if axis.log:
        return _log_scale(axis, [value for value in present if value > 0] or [1.0], most_ticks)
    low, high = min([0.0, *present]), max([0.0, *present])
    high = high if low < high else 1.0
    step = _step(axis, (high - low) / (most_ticks - 1))
    if axis.kind == "time":  # ends where what is drawn ends
        first, last = math.ceil(low / step - _LEAST), math.floor(high / step + _LEAST)
    else:  # ends at ticks, which may be one too many at either end; what is counted has no fractions
        step = max(step, 1.0) if all(value % 1 == 0 for value in present) else step
        first, last = math.floor(low / step + _LEAST), math.ceil(high / step - _LEAST)
        while last - first >= most_ticks:
            step = _step(axis, step * 1.5)
            first, last = math.floor(low / step + _LEAST), math.ceil(high / step - _LEAST)
        low, high = min(low, first * step), max(high, last * step)
    places = [at * step for at in range(first, last + 1)]
    return Scale(low, high, log=False, ticks=tuple((place, _label(axis, place)) for place in places))


def _step(axis: Axis, least: float) -> float:
    """The smallest step that is not under a least one, among those that people count in."""
    if axis.kind == "number" or least <= 0.5:
        return _decimal_step(least)
    known = (float(step) for step in _TIME_STEPS if step >= least)
    return next(known, None) or _DAY * _decimal_step(least / _DAY)


def _decimal_step(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= least * (1 - 1e-9))


def _log_scale(axis: Axis, positive: list[float], most_ticks: int) -> Scale:
    if axis.kind == "time":
        marks = [
            *(10.0**power for power in range(-10, 0)),
            *map(float, _TIME_LANDMARKS),
            *(365 * _DAY * 10.0**power for power in range(1, 12)),
        ]
    else:
        marks = [10.0**power for power in range(-10, 17)]
    low = max(mark for mark in marks if mark <= min(positive))
    high = max(*positive, min(mark for mark in marks if mark > low))
    inside = [mark for mark in marks if low <= mark <= high]
    every = next(every for every in count(1) if len(inside[::every]) <= most_ticks)
    return Scale(low, high, log=True, ticks=tuple((mark, _label(axis, mark)) for mark in inside[::every]))


def _label(axis: Axis, value: float) -> str:
    if value == 0:
        return "0"
    if axis.kind == "number":
        return f"{value:,.0f}" if 1_000 <= abs(value) < 1e12 else f"{value:g}"
    if abs(value) < 1:
        return f"{value * 1_000:g} ms"
    # The largest unit of which it is one or more, in halves: 30 min, 1.5 h, 2 d.
    size, unit = next(
        (size, unit) for size, unit in _UNITS if (abs(value) >= size and value % (size / 2) == 0) or size == 1
    )
    return f"{value / size:,g} {unit}"
