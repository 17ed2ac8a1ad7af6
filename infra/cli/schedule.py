"""`forbear schedule`: what a retry schedule means, before an outage shows it.

Owns the command's options and where each thing is printed; what is shown is `planning`'s.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli import durations, pictures
from infra.cli.command import Session
from infra.cli.errors import UsageError
from infra.cli.output import Columns, Document, Output
from infra.cli.presets import File, read

if TYPE_CHECKING:
    pass


def schedule(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PRESET|FILE]...",
            help="Presets, or JSON files (- is standard input) with a policy or only its schedule. "
            "Left out: the default, or with --first an exponential schedule from the options.",
        ),
    ] = None,
    *,
    presets: File = None,
    first: Annotated[
        str | None, typer.Option(metavar="DURATION", help="The first gap of an exponential schedule: 30s, 5m, 0.25s.")
    ] = None,
    multiplier: Annotated[
        float | None, typer.Option(help="By what each gap is multiplied to give the next.", show_default=False)
    ] = None,
    cap: Annotated[str | None, typer.Option(metavar="DURATION", help="The longest gap: 3h.")] = None,
    retries: Annotated[int | None, typer.Option(help="How many retries at most.", show_default=False)] = None,
    window: Annotated[
        str | None, typer.Option(metavar="DURATION", help="For how long after the first attempt: 3d.")
    ] = None,
    jitter: Annotated[
        str | None,
        typer.Option(
            metavar="KIND[:RATIO]", help="How gaps are spread: full, equal, proportional:0.2, additive:0.1 or none."
        ),
    ] = None,
    give_up: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Work out the fewest retries that last so long, for an exponential schedule."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="How many attempts of each at most.")] = 50,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw into a file: .svg or .png. Several schedules, one picture.")
    ] = None,
    draw: Annotated[
        bool | None,
        typer.Option("--draw/--no-draw", help="Draw on the terminal; left out, if it is one.", show_default=False),
    ] = None,
) -> None:
    """Show what a retry schedule means: its attempts, and when it gives up.

    Times count from the first attempt, as if attempts took no time and nothing else held them back.
    """
    from forbear.policy.plan import plan  # noqa: PLC0415 - the model of policies takes 0.2 s that help need not cost
    from forbear.policy.presets import DEFAULT  # noqa: PLC0415
    from infra.cli import planning, policies  # noqa: PLC0415

    said = {
        "base_s": _seconds("--first", first),
        "multiplier": multiplier,
        "cap_s": _seconds("--cap", cap),
        "retries": retries,
        "window_s": _seconds("--window", window),
        "jitter": None if jitter is None else planning.read_jitter(jitter),
    }
    fields = {field: value for field, value in said.items() if value is not None}
    give_up_s = _seconds("--give-up", give_up)
    if give_up_s is not None and (retries is not None or window is not None):
        raise UsageError(
            "--give-up works out the retries, and there is no window then: leave out --retries and --window"
        )
    if names or not (fields or give_up):
        chosen = policies.chosen(names or [DEFAULT], read(presets))
        asked = [planning.adjusted(one, fields, give_up_s) for one in chosen]
    else:
        asked = [planning.own(fields, give_up_s)]
    plans = [(one, plan(one.policy)) for one in asked]
    changed = (*fields, *(() if give_up_s is None else ("retries", "window_s")))
    output = session.output
    draw = not output.as_json and (sys.stdout.isatty() if draw is None else draw)
    figure = planning.picture([(one.name, planned) for one, planned in plans])
    if plot is not None:
        pictures.write(figure, plot)
    for one, planned in plans:
        _print(output, planning.document(one, planned, limit, changed), planning.FACTS, planning.ROWS)
    if draw:
        pictures.draw(figure)
    if plot is not None:
        output.remark(f"drawn into {plot}")


def _seconds(option: str, typed: str | None) -> float | None:
    return None if typed is None else durations.read(option, typed)


def _print(output: Output, document: Document, facts: Columns, rows: Columns) -> None:
    if output.as_json:
        output.document(document)
        return
    output.facts(document, facts)
    output.line("")
    output.items(document["attempts"], rows, "there is no attempt")
    if document["more"]:
        output.remark(f"{document['more']:,} more attempts are left out: --limit shows up to 10,000")
    output.line("")
