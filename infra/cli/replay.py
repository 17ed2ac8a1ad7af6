"""`forbear replay`: give finished deliveries another life, watch how far that is, and call it off."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from infra.cli import times
from infra.cli.command import Session, StartByDefault, command
from infra.cli.errors import UsageError
from infra.cli.options import Endpoint, Reason, Since, Tenant, Type, Until, chosen
from infra.cli.output import Columns, Document, counted

app = typer.Typer(
    cls=StartByDefault,
    help="Replays: start, read, cancel. Without a command: start, as in `forbear replay --endpoint ID --dry-run`.",
)

Id = Annotated[str, typer.Argument(metavar="ID", help="The replay's id (rpl_…).", show_default=False)]


def _takes(replay: Document) -> str:
    """What a replay or backfill takes, as the options that would choose it."""
    if replay["deliveries"] is not None:
        return f"{replay['deliveries']} by their ids"
    given = {name: value for name, value in replay["filter"].items() if value not in {None, False}}
    return " ".join("all" if value is True else f"{name}={value}" for name, value in given.items())


def _still_pending(replay: Document) -> str:
    pending = replay["still_pending"]
    return f"{pending['count']}{' or more' if pending['more'] else ''}"


LIST: Columns = {
    "id": "id",
    "kind": "kind",
    "state": "state",
    "matched": "matched",
    "made": "created_at",
    "takes": _takes,
}
FACTS: Columns = {
    "id": "id",
    "kind": "kind",
    "state": "state",
    "takes": _takes,
    "rate": "rate",
    "next step": "at",
    "matched": "matched",
    "unchanged": "unchanged",
    "cancelled": "cancelled",
    "still pending": _still_pending,
    "made": "created_at",
    "started": "started_at",
    "ended": "ended_at",
}


@command(app, "start")
def start(
    session: Session,
    *,
    deliveries: Annotated[
        list[str] | None, typer.Option("--delivery", metavar="ID", help="A delivery (dlv_…); again for more.")
    ] = None,
    tenant: Tenant = None,
    endpoint: Endpoint = None,
    everybody: Annotated[bool, typer.Option("--all", help="Of all tenants and endpoints.")] = False,
    event_type: Type = None,
    status: Annotated[
        str | None, typer.Option(help="How they ended: dead (if left out), delivered or cancelled.", show_default=False)
    ] = None,
    reason: Reason = None,
    since: Since = None,
    until: Until = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count them.")] = False,
    rate: Annotated[float | None, typer.Option(help="How many become due a second; left out: all at once.")] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="When to start: 2h (from now), or RFC 3339.", show_default=False)
    ] = None,
) -> None:
    """Replay deliveries: those named, or all that have ended and that the options choose."""
    filter_ = chosen(
        tenant=tenant, endpoint=endpoint, type=event_type, status=status, reason=reason, since=since, until=until
    ) | ({"all": True} if everybody else {})
    if bool(deliveries) == bool(filter_):
        raise UsageError("say what to replay: either --delivery, or options such as --endpoint, --tenant or --all")
    document = {
        **({"deliveries": deliveries} if deliveries else {"filter": filter_}),
        "dry_run": dry_run,
        **({} if rate is None else {"rate": rate}),
        **({} if at is None else {"at": times.future(at, datetime.now(UTC))}),
    }
    with session.replay() as function:
        answer = function.call("POST", session.given.replay_path, document=document)
    if dry_run:
        more = " or more" if answer["more"] else ""
        session.output.done(f"{_deliveries(answer['matched'])}{more} would be replayed{_left_out(answer)}", answer)
    else:
        sentence = f"{answer['id']} is {answer['state']}: {_deliveries(answer['matched'])} pending again"
        session.output.done(f"{sentence}{_left_out(answer)}; to follow it: forbear replay show {answer['id']}", answer)


@command(app, "show")
def show(session: Session, replay: Id) -> None:
    """Show how far a replay or backfill has come."""
    with session.replay() as function:
        session.output.facts(function.call("GET", session.given.replay_path, query={"id": replay}), FACTS)


@command(app, "list")
def list_(
    session: Session,
    tenant: Tenant = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="How many at most.")] = 20,
) -> None:
    """List replays and backfills, the newest first."""
    with session.replay() as function:
        found = function.call("GET", session.given.replay_path, query={"tenant": tenant, "limit": limit})
    session.output.items(found["items"], LIST, "there is no replay")


@command(app, "cancel")
def cancel(session: Session, replay: Id) -> None:
    """Cancel a replay or backfill, and what it put back and is still pending."""
    with session.replay() as function:
        answer = function.call("DELETE", session.given.replay_path, query={"id": replay})
    session.output.done(f"{answer['id']} is {answer['state']}: {_deliveries(answer['cancelled'])} cancelled", answer)


def _deliveries(number: int) -> str:
    return counted(number, "delivery", "deliveries")


def _left_out(answer: Document) -> str:
    """What a replay by ids leaves as it is, and why."""
    unchanged = [f"{one['id']} stays as it is ({one['because']})" for one in answer["unchanged_deliveries"]]
    unknown = [f"there is no {one}" for one in answer["unknown"]]
    return "".join(f"; {one}" for one in (*unchanged, *unknown))
