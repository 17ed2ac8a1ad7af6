"""How figures look: a line of JSON each, and a table. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from infra.bench.figure import Aim, Figure
from infra.bench.runner import Failed

HEADS: Final = ("figure", "median", "least .. greatest", "unit", "aim", "")
_NUMBERS: Final = (1, 2)  # columns of numbers, to the right


def document(figure: Figure) -> dict[str, Any]:
    """A figure as JSON; `figure_of` reads it again."""
    aim = figure.aim
    return {
        "group": figure.group,
        "name": figure.name,
        "unit": figure.unit,
        "median": rounded(figure.median),
        "least": rounded(figure.least),
        "greatest": rounded(figure.greatest),
        "values": [rounded(value) for value in figure.values],
        "aim": None if aim is None else {"at_most" if aim.at_most else "at_least": aim.value},
        "reached": figure.reached,
        "counted": figure.counted,
        "conditions": dict(figure.conditions),
    }


def figure_of(document: Mapping[str, Any]) -> Figure:
    """The figure that a document tells of."""
    aim = document["aim"]
    return Figure(
        document["group"],
        document["name"],
        document["unit"],
        tuple(document["values"]),
        None if aim is None else Aim(next(iter(aim.values())), at_most="at_most" in aim),
        document["counted"],
        document["conditions"],
    )


def failure(failed: Failed) -> dict[str, Any]:
    """A group that failed, as JSON."""
    return {"group": failed.group, "failed": failed.reason}


def rounded(value: float) -> float:
    """To six significant digits: more is noise, in what is counted too."""
    return float(f"{value:.6g}")


def number(value: float) -> str:
    """A number for people, with some three significant digits; whole numbers with all of theirs."""
    if abs(value) >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


def aim(figure: Figure) -> str:
    """What is aimed at, in words; empty without an aim."""
    return "" if figure.aim is None else f"{'at most' if figure.aim.at_most else 'at least'} {number(figure.aim.value)}"


def verdict(figure: Figure) -> str:
    """Whether that is reached, in words; empty without an aim."""
    return "" if figure.reached is None else "reached" if figure.reached else "not reached"


def spread(figure: Figure, between: str = " .. ") -> str:
    """From the least repeat to the greatest."""
    return f"{number(figure.least)}{between}{number(figure.greatest)}"


def row(figure: Figure) -> tuple[str, ...]:
    """A figure's row; cells as `HEADS`."""
    return (
        figure.name,
        number(figure.median),
        spread(figure),
        figure.unit,
        aim(figure),
        verdict(figure),
    )


def table(figures: Sequence[Figure]) -> Iterator[str]:
    """The table's lines: the figures group by group, in the order in which they came."""
    groups = list(dict.fromkeys(figure.group for figure in figures))
    rows = {group: [row(figure) for figure in figures if figure.group == group] for group in groups}
    every = [HEADS, *(cells for group in groups for cells in rows[group])]
    widths = [max(map(len, column)) for column in zip(*every, strict=True)]
    yield _line(HEADS, widths)
    for group in groups:
        yield ""
        yield group
        yield from (_line(cells, widths) for cells in rows[group])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (
        cell.rjust(width) if place in _NUMBERS else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return f"  {'  '.join(padded)}".rstrip()
