"""`forbear simulate`: what policies do to a receiver in trouble, before they do it to a real one.

Owns the command's options, the order of things, and where each is printed; what happens is `infra.simulate`'s.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli import durations, pictures
from infra.cli.command import Session
from infra.cli.errors import CliError
from infra.cli.output import Output
from infra.cli.presets import File, read
from infra.cli.stopping import stopped_by_any_signal

if TYPE_CHECKING:
    from forbear.policy.presets import Preset
    from infra.simulate.scenarios import Scenario
    from infra.simulate.series import Run

# How often progress is told, in seconds: on a terminal, and elsewhere.
_TOLD_EVERY_S = 0.2
_LOGGED_EVERY_S = 10.0


class SimulationFailed(CliError):
    """The simulation's own database is at fault."""


def simulate(
    session: Session,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[SCENARIO]",
            help="storm, metastable, outage or day. Left out, or changed: what the options describe.",
        ),
    ] = None,
    *,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME|FILE",
            help="A preset, or a JSON file with a policy. Again for each to compare.",
            show_default=False,
        ),
    ] = None,
    presets: File = None,
    rate: Annotated[
        float | None, typer.Option(min=0.001, max=10_000, help="Events a second, on average.", show_default=False)
    ] = None,
    duration: Annotated[str | None, typer.Option(metavar="DURATION", help="For how long: 30m, 24h.")] = None,
    outage: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LENGTH@START:MODE",
            help="When the receiver is out, and how: 10m@5m:refuse, 10s@30s:hang, 1h@2h:503, or 1h@2h:503:60s with a "
            "Retry-After. Again for each.",
            show_default=False,
        ),
    ] = None,
    capacity: Annotated[
        float | None,
        typer.Option(min=0.001, help="Requests a second that the receiver can do.", show_default=False),
    ] = None,
    latency: Annotated[
        str | None, typer.Option(metavar="DURATION", help="What an answer takes besides: 0.05s.")
    ] = None,
    errors: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="The share of requests that are answered with 500.", show_default=False),
    ] = None,
    throttle: Annotated[
        str | None,
        typer.Option(
            metavar="RATE[:DURATION]",
            help="Requests a second beyond which it answers 429, and the Retry-After with that: 20:30s.",
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="The timeout of an attempt, whatever the policies say: 1s to 30s."),
    ] = None,
    step: Annotated[str | None, typer.Option(metavar="DURATION", help="The interval that is counted in: 1m.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same numbers.")] = 1,
    plot: Annotated[str | None, typer.Option(metavar="FILE", help="Draw into a file: .svg or .png.")] = None,
    draw: Annotated[
        bool | None,
        typer.Option("--draw/--no-draw", help="Draw on the terminal; left out, if it is one.", show_default=False),
    ] = None,
) -> None:
    """Simulate policies: the database's own claims and the policies' own decisions, in virtual time.

    Each policy meets the same arrivals at the same receiver, which is simulated, too. It needs no stack: a private
    database is started for it and deleted again.
    """
    from infra.cli import policies  # noqa: PLC0415 - the model of policies takes 0.2 s that help need not cost
    from infra.simulate import asking  # noqa: PLC0415

    scenario = asking.scenario(
        name,
        asking.Asked(
            rate=rate,
            duration=duration,
            outages=tuple(outage or ()),
            capacity=capacity,
            latency=latency,
            errors=errors,
            throttle=throttle,
            timeout=timeout,
            step=step,
        ),
    )
    chosen = policies.chosen(policy or scenario.policies, read(presets))
    if plot is not None:
        pictures.check(plot)
    output = session.output
    runs = _run(scenario, chosen, seed, output)
    _print(scenario, runs, output)
    draw = not output.as_json and (sys.stdout.isatty() if draw is None else draw)
    if draw or plot is not None:
        _show(scenario, runs, output, draw=draw, plot=plot)


def _run(scenario: Scenario, chosen: Sequence[Preset], seed: int, output: Output) -> list[Run]:
    """Run each policy, in a private database."""
    import psycopg  # noqa: PLC0415

    from forbear.db import Unavailable  # noqa: PLC0415
    from infra.local.postgres import PostgresError  # noqa: PLC0415
    from infra.simulate.driver import simulate as simulated  # noqa: PLC0415
    from infra.simulate.server import private_server  # noqa: PLC0415

    try:
        with stopped_by_any_signal(), _without_warnings(), private_server() as fresh:
            return [
                asyncio.run(
                    simulated(
                        fresh(),
                        scenario,
                        preset.policy,
                        name=preset.name,
                        seed=seed,
                        progress=_telling(preset.name, scenario, output),
                    )
                )
                for preset in chosen
            ]
    except PostgresError as error:
        raise SimulationFailed(str(error)) from error
    except (Unavailable, psycopg.Error) as error:
        raise SimulationFailed(f"the simulation's database failed: {' '.join(str(error).split())}") from error


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep to itself what Forbear's own code would log of an endpoint; it is told with the run."""
    logger = logging.getLogger("forbear")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def _telling(name: str, scenario: Scenario, output: Output) -> Callable[[float], None]:
    """What tells how far a run is, now and then."""
    on_terminal = sys.stderr.isatty()
    every_s = _TOLD_EVERY_S if on_terminal else _LOGGED_EVERY_S
    told = time.monotonic()

    def tell(reached_s: float) -> None:
        nonlocal told
        over = reached_s >= scenario.duration_s
        if output.as_json or (time.monotonic() - told < every_s and not (over and on_terminal)):
            return
        told = time.monotonic()
        line = f"{name}: {durations.written(reached_s)} of {durations.written(scenario.duration_s)}"
        if on_terminal:
            print(f"\r\033[K{'' if over else line}", end="", file=sys.stderr, flush=True)
        elif not over:
            output.remark(line)

    return tell


def _print(scenario: Scenario, runs: Sequence[Run], output: Output) -> None:
    from infra.simulate.showing import about, table  # noqa: PLC0415

    if output.as_json:
        for run in runs:
            output.document(run.document())
        return
    output.line(f"{scenario.name}: {scenario.summary}")
    output.line(f"{about(scenario)}; seed {runs[0].seed}")
    output.line("")
    for line in table(runs):
        output.line(line)
    for run in runs:
        if run.disabled is not None:
            output.line(f"{run.policy}: the endpoint was disabled: {run.disabled}")
    output.line("")


def _show(scenario: Scenario, runs: Sequence[Run], output: Output, *, draw: bool, plot: str | None) -> None:
    from infra.simulate.showing import picture  # noqa: PLC0415

    figure = picture(scenario, runs)
    if draw:
        pictures.draw(figure)
    if plot is not None:
        pictures.write(figure, plot)
        output.remark(f"drawn into {plot}")
