"""`forbear cost`: what a month costs in AWS, part by part, and from where on hosted services cost more.

Owns the command's options and where each thing is printed; what things cost is `infra.cost`'s.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli import pictures
from infra.cli.command import Session
from infra.cli.errors import UsageError

if TYPE_CHECKING:
    from infra.config import StackConfig

_NUMBER = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?)(k|M|G)?")
_TIMES = {"k": 1e3, "M": 1e6, "G": 1e9}
_MOST_EVENTS = 1e11
_SLOWEST_MS = 30_000


def cost(
    session: Session,
    *,
    events_per_month: Annotated[
        str, typer.Option(metavar="N", help="Events posted: 250000, 250k, 10M.", show_default=False)
    ],
    fan_out: Annotated[float, typer.Option(min=0, max=1000, help="Deliveries of an event, on average.")] = 1,
    payload: Annotated[int, typer.Option(min=0, max=1 << 20, metavar="BYTES", help="Size of an event.")] = 1000,
    retries: Annotated[float, typer.Option(min=0, max=100, help="Retries of a delivery, on average.")] = 0.02,
    receiver: Annotated[
        float, typer.Option(min=0, max=_SLOWEST_MS, metavar="MS", help="What a receiver takes to answer.")
    ] = 200,
    hours: Annotated[
        float, typer.Option(min=0.01, max=24, help="Hours of a day in which the events come, evenly.")
    ] = 24,
    batch: Annotated[int, typer.Option(min=1, max=500, help="Events in a request.")] = 1,
    profile: Annotated[
        str | None,
        typer.Option(help="small or production. Left out: what forbear.toml says, or small.", show_default=False),
    ] = None,
    knobs: Annotated[
        list[str] | None,
        typer.Option(
            "--context",
            "-c",
            metavar="KNOB=VALUE",
            help="A knob of the stack, as cdk deploy takes it. Again for each.",
            show_default=False,
        ),
    ] = None,
    region: Annotated[str, typer.Option(help="Whose prices.")] = "us-east-1",
    plot: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw the cost over the volume: .svg or .png.", show_default=False),
    ] = None,
) -> None:
    """Reckon a month's bill in AWS, and compare it with hosted services.

    From measured CPU times and dated list prices; docs/cost.md says what is in it and what is not.
    """
    from infra.cost import prices, showing  # noqa: PLC0415 - the stack's model takes time that help need not cost
    from infra.cost.awake import Load  # noqa: PLC0415
    from infra.cost.breakeven import cheaper  # noqa: PLC0415
    from infra.cost.hosted import PLANS  # noqa: PLC0415
    from infra.cost.model import bill  # noqa: PLC0415

    if region != prices.REGION:
        raise UsageError(f"--region: the prices of {region!r} are not known here, only those of {prices.REGION}")
    if plot is not None:
        pictures.check(plot)
    load = Load(
        events=_events(events_per_month),
        fan_out=fan_out,
        payload_bytes=payload,
        retries=retries,
        receiver_s=receiver / 1000,
        hours_a_day=hours,
        batch=batch,
    )
    config = _config(profile, knobs or [])
    month = bill(load, config)
    spans = cheaper(load, config, PLANS)
    output = session.output
    if output.as_json:
        output.document(showing.document(month, PLANS, spans))
    else:
        for line in showing.lines(month, PLANS, spans):
            output.line(line)
    if plot is not None:
        pictures.write(showing.picture(month, PLANS), plot)
        output.remark(f"drawn into {plot}")


def _events(given: str) -> float:
    found = _NUMBER.fullmatch(given.strip())
    events = float(found[1]) * _TIMES.get(found[2] or "", 1) if found else math.nan
    if not 0 <= events <= _MOST_EVENTS:
        raise UsageError(f"--events-per-month: {given!r} is no number of events: write 250000, 250k, 10M or the like")
    return events


def _config(profile: str | None, given: list[str]) -> StackConfig:
    from infra.config import InvalidConfig, StackConfig  # noqa: PLC0415

    context: dict[str, str] = {} if profile is None else {"profile": profile}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key:
            raise UsageError(f"--context: {one!r} is no KNOB=VALUE")
        context[key] = value
    try:
        return StackConfig.read(context, Path.cwd())
    except InvalidConfig as error:
        raise UsageError(str(error)) from error
