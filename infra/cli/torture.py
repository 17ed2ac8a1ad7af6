"""`forbear torture`: faults against the real thing on this machine, and the books of what became of every event.

Owns the command's options, what is shown while rounds are played, and the exit code; what happens is `infra.torture`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from infra.cli.command import Session
from infra.cli.errors import CliError, UsageError
from infra.cli.output import Output, visible

if TYPE_CHECKING:
    from infra.torture.runner import Outcome
    from infra.torture.scenario import Scenario


class TortureFailed(CliError):
    """The world could not be set up."""


def torture(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[SCENARIO]", help="One of those that --list shows. Left out: all of them, in turn."),
    ] = None,
    *,
    seed: Annotated[int, typer.Option(min=0, help="The first round's; each further round's is one more.")] = 1,
    rounds: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="How many. Left out: one of each scenario.")
    ] = None,
    random: Annotated[bool, typer.Option("--random", help="Take the scenarios in an order by chance.")] = False,
    listing: Annotated[bool, typer.Option("--list", help="Show the scenarios and what each promises.")] = False,
    summary: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write a summary in Markdown.", show_default=False)
    ] = None,
    log: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the functions' output.", show_default=False)
    ] = None,
) -> None:
    """Kill, cut, freeze and flood Forbear on this machine, and account for every event that it acknowledged.

    A private PostgreSQL (with fsync on), the local stack and receivers are started and deleted again. Exit code 0 only
    if every round kept its promise and had requests in flight when the fault struck.
    """
    from infra.torture.scenarios import SCENARIOS  # noqa: PLC0415 - what a run needs takes 1 s that help need not cost

    output = session.output
    if listing:
        for scenario in SCENARIOS:
            promised = {"name": scenario.name, "promise": scenario.promise}
            output.done(f"{scenario.name}: {scenario.promise}", promised)
        return
    chosen = [scenario for scenario in SCENARIOS if name in {None, scenario.name}]
    if not chosen:
        raise UsageError(f"there is no scenario {name!r}: choose {', '.join(one.name for one in SCENARIOS)}")
    with _writing(summary, "--summary") as kept, _writing(log, "--log") as lines:
        began = time.monotonic()
        outcomes = _run(chosen, rounds or len(chosen), seed, output, shuffled=random, log=lines)
        _finish(outcomes, time.monotonic() - began, output, kept)
    if not outcomes or not all(outcome.kept for outcome in outcomes):
        raise typer.Exit(1)


@contextlib.contextmanager
def _writing(path: str | None, option: str) -> Iterator[IO[str] | None]:
    """The file, opened before anything is started, so that a name that cannot be is told at once."""
    if path is None:
        yield None
        return
    try:
        opened = Path(path).open("w", encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(f"{option}: {path!r} cannot be written ({error.strerror}): name another file") from error
    with opened:
        yield opened


def _run(
    chosen: Sequence[Scenario], rounds: int, seed: int, output: Output, *, shuffled: bool, log: IO[str] | None
) -> list[Outcome]:
    """Play the rounds, telling of each. Gives what has been played, also if it was broken off."""
    from infra.local.postgres import PostgresError  # noqa: PLC0415
    from infra.torture.runner import order, play  # noqa: PLC0415

    outcomes: list[Outcome] = []

    def on_line(function: str, text: str) -> None:
        if log is not None:
            print(f"{function}: {text}", file=log, flush=True)

    async def play_all(telling: Telling) -> None:
        this = asyncio.current_task()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, this.cancel if this else lambda: None)
        plan = order(chosen, rounds, seed, shuffled=shuffled)
        with contextlib.suppress(asyncio.CancelledError):
            async with contextlib.aclosing(play(plan, on_line, telling.begins)) as played:
                async for outcome in played:
                    outcomes.append(outcome)
                    telling.ended(outcome)

    try:
        with _told(output, rounds) as telling:
            asyncio.run(play_all(telling))
    except PostgresError as error:
        raise TortureFailed(str(error)) from error
    return outcomes


@dataclass(frozen=True, slots=True)
class Telling:
    """Who is told that a round begins, and what became of it."""

    begins: Callable[[Scenario, int], None]
    ended: Callable[[Outcome], None]


@contextlib.contextmanager
def _told(output: Output, rounds: int) -> Iterator[Telling]:
    """Tell of each round in a line or a document; on a terminal, show which one is being played, too."""
    from infra.torture.showing import document, line  # noqa: PLC0415

    if output.as_json or not sys.stdout.isatty():
        yield Telling(lambda _scenario, _seed: None, lambda outcome: output.done(line(outcome), document(outcome)))
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

    columns = (BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, transient=True) as progress:
        task = progress.add_task("setting up", total=rounds)

        def ended(outcome: Outcome) -> None:
            progress.console.print(visible(line(outcome)), markup=False, highlight=False)
            progress.advance(task)

        yield Telling(lambda scenario, seed: progress.update(task, description=f"{scenario.name} (seed {seed})"), ended)


def _finish(outcomes: Sequence[Outcome], seconds: float, output: Output, summary: IO[str] | None) -> None:
    from infra.torture.showing import HEADS, markdown, rows, troubles  # noqa: PLC0415

    if not outcomes:
        return
    if summary is not None:
        summary.write(markdown(outcomes, seconds))
    if output.as_json:
        return
    output.line("")
    table = [HEADS, *rows(outcomes)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        output.line("  ".join(cells).rstrip())
    for trouble in troubles(outcomes):
        print(trouble, file=sys.stderr)
