"""The page of results: what the figures mean, the latest ones, and how they went over the runs. Pure.

What a group's figures mean stands in its module's docstring, and nowhere else.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal

from infra.bench.figure import Figure
from infra.bench.groups import GROUPS, PEERS, load
from infra.bench.history import Run
from infra.bench.showing import aim, number, spread, verdict
from infra.plotting.figure import MOST, Axis, Panel, Series
from infra.plotting.figure import Figure as Picture

_LINES: Final[Mapping[str, Literal["line", "points"]]] = {"median": "line", "least": "points", "greatest": "points"}
_INTRODUCTION: Final = """# Measured

`forbear bench --record` made this page; `forbear bench` measures the same on any machine. What was tried and what it
brought, and which limit stands in the way where an aim is not reached, stands in [performance.md](performance.md).

PostgreSQL, the receiver and the functions share the machine's cores. A figure is the median of its repeats; beside it
stand the least and the greatest of them. What is counted and not timed is the same on any machine."""


def markdown(runs: Sequence[Run], folder: str, pictures: Collection[str]) -> str:
    """The page.

    Args:
        runs: the earliest first.
        folder: where the pictures are, from the page.
        pictures: the groups that have one.
    """
    parts = [_INTRODUCTION]
    for group in _groups(runs):
        place, latest = _latest(runs, group)
        parts += [f"## {group}", _meaning(group), f"Run {place}, {latest.about.at[:10]}:"]
        parts.append("\n".join(_table([figure for figure in latest.figures if figure.group == group])))
        if group in pictures:
            parts.append(f"![{group} over the runs]({folder}/{group}.svg)")
    parts += ["## Runs", "\n".join(_runs(runs))]
    return "\n\n".join(parts) + "\n"


def pictures(runs: Sequence[Run]) -> dict[str, Picture]:
    """How the figures that have an aim went over the runs: a picture a group, a panel a figure."""
    drawn = {}
    for group in _groups(runs):
        names = dict.fromkeys(
            figure.name for run in runs for figure in run.figures if figure.group == group and figure.aim is not None
        )
        rows = tuple((_panel(runs, group, name),) for name in names)
        if rows:
            description = f"Each figure's median, least and greatest repeat, and its aim: {', '.join(names)}."
            drawn[group] = Picture(f"{group}, run by run", rows, description)
    return drawn


def _groups(runs: Sequence[Run]) -> list[str]:
    """The groups that were measured, in their order; one that is gone is left out."""
    measured = {figure.group for run in runs for figure in run.figures}
    return [group for group in (*GROUPS, PEERS) if group in measured]


def _latest(runs: Sequence[Run], group: str) -> tuple[int, Run]:
    """The latest run that measured a group, and its number."""
    return max(
        ((place, run) for place, run in enumerate(runs, 1) if any(figure.group == group for figure in run.figures)),
        key=lambda numbered: numbered[0],
    )


def _meaning(group: str) -> str:
    return inspect.cleandoc(load(group).__doc__ or "")


def _table(figures: Sequence[Figure]) -> Iterator[str]:
    yield "| figure | median | least to greatest | unit | aim | | measured with |"
    yield "|---|---:|---:|---|---|---|---|"
    for figure in figures:
        conditions = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in figure.conditions.items())
        cells = (number(figure.median), spread(figure, " to "), figure.unit, aim(figure), verdict(figure), conditions)
        yield f"| {figure.name} | {' | '.join(cells)} |"


def _panel(runs: Sequence[Run], group: str, name: str) -> Panel:
    """A figure over the runs, each machine's by itself: those of two do not compare."""
    machines = _machines(runs)
    measured = [
        (place, machines[run.about.machine_name], figure)
        for place, run in enumerate(runs)
        for figure in run.figures
        if (figure.group, figure.name) == (group, name)
    ]
    series = [
        one
        for machine in machines.values()
        for one in _series(
            f" on machine {machine}" if len(machines) > 1 else "",
            [(place, figure) for place, whose, figure in measured if whose == machine],
        )
    ]
    latest = measured[-1][2]
    if latest.aim is not None:
        ends = (-0.25, len(runs) - 0.75)  # the axis's own
        series.append(Series("aim", ends, [latest.aim.value] * 2, style="step"))
    numbers = tuple(str(place) for place in range(1, len(runs) + 1))
    return Panel(Axis("run", names=numbers), Axis(latest.unit), tuple(series), name)


def _series(where: str, measured: Sequence[tuple[int, Figure]]) -> Iterator[Series]:
    x = [float(place) for place, _ in measured]
    for which, style in _LINES.items():
        values = [min(getattr(figure, which), MOST) for _, figure in measured]
        yield Series(f"{which}{where}", x, values, style)


def _machines(runs: Sequence[Run]) -> dict[str, int]:
    """The machines' numbers, in the order in which they came."""
    names = dict.fromkeys(run.about.machine_name for run in runs)
    return {name: number for number, name in enumerate(names, 1)}


def _runs(runs: Sequence[Run]) -> Iterator[str]:
    machines = _machines(runs)
    yield "| run | begun | commit | repeats | machine | versions | PostgreSQL's settings |"
    yield "|---:|---|---|---:|---|---|---|"
    for place, run in enumerate(runs, 1):
        about = run.about
        machine = (
            f"{machines[about.machine_name]}: {about.machine_name}, "
            f"{_listed(about.machine, leaving_out=('cpu', 'cores'))}, receiver {about.receiver}"
        )
        made_with = (_listed(about.versions), _listed(about.settings))
        yield f"| {place} | {' | '.join((about.at, about.commit or '', str(about.repeats), machine, *made_with))} |"


def _listed(values: Mapping[str, object], leaving_out: Collection[str] = ()) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items() if name not in leaving_out)
