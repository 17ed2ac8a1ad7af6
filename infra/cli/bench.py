"""`forbear bench`: how fast this is, measured so that anyone can repeat it.

Owns the command's options, what is shown, and the exit code; what is measured is `infra.bench`'s.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.command import Session
from infra.cli.errors import CliError, UsageError
from infra.cli.output import Output
from infra.cli.stopping import stopped_by_any_signal

if TYPE_CHECKING:
    from infra.bench.figure import Figure
    from infra.bench.machine import About
    from infra.bench.world import Scale


class BenchFailed(CliError):
    """Something could not be measured."""


class CountedWorse(CliError):
    """A figure that is counted and not timed is worse than the accepted one."""


def bench(
    session: Session,
    groups: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP]...", help="Which groups of figures. Left out: all of them.")
    ] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes and short times: two minutes in all.")] = False,
    repeats: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="Repeats of each figure. Left out: 5, or 3 if quick.", show_default=False),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Fail if what is counted (statements, rows, WAL, imports) got worse.")
    ] = False,
    accept: Annotated[
        bool, typer.Option("--accept", help="Take what is counted as what --check compares with.")
    ] = False,
    record: Annotated[bool, typer.Option("--record", help="Add the run to the results in docs/.")] = False,
    peers: Annotated[
        bool, typer.Option("--peers", help="Do the same work with other queue libraries, too; they are downloaded.")
    ] = False,
) -> None:
    """Measure the real handlers against a real PostgreSQL, durable, with a receiver on loopback.

    A private PostgreSQL and a receiver are started for it and deleted again. Each figure is a line of JSON; a table of
    all of them follows, unless --json is given. The groups: end-to-end, latency, flatness, isolation, claimers,
    cold-start, memory, cost.
    """
    from infra.bench.groups import GROUPS, PEERS  # noqa: PLC0415 - what a run needs takes time that help need not cost
    from infra.bench.world import Scale  # noqa: PLC0415

    if check and accept:
        raise UsageError("--check and --accept: choose one of the two")
    if quick and record:
        raise UsageError("--record: a quick run's figures are not worth keeping: leave --quick out")
    unknown = [name for name in groups or () if name not in GROUPS]
    if unknown:
        raise UsageError(f"there is no group {unknown[0]!r}: choose of {', '.join(GROUPS)}")
    if record:
        _can_record()
    chosen = [*dict.fromkeys(groups or GROUPS), *([PEERS] if peers else [])]
    about, figures, failed = _run(chosen, Scale.of(quick=quick, repeats=repeats), session.output)
    _tell(figures, session.output)
    if record:
        from infra.bench import history  # noqa: PLC0415 - matplotlib takes seconds

        history.record(history.FOLDER, history.Run(about, tuple(figures)))
        session.output.remark(f"added to {history.FOLDER}")
    _compare(figures, [name for name in chosen if name not in failed], check=check, accept=accept)
    if failed:
        raise BenchFailed(f"could not be measured: {', '.join(failed)}")


def _can_record() -> None:
    from infra.bench.history import FOLDER  # noqa: PLC0415

    if not FOLDER.parent.is_dir():
        raise UsageError(f"--record: there is no {FOLDER.parent}: run this in a checkout of the project")


def _run(chosen: Sequence[str], scale: Scale, output: Output) -> tuple[About, list[Figure], list[str]]:
    """Measure, printing each figure. Gives what the run was, the figures, and the groups that failed."""
    from dataclasses import asdict  # noqa: PLC0415

    from infra.bench.machine import about  # noqa: PLC0415
    from infra.bench.receiver import ReceiverError  # noqa: PLC0415
    from infra.bench.runner import Failed, measure  # noqa: PLC0415
    from infra.bench.showing import document, failure  # noqa: PLC0415
    from infra.bench.world import World  # noqa: PLC0415
    from infra.local.postgres import PostgresError  # noqa: PLC0415

    figures: list[Figure] = []
    failed: list[str] = []
    try:
        with stopped_by_any_signal(), World() as world, closing(measure(world, chosen, scale)) as measured:
            run = about(world, scale)
            output.document({"run": asdict(run)})
            for one in measured:
                if isinstance(one, Failed):
                    failed.append(one.group)
                    output.document(failure(one))
                    print(one.details, file=sys.stderr)
                else:
                    figures.append(one)
                    output.document(document(one))
    except (PostgresError, ReceiverError) as error:
        raise BenchFailed(str(error)) from error
    return run, figures, failed


def _tell(figures: Sequence[Figure], output: Output) -> None:
    from infra.bench.showing import table  # noqa: PLC0415

    if output.as_json or not figures:
        return
    output.line("")
    for line in table(figures):
        output.line(line)


def _compare(figures: Sequence[Figure], groups: Sequence[str], *, check: bool, accept: bool) -> None:
    from infra.bench import counted  # noqa: PLC0415

    if accept:
        counted.accept(figures, groups, counted.FILE)
    elif check and (worse := counted.problems(figures, groups, counted.FILE)):
        raise CountedWorse("; ".join(worse))
