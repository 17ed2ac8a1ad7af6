"""`forbear keys`: API keys for producers and others outside AWS: make, list and revoke."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer

from infra.cli import times
from infra.cli.command import ListByDefault, Session, command
from infra.cli.options import Limit, Tenant
from infra.cli.output import Columns

app = typer.Typer(cls=ListByDefault, help="API keys: create, list, revoke. Without a command: list.")

LIST: Columns = {
    "id": "id",
    "name": "name",
    "scopes": "scopes",
    "tenant": "tenant",
    "made": "created_at",
    "expires": "expires_at",
    "revoked": "revoked_at",
}


@command(app, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="For people: who has it.", show_default=False)],
    *,
    scopes: Annotated[
        list[str],
        typer.Option("--scope", help="What it is for: ingest, read, manage or replay; again for more."),
    ],
    tenant: Annotated[
        str | None, typer.Option(help="The only tenant that it can see and change; left out: all.", show_default=False)
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="When it ends: 90d (from now), 2030-01-31, or RFC 3339.", show_default=False),
    ] = None,
) -> None:
    """Make an API key and print it; it is not shown again."""
    document = {
        "name": name,
        "scopes": scopes,
        **({} if tenant is None else {"tenant": tenant}),
        **({} if expires is None else {"expires_at": times.future(expires, datetime.now(UTC))}),
    }
    with session.api() as api:
        made = api.call("POST", "/v1/keys", document=document)
    # The key alone on standard output: so it can go into another command.
    session.output.done(made["token"], made)
    session.output.remark(f"{made['id']}: keep it now, it is not shown again. It goes into FORBEAR_API_KEY, or")
    session.output.remark("into the header Authorization: Bearer fbk_…")


@command(app, "list")
def list_(session: Session, *, tenant: Tenant = None, limit: Limit = 100) -> None:
    """List API keys, the newest first; revoked ones stay."""
    with session.api() as api:
        session.output.items(api.pages("/v1/keys", {"tenant": tenant}, limit), LIST, "there is no API key")


@command(app, "revoke")
def revoke(
    session: Session,
    key: Annotated[str, typer.Argument(metavar="ID", help="The key's id (key_…).", show_default=False)],
) -> None:
    """Revoke an API key, at once and for good."""
    with session.api() as api:
        api.call("DELETE", "/v1/keys/{}", key)
    session.output.done(f"revoked {key}", {"id": key, "revoked": True})
