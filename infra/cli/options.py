"""Options that several commands take, and the filter that they make."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from infra.cli import times

Tenant = Annotated[str | None, typer.Option(help="Only this tenant's.", show_default=False)]
Endpoint = Annotated[str | None, typer.Option(metavar="ID", help="Only to this endpoint (ep_…).", show_default=False)]
Status = Annotated[
    str | None,
    typer.Option(help="Only in this state: pending, leased, delivered, dead or cancelled.", show_default=False),
]
Reason = Annotated[
    str | None, typer.Option(help="Only dead for this reason: exhausted, gone, permanent, ….", show_default=False)
]
Type = Annotated[str | None, typer.Option("--type", help="Only events of this type.", show_default=False)]
Since = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="From then on: 2h, 1d12h, 2030-01-31, or RFC 3339.", show_default=False),
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Before then; written like --since.", show_default=False)
]
Limit = Annotated[int, typer.Option(min=1, help="How many at most.")]


def chosen(*, since: str | None = None, until: str | None = None, **members: str | None) -> dict[str, str]:
    """A filter as the API takes it: what was given of it, with times that do not depend on now any more.

    Raises:
        UsageError: A time is none.
    """
    now = datetime.now(UTC)
    spans = {"since": since and times.past(since, now), "until": until and times.past(until, now)}
    return {name: value for name, value in (members | spans).items() if value is not None}
