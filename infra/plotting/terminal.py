"""Figures as text for a terminal: lines of braille dots, each with a letter of its own, so that no colour is needed.

Owns the layout in characters. The dots are plotille's; its axes know neither round ticks nor logarithms, so these are
ours.
"""

from __future__ import annotations

from itertools import pairwise, zip_longest
from typing import Final

from plotille import Canvas

from infra.plotting.figure import Figure, Panel, Series
from infra.plotting.scales import Scale, column_scales, row_scales

# The palette of `files` in the 256 colours of terminals.
_COLOURS: Final = (32, 202, 36, 175, 214, 74)
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_SHADES: Final = "▒░▓"
_GAP: Final = "  "
_BESIDE: Final = 40  # columns that a panel needs, to stand beside another one
_BETWEEN_LETTERS: Final = 8

NARROWEST: Final = 30
"""The fewest columns that a figure can be drawn in."""


def drawn(figure: Figure, width: int, *, height: int = 14, coloured: bool = False) -> str:
    """A figure as lines of text.

    Args:
        figure: What to draw; the spreads of points are left out.
        width: How many columns there are, `NARROWEST` or more; no line is longer.
        height: How many lines the inside of each panel takes, 4 or more.
        coloured: Whether to colour series as well.

    Returns:
        The lines, joined by newlines. Panels of a row stand side by side if each can be 40 columns wide, else one below
        the other.
    """
    columns = len(figure.rows[0])
    each = (width - len(_GAP) * (columns - 1)) // columns
    beside = each >= _BESIDE
    each = each if beside else width
    across = column_scales(figure, most_ticks=max(each // 10, 4))
    up = row_scales(figure, most_ticks=max(2 * height // 3, 4))
    lines = [_cut(figure.title, width)]
    for row, y in zip(figure.rows, up, strict=True):
        blocks = [_panel(figure, panel, (x, y), (each, height), coloured) for panel, x in zip(row, across, strict=True)]
        if beside:
            lines += [_GAP.join(parts).rstrip() for parts in zip_longest(*blocks, fillvalue=" " * each)]
        else:
            lines += [line.rstrip() for block in blocks for line in block]
    return "\n".join([*lines, *_legend(figure, width)])


def _panel(
    figure: Figure, panel: Panel, scales: tuple[Scale, Scale], size: tuple[int, int], coloured: bool
) -> list[str]:
    """A panel as lines that are all of the given width, not counting what makes colours."""
    across, up = scales
    width, height = size
    margin = min(max(len(label) for _, label in up.ticks), width // 3)
    inside = width - margin - 1
    heading = " · ".join(filter(None, (panel.title, panel.y.label)))
    labels = {height - 1 - _dot(up, place, height, 4) // 4: label for place, label in up.ticks}
    lines = [_cut(heading, width).ljust(width)] if heading else []
    for at, dots in enumerate(_dots(figure, panel, scales, (inside, height), coloured)):
        label = labels.get(at, "")
        lines.append(f"{_cut(label, margin):>{margin}}{'┤' if label else '│'}{dots}")
    spans = dict.fromkeys(span.name for span in panel.spans)
    lines += [" " * margin + "│" + _strip(figure, panel, name, across, inside) for name in spans]
    rule, ticks = ["─"] * inside, " " * width
    free = 0
    for place, label in across.ticks:
        column = _dot(across, place, inside, 2) // 2
        start = min(max(margin + 1 + column - len(label) // 2, 0), width - len(label))
        if start >= free and len(label) <= width:
            rule[column] = "┬"
            ticks = ticks[:start] + label + ticks[start + len(label) :]
            free = start + len(label) + 1
    lines += [" " * margin + "└" + "".join(rule), ticks]
    if panel.x.label:
        lines.append(_cut(panel.x.label, inside).center(inside).rjust(width))
    return lines


def _dots(
    figure: Figure, panel: Panel, scales: tuple[Scale, Scale], size: tuple[int, int], coloured: bool
) -> list[str]:
    """The inside of a panel, from the top down."""
    width, height = size
    canvas = Canvas(width, height, 0, 0, 2 * width, 4 * height, mode="byte", no_color=not coloured)
    for series in panel.series:
        number = figure.series_names.index(series.name)
        colour = _COLOURS[number % len(_COLOURS)]
        points = [
            (_dot(scales[0], x, width, 2), _dot(scales[1], y, height, 4))
            for x, y in zip(series.x, series.y, strict=True)
        ]
        for (x, y), (next_x, next_y) in pairwise(points) if series.style != "points" else ():
            if series.style == "step":
                canvas.line(x, y, next_x, y, color=colour)
                x = next_x  # noqa: PLW2901 - where the step up begins
            canvas.line(x, y, next_x, next_y, color=colour)
        _letter(canvas, series, points, number, colour)
    lines: str = canvas.plot(linesep="\n")
    return lines.replace("\N{BRAILLE PATTERN BLANK}", " ").split("\n")


def _dot(scale: Scale, value: float, characters: int, dots: int) -> int:
    """Which dot of an axis, from 0, is a value's; a character has so many of them."""
    return round(scale.share(value) * (characters * dots - 1))


def _letter(canvas: Canvas, series: Series, points: list[tuple[int, int]], number: int, colour: int) -> None:
    """Put the letter of a series on its points, but not so often that the line cannot be seen."""
    apart = 2 * _BETWEEN_LETTERS if series.style != "points" else 2
    # Each series begins a little further on, so that those which run together stay visible.
    free = 4 * (number % 4) if len(points) > 1 and series.style != "points" else 0
    for at, (x, y) in enumerate(points):
        if x >= free or at == len(points) - 1:
            canvas.point(x, y, color=colour, marker=_LETTERS[number % len(_LETTERS)])
            free = x + apart


def _strip(figure: Figure, panel: Panel, name: str, across: Scale, width: int) -> str:
    """A line that is shaded where a span is."""
    strip = [" "] * width
    for span in panel.spans:
        if span.name == name:
            first, last = (_dot(across, end, width, 2) // 2 for end in (span.start, span.end))
            strip[first : last + 1] = _shade(figure, name) * (last + 1 - first)
    return "".join(strip)


def _legend(figure: Figure, width: int) -> list[str]:
    """What letters and shades mean, in as many lines as it takes."""
    entries = [f"{_LETTERS[at % len(_LETTERS)]} {name}" for at, name in enumerate(figure.series_names)]
    entries += [f"{_shade(figure, name)} {name}" for name in figure.span_names]
    lines: list[str] = []
    for entry in entries:
        if lines and len(lines[-1]) + 3 + len(entry) <= width:
            lines[-1] += f"   {entry}"
        else:
            lines.append(_cut(entry, width))
    return lines


def _shade(figure: Figure, name: str) -> str:
    return _SHADES[figure.span_names.index(name) % len(_SHADES)]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
