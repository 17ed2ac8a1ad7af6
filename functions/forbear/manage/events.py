"""Events as they are read: lists, and one with its payload and where its deliveries stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forbear.api import ApiRequest, ApiResponse, Problem
from forbear.db import Connection, statement
from forbear.ids import Prefix, encode
from forbear.manage import cursors
from forbear.manage.asking import path_id, read_query
from forbear.manage.backend import Backend
from forbear.manage.deliveries import page as page_of_deliveries
from forbear.manage.times import id_range, made_at
from forbear.models.queries import DeliveryQuery, EventQuery, Scope
from forbear.models.readings import EventOut, EventPage, EventReading

# A page with a filter looks at so many events before it ends short of its limit.
LOOK_AT = 10_000
DELIVERIES_SHOWN = 200


def list_some(backend: Backend, request: ApiRequest) -> ApiResponse:
    """A page of events, the newest first."""
    query = read_query(EventQuery, request)
    parameters = page_parameters(query)
    rows = backend.read(lambda connection: connection.execute(page_statement(query), parameters).fetchall())
    found = [row for row in rows if row["id"] is not None]
    items = found[: query.limit]
    last = items[-1]["id"] if len(found) > query.limit else rows[0]["floor"]
    page = EventPage(items=[EventOut(**_shown(row)) for row in items], next=None if last is None else _cursor(last))
    return ApiResponse(200, page)


def page_statement(query: EventQuery) -> str:
    """The statement that answers a query."""
    return statement("events_of_everybody" if query.tenant is None else "events_of_tenant") + statement("event_page")


def page_parameters(query: EventQuery) -> dict[str, Any]:
    """The parameters of that statement.

    Raises:
        Problem: 400, the cursor is none of this list's.
    """
    ids = id_range(query.since, query.until, cursors.read_id("v", query.cursor))
    return {
        "tenant": query.tenant,
        "type": query.type,
        "first": ids.first,
        "end": ids.end,
        "limit": query.limit,
        "look_at": query.limit + 1 if query.type is None else max(query.limit + 1, LOOK_AT),
    }


def read(backend: Backend, request: ApiRequest) -> ApiResponse:
    """An event with its payload, and where its deliveries stand."""
    event_id = path_id(request, Prefix.EVENT)
    tenant = read_query(Scope, request).tenant

    def work(connection: Connection) -> EventReading:
        row = connection.execute(statement("event"), {"id": event_id, "tenant": tenant}, binary=True).fetchone()
        if row is None:
            raise Problem(404, f"there is no event {encode(Prefix.EVENT, event_id)}")
        deliveries = page_of_deliveries(connection, DeliveryQuery(event=event_id, limit=DELIVERIES_SHOWN))
        return EventReading(**_shown(row), payload=row["payload"], deliveries=deliveries)

    return ApiResponse(200, backend.read(work))


def _cursor(last: Any) -> str:
    return cursors.write("v", last)


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in EventOut.model_fields if name != "created_at"} | {
        "created_at": made_at(row["id"])
    }
