"""`forbear deliveries`: where each one stands, what its attempts saw, and how to cancel it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import batched
from typing import TYPE_CHECKING, Annotated

import typer

from infra.cli.command import ListByDefault, Session, command
from infra.cli.errors import UsageError
from infra.cli.options import Endpoint, Limit, Reason, Since, Status, Tenant, Type, Until, chosen
from infra.cli.output import Columns, Document, Output, content, counted

if TYPE_CHECKING:
    from infra.cli.client import Client

app = typer.Typer(cls=ListByDefault, help="Deliveries: read and cancel. Without a command: list.")

_BODY_CHARS = 400
_CANCEL_AT_ONCE = 1000  # the most that the API takes in one call


def standing(delivery: Document) -> str:
    """Where a delivery stands: its status, with the reason if it is dead, with what holds it if something does."""
    held = [hold["by"] for hold in delivery["held"]]
    about = delivery["reason"] or (held and f"held: {', '.join(held)}")
    return f"{delivery['status']} ({about})" if about else str(delivery["status"])


LIST: Columns = {
    "id": "id",
    "status": standing,
    "type": "type",
    "attempts": "attempt_count",
    "due/ended": lambda delivery: delivery["ended_at"] or delivery["due_at"],
    "endpoint": "endpoint_id",
}
FACTS: Columns = {
    "id": "id",
    "status": standing,
    "event": "event_id",
    "type": "type",
    "tenant": "tenant",
    "endpoint": "endpoint_id",
    "bytes": "payload_bytes",
    "generation": "generation",
    "replay": "replay_id",
    "made": "created_at",
    "next": "due_at",
    "ended": "ended_at",
    "attempts": "attempt_count",
}


@command(app, "list")
def list_(
    session: Session,
    *,
    tenant: Tenant = None,
    endpoint: Endpoint = None,
    status: Status = None,
    reason: Reason = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 100,
) -> None:
    """List deliveries, the newest first."""
    query = chosen(
        tenant=tenant, endpoint=endpoint, status=status, reason=reason, type=event_type, since=since, until=until
    )
    with session.api() as api:
        session.output.items(api.pages("/v1/deliveries", query, limit), LIST, "there is no such delivery")


@command(app, "show")
def show(
    session: Session,
    delivery: Annotated[str, typer.Argument(metavar="ID", help="The delivery's id (dlv_…).", show_default=False)],
) -> None:
    """Show a delivery with its attempts."""
    with session.api() as api:
        document = api.call("GET", "/v1/deliveries/{}", delivery)
    session.output.facts(document, FACTS)
    if not session.output.as_json:
        for attempt in reversed(document["attempts"]):
            _print_attempt(session.output, attempt)
        if document["next"] is not None:
            session.output.remark(
                f"the latest {len(document['attempts'])} of {document['attempt_count']} attempts are shown"
            )


@command(app, "cancel")
def cancel(
    session: Session,
    deliveries: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Deliveries (dlv_…).", show_default=False)
    ] = None,
    *,
    tenant: Tenant = None,
    endpoint: Endpoint = None,
    event_type: Type = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Cancel unfinished deliveries: those named, or all that the options choose."""
    filter_ = chosen(tenant=tenant, endpoint=endpoint, type=event_type, since=since, until=until)
    if bool(deliveries) == bool(filter_):
        raise UsageError("say what to cancel: either the ids of deliveries, or options such as --endpoint")
    cancelled, unchanged, unknown = 0, 0, list[str]()
    with session.api() as api:
        for answer in _cancel(api, deliveries or [], filter_):
            cancelled += answer["cancelled"]
            unchanged += answer["unchanged"]
            unknown += answer["unknown"]
    sentence = f"cancelled {counted(cancelled, 'delivery', 'deliveries')}"
    sentence += f"; {unchanged} had ended already" if unchanged else ""
    sentence += f"; there is no {', '.join(unknown)}" if unknown else ""
    session.output.done(sentence, {"cancelled": cancelled, "unchanged": unchanged, "unknown": unknown})
    if unknown:
        raise typer.Exit(1)


def _cancel(api: Client, deliveries: list[str], filter_: dict[str, str]) -> Iterator[Document]:
    """Cancel in as many calls as it takes; gives their answers."""
    path = "/v1/deliveries/cancel"
    for some in batched(deliveries, _CANCEL_AT_ONCE, strict=False):
        yield api.call("POST", path, document={"deliveries": some})
    cursor = None
    while filter_:
        answer = api.call("POST", path, document={"filter": filter_} | ({"cursor": cursor} if cursor else {}))
        yield answer
        cursor = answer["next"]
        if cursor is None:
            return


def _print_attempt(output: Output, attempt: Document) -> None:
    """An attempt: a line with what came of it, the rest below."""
    parts = [
        f"#{attempt['number']}",
        attempt["started_at"],
        f"{attempt['status'] or attempt['error'] or 'no answer'} in {attempt['latency_ms']:.0f} ms",
        attempt["verdict"] + (" (too late to count)" if attempt["late"] else ""),
    ]
    if attempt["generation"] > 1:
        parts.append(f"generation {attempt['generation']}")
    if attempt["retry_after_s"] is not None:
        honoured = "honoured" if attempt["retry_after_honoured"] else "not honoured"
        parts.append(f"Retry-After {attempt['retry_after_s']:g} s, {honoured}")
    if attempt["next_due_at"]:
        parts.append(f"next {attempt['next_due_at']}")
    output.line("  ".join(parts))
    to = f"{attempt['url']} at {attempt['address']}" if attempt["address"] else attempt["url"]
    for detail in (to, attempt["error_detail"], content(attempt["response_body"], _BODY_CHARS)):
        if detail:
            output.block(detail)
