"""How runs look: as a table with the policies side by side, and as a picture. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from infra.cli import durations
from infra.plotting.figure import Axis, Figure, Panel, Series, Span
from infra.simulate.receivers import Mode
from infra.simulate.scenarios import Scenario
from infra.simulate.series import Interval, Run

_OUT: Final = {
    Mode.REFUSE: "connections refused",
    Mode.UNAVAILABLE: "503 to everything",
    Mode.HANG: "no answer at all",
}
# What the breaker's states are called, and how high they stand in a picture.
_STATES: Final = {"closed": "closed", "half_open_probe": "half-open", "half_open_trickle": "trickle", "open": "open"}
_LEVELS: Final = tuple(_STATES)
_COLUMNS: Final = ("attempts", "successes", "dead", "backlog", "breaker")
# Where the offered load rises so far over what arrives, a linear axis would hide what arrives.
_TOWERING: Final = 10


def table(runs: Sequence[Run]) -> Iterator[str]:
    """Runs of one scenario as lines of text: an interval a line, the policies side by side, then the totals."""
    rows = [_cells(intervals) for intervals in zip(*(run.intervals for run in runs), strict=True)]
    totals = ["in all", f"{runs[0].totals['arrivals']:,}"]
    for run in runs:
        sums = run.totals
        totals += [*(f"{sums[name]:,}" for name in _COLUMNS[:-1]), ""]
    heads = ["from", "arrivals", *(_COLUMNS * len(runs))]
    widths = [max(map(len, column)) for column in zip(heads, *rows, totals, strict=True)]
    group = len(_COLUMNS)
    names = [" " * (widths[0] + 2 + widths[1])]
    for place, run in enumerate(runs):
        mine = widths[2 + place * group : 2 + (place + 1) * group]
        names.append(run.policy[: sum(mine) + 2 * (group - 1)].ljust(sum(mine) + 2 * (group - 1)))
    yield "    ".join(names).rstrip()
    for cells in (heads, *rows, totals):
        yield _line(cells, widths).rstrip()


def _cells(intervals: Sequence[Interval]) -> list[str]:
    cells = [durations.written(intervals[0].from_s), f"{intervals[0].arrivals:,}"]
    for interval in intervals:
        cells += [f"{getattr(interval, name):,}" for name in _COLUMNS[:-1]]
        cells.append(_STATES[interval.breaker])
    return cells


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Numbers to the right, words to the left; policies stand a little apart."""
    parts = []
    for place, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        column = None if place < 2 else _COLUMNS[(place - 2) % len(_COLUMNS)]
        gap = "" if place == 0 else "    " if column == _COLUMNS[0] else "  "
        parts.append(gap + (cell.ljust(width) if column == "breaker" else cell.rjust(width)))
    return "".join(parts)


def about(scenario: Scenario) -> str:
    """What a scenario is, in a line."""
    receiver = scenario.receiver
    parts = [f"{scenario.rate_per_s:g} events/s for {durations.written(scenario.duration_s)}"]
    if receiver.capacity is not None:
        parts.append(f"a receiver that does {receiver.capacity.per_s:g} requests/s")
    for outage in receiver.outages:
        length = durations.written(outage.to_s - outage.from_s)
        parts.append(f"{_OUT[outage.mode]} for {length} from {durations.written(outage.from_s)} on")
    if receiver.error_share:
        parts.append(f"500 to {receiver.error_share:.0%}")
    if receiver.rate_limit is not None:
        parts.append(f"429 beyond {receiver.rate_limit.per_s:g} requests/s")
    if scenario.timeout_s is not None:
        parts.append(f"timeout {durations.written(scenario.timeout_s)}")
    return "; ".join(parts)


def picture(scenario: Scenario, runs: Sequence[Run]) -> Figure:
    """Runs of one scenario side by side: offered load and goodput, backlog, and the breaker's state over time."""
    spans = tuple(Span(_OUT[outage.mode], outage.from_s, outage.to_s) for outage in scenario.receiver.outages)
    highest = max(interval.attempts / run.step_s for run in runs for interval in run.intervals)
    time = Axis("time", "time")
    rate = Axis("a second", log=highest > _TOWERING * scenario.rate_per_s)
    breaker = Axis("breaker", names=tuple(_STATES.values()))
    return Figure(
        f"{scenario.name}: {', '.join(run.policy for run in runs)}",
        (
            tuple(Panel(time, rate, _rates(run), run.policy, spans) for run in runs),
            tuple(Panel(time, Axis("deliveries waiting"), (_backlog(run),), run.policy, spans) for run in runs),
            tuple(Panel(time, breaker, (_breaker(run),), run.policy, spans) for run in runs),
        ),
        f"{about(scenario)}. Under each policy: what is offered to the receiver and what succeeds, the deliveries that"
        " wait, and the state of the breaker, over time.",
    )


def _rates(run: Run) -> tuple[Series, ...]:
    return tuple(
        _stepped(name, run, [getattr(interval, field) / run.step_s for interval in run.intervals])
        for name, field in (("arrivals", "arrivals"), ("offered load", "attempts"), ("goodput", "successes"))
    )


def _backlog(run: Run) -> Series:
    x = [0.0, *(min(interval.from_s + run.step_s, run.duration_s) for interval in run.intervals)]
    return Series("backlog", x, [0.0, *(float(interval.backlog) for interval in run.intervals)])


def _breaker(run: Run) -> Series:
    x = [at for at, _ in run.breaker]
    y = [float(_LEVELS.index(state)) for _, state in run.breaker]
    return Series("breaker", [*x, run.duration_s], [*y, y[-1]], "step")


def _stepped(name: str, run: Run, values: list[float]) -> Series:
    """Values that each hold for an interval."""
    x = [interval.from_s for interval in run.intervals]
    return Series(name, [*x, run.duration_s], [*values, values[-1]], "step")
