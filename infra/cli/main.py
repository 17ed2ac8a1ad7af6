"""The `forbear` command: its global options and its commands, put together.

Imports are kept light here and in the commands' modules: help and a mistyped option answer at once. What takes time
(httpx, botocore, rich, uvicorn) is imported when it is used.
"""

from __future__ import annotations

from typing import Annotated

import typer

from forbear import __version__
from infra.cli import deliveries, endpoints, events, holding, keys, replay
from infra.cli.bench import bench
from infra.cli.command import Session, command
from infra.cli.cost import cost
from infra.cli.listen import listen
from infra.cli.output import Output
from infra.cli.presets import presets
from infra.cli.schedule import schedule
from infra.cli.send import send
from infra.cli.simulate import simulate
from infra.cli.target import Given
from infra.cli.torture import torture
from infra.cli.up import up

# Without rich, whose help and error boxes cost three times what all else does.
app = typer.Typer(name="forbear", no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"forbear {__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    *,
    url: Annotated[
        str | None,
        typer.Option(envvar="FORBEAR_URL", help="Where the API is. Left out: the stack that `forbear up` runs here."),
    ] = None,
    replay_url: Annotated[
        str | None, typer.Option(envvar="FORBEAR_REPLAY_URL", help="Where the replay function's URL is.")
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            envvar="FORBEAR_API_KEY",
            metavar="fbk_…",
            help="An API key, to be sent and nothing signed. Better in the environment: others see command lines.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one document a line; errors too.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Deliver webhooks, with restraint.

    Requests to a deployed stack carry the API key, or else are signed with the AWS credentials that are found in the
    usual places; those to this machine need neither. Exit codes: 0 done, 1 refused or not reachable,
    2 the command line is not right.
    """
    context.obj = Session(Given(url, replay_url, api_key), Output(as_json))


app.command("up")(up)
command(app, "send")(send)
command(app, "listen")(listen)
app.add_typer(endpoints.app, name="endpoints")
app.add_typer(events.app, name="events")
app.add_typer(deliveries.app, name="deliveries")
app.add_typer(replay.app, name="replay")
app.add_typer(holding.tenants, name="tenants")
app.add_typer(keys.app, name="keys")
command(app, "pause")(holding.pause)
command(app, "resume")(holding.resume)
command(app, "presets")(presets)
command(app, "schedule")(schedule)
command(app, "simulate")(simulate)
command(app, "torture")(torture)
command(app, "bench")(bench)
command(app, "cost")(cost)


def run() -> None:
    """The console entry point."""
    app(prog_name="forbear")
