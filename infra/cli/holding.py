"""`forbear tenants`, `forbear pause` and `forbear resume`: hold a tenant's deliveries, or everybody's."""

from __future__ import annotations

from typing import Annotated

import typer

from infra.cli.command import Session, command

tenants = typer.Typer(help="Tenants: pause and resume.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name.", show_default=False)]


@command(tenants, "pause")
def pause_tenant(session: Session, tenant: Name) -> None:
    """Hold all deliveries of a tenant until it is resumed; its events are still taken in."""
    with session.api() as api:
        answer = api.call("POST", "/v1/tenants/{}/pause", tenant)
    session.output.done(f"paused {tenant}", answer)


@command(tenants, "resume")
def resume_tenant(session: Session, tenant: Name) -> None:
    """Let a paused tenant's deliveries go."""
    with session.api() as api:
        answer = api.call("POST", "/v1/tenants/{}/resume", tenant)
    session.output.done(f"resumed {tenant}", answer)


def pause(session: Session) -> None:
    """Hold all deliveries of everybody until resumed; events are still taken in."""
    with session.api() as api:
        answer = api.call("POST", "/v1/pause")
    session.output.done("paused everything", answer)


def resume(session: Session) -> None:
    """Let everything go that `forbear pause` held."""
    with session.api() as api:
        answer = api.call("POST", "/v1/resume")
    session.output.done("resumed everything; what is paused for itself stays so", answer)
