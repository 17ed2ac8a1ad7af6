"""`forbear events`: what producers posted, and where each delivery of it stands."""

from __future__ import annotations

from typing import Annotated

import typer

from infra.cli import deliveries
from infra.cli.command import ListByDefault, Session, command
from infra.cli.options import Limit, Since, Tenant, Type, Until, chosen
from infra.cli.output import Columns, content

app = typer.Typer(cls=ListByDefault, help="Events: read. Without a command: list.")

LIST: Columns = {
    "id": "id",
    "tenant": "tenant",
    "type": "type",
    "bytes": "payload_bytes",
    "made": "created_at",
}
FACTS: Columns = {**LIST, "content type": "content_type", "expires": "expires_at"}


@command(app, "list")
def list_(
    session: Session,
    *,
    tenant: Tenant = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
) -> None:
    """List events, the newest first."""
    query = chosen(tenant=tenant, type=event_type, since=since, until=until)
    with session.api() as api:
        session.output.items(api.pages("/v1/events", query, limit), LIST, "there is no such event")


@command(app, "show")
def show(
    session: Session,
    event: Annotated[str, typer.Argument(metavar="ID", help="The event's id (evt_…).", show_default=False)],
) -> None:
    """Show an event, its payload and its deliveries."""
    with session.api() as api:
        document = api.call("GET", "/v1/events/{}", event)
    session.output.facts(document, FACTS)
    if not session.output.as_json:
        session.output.block(content(document["payload"]))
        page = document["deliveries"]
        session.output.items(page["items"], deliveries.LIST, "it has no deliveries")
        if page["next"] is not None:
            session.output.remark(f"only the first {len(page['items'])} deliveries are shown")
