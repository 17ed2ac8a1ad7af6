"""Figures as SVG and PNG files. matplotlib takes seconds to import, so this module is imported when a file is wanted.

Owns the look of a file. The same figure gives the same bytes, whenever and wherever it is drawn: no date, no random
ids, no settings of the user's, matplotlib's own font.
"""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any, Final, Literal

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.patches import Patch

from infra.plotting.figure import Figure, Panel, Series
from infra.plotting.scales import Scale, column_scales, row_scales

# Okabe and Ito's palette, which colour-blind people can tell apart, without its yellow, which is lost on white.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS: Final = "osD^vPX"
_DASHES: Final = ("solid", "dashed", "dotted")
_SHADES: Final = ("#999999", "#E69F00", "#56B4E9", "#CC79A7")
_SPREAD_ALPHA: Final = 0.3
_SPARSE: Final = 40  # points that each still get a marker

_INCHES: Final = 7.5, 4.2  # of a figure of one panel
_PANEL_INCHES: Final = 4.4, 2.6  # of each of several
# How much fits into a line of the legend: letters, and what stands for a series as if it were some.
_LETTERS_AN_INCH: Final = 14.0
_HANDLE_LETTERS: Final = 7
_STYLE: Final[dict[Any, Any]] = {
    "svg.hashsalt": "forbear",
    "svg.fonttype": "none",  # text stays text: smaller, and it can be searched and read aloud
    # The first comes with matplotlib; where an SVG is read and it is not there, the next ones are about as wide.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial"],
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "savefig.dpi": 144,
    "text.parse_math": False,  # a dollar in a name is a dollar
}


def write(figure: Figure, path: Path) -> None:
    """Draw a figure into a file, whose name says what kind of file.

    Raises:
        ValueError: The name ends neither in `.svg` nor in `.png`.
        OSError: The file cannot be written.
    """
    match path.suffix.lower():
        case ".svg":
            drawing = drawn(figure, "svg")
        case ".png":
            drawing = drawn(figure, "png")
        case _:
            raise ValueError(f"{path.name!r} ends neither in .svg nor in .png: choose one of the two")
    path.write_bytes(drawing)


def drawn(figure: Figure, form: Literal["svg", "png"]) -> bytes:
    """A figure as the content of a file, on white, so that it can be read on light and dark pages."""
    with mpl.rc_context(), warnings.catch_warnings():
        # The reader's fonts may have what ours has not.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        buffer = io.BytesIO()
        _canvas(figure).savefig(buffer, format=form, facecolor="white", metadata=_about(figure, form))
        return buffer.getvalue()


def _about(figure: Figure, form: Literal["svg", "png"]) -> dict[str, str | None]:
    about: dict[str, str | None] = {"Title": figure.title, "Description": figure.description or figure.title}
    return about | ({"Date": None, "Creator": "Forbear"} if form == "svg" else {"Software": "Forbear"})


def _canvas(figure: Figure) -> Canvas:
    rows, columns = len(figure.rows), len(figure.rows[0])
    wide, high = _INCHES if rows == columns == 1 else (max(_PANEL_INCHES[0] * columns, 7.5), _PANEL_INCHES[1] * rows)
    canvas = Canvas(figsize=(wide, high + 0.6), layout="constrained")
    canvas.suptitle(figure.title, fontsize=11, fontweight="bold")
    grid: list[list[Axes]] = canvas.subplots(rows, columns, squeeze=False, sharex="col", sharey="row").tolist()
    across = column_scales(figure, most_ticks=9)
    up = row_scales(figure, most_ticks=8)
    handles: dict[str, Artist] = {}
    for row, axes_of_row, y in zip(figure.rows, grid, up, strict=True):
        for panel, axes, x in zip(row, axes_of_row, across, strict=True):
            _lay_out(axes, x, y)
            axes.set_title(panel.title, fontsize=10)
            handles |= _draw(figure, panel, axes, (x, y))
        axes_of_row[0].set_ylabel(row[0].y.label)
    for axes, panel in zip(grid[-1], figure.rows[0], strict=True):
        axes.set_xlabel(panel.x.label)
    handles = {name: handles[name] for name in (*figure.series_names, *figure.span_names)}
    if any(series.spread for panel in figure.panels for series in panel.series):
        handles[figure.spread] = Patch(color="#000000", alpha=_SPREAD_ALPHA, linewidth=0)
    if handles:
        fitting = int(wide * _LETTERS_AN_INCH) // (max(map(len, handles)) + _HANDLE_LETTERS)
        columns = max(min(len(handles), 6, fitting), 1)
        canvas.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)
    return canvas


def _lay_out(axes: Axes, across: Scale, up: Scale) -> None:
    axes.set_xscale("log" if across.log else "linear")
    axes.set_yscale("log" if up.log else "linear")
    for axis, scale, limit in ((axes.xaxis, across, axes.set_xlim), (axes.yaxis, up, axes.set_ylim)):
        axis.set_ticks([place for place, _ in scale.ticks], [label for _, label in scale.ticks])
        axis.set_ticks([], minor=True)
        # A little more, so that what lies at the end is not cut in half.
        low, high = scale.low, scale.high
        limit(low, high * (high / low) ** 0.02 if scale.log else high + (high - low) * 0.02)


def _draw(figure: Figure, panel: Panel, axes: Axes, scales: tuple[Scale, Scale]) -> dict[str, Artist]:
    """Draw what is in a panel; gives what stands for each series and span in the legend."""
    handles: dict[str, Artist] = {}
    for series in panel.series:
        handles[series.name] = _draw_series(series, figure.series_names.index(series.name), axes, scales)
    for span in panel.spans:
        shade = _SHADES[figure.span_names.index(span.name) % len(_SHADES)]
        start, end = scales[0].clipped(span.start), scales[0].clipped(span.end)
        handles[span.name] = axes.axvspan(start, end, color=shade, alpha=0.3, linewidth=0)
    return handles


def _draw_series(series: Series, number: int, axes: Axes, scales: tuple[Scale, Scale]) -> Artist:
    colour = _COLOURS[number % len(_COLOURS)]
    sparse = len(series.x) <= _SPARSE
    look: dict[str, Any] = {
        "color": colour,
        "linestyle": _DASHES[number // len(_COLOURS) % len(_DASHES)] if series.style != "points" else "none",
        "marker": _MARKERS[number % len(_MARKERS)] if sparse or series.style == "points" else None,
        "markersize": 4 if sparse else 2.5,
        "linewidth": 1.4,
    }
    x, y = [scales[0].clipped(value) for value in series.x], [scales[1].clipped(value) for value in series.y]
    if series.spread:
        low, high = ([scales[0].clipped(ends[side]) for ends in series.spread] for side in (0, 1))
        axes.hlines(y, low, high, color=colour, alpha=_SPREAD_ALPHA, linewidth=4)
    [line] = axes.plot(x, y, drawstyle="steps-post" if series.style == "step" else "default", **look)
    return line
