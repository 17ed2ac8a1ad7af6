"""Deliveries as they are read: lists, and one with its attempts.

Owns pages and what bounds them. Cancelling is its neighbour's matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from forbear.api import ApiRequest, ApiResponse, Problem
from forbear.db import Connection, statement
from forbear.ids import Prefix, encode
from forbear.manage import cursors
from forbear.manage.asking import path_id, read_query
from forbear.manage.backend import Backend
from forbear.manage.circuits import holds_of
from forbear.manage.times import id_range, made_at
from forbear.models.deliveries import AttemptOut, DeliveryOut, DeliveryPage, DeliveryReading
from forbear.models.queries import Attempts, DeliveryQuery
from forbear.states import FINISHED, DeliveryState

LIST = "d"
# A page with a filter looks at so many finished deliveries in all before it ends short of its limit.
LOOK_AT = 10_000
# Up to so many unfinished deliveries of the endpoints in question are sorted; when there are more, a page looks at so
# many of everybody's.
SORT_AT_MOST = 5_000
WALK_AT_MOST = 50_000
# With 16 KiB of body and 8 of headers each, these stay below Lambda's 6 MB even when JSON doubles every byte twice.
ATTEMPTS_A_PAGE = 40
_MORE_THAN_ANY = (1 << 31) - 1


def list_some(backend: Backend, request: ApiRequest) -> ApiResponse:
    """A page of deliveries, the newest first."""
    query = read_query(DeliveryQuery, request)
    return ApiResponse(200, backend.read(lambda connection: page(connection, query)))


def page(connection: Connection, query: DeliveryQuery) -> DeliveryPage:
    """Read a page of deliveries.

    Raises:
        Problem: 400, the cursor is none of this list's.
    """
    parameters = page_parameters(query)
    rows = connection.execute(page_statement(query), parameters).fetchall()
    floor = rows[0]["floor"]
    found = [row for row in rows if row["id"] is not None]
    items = found[: query.limit]
    last = items[-1]["id"] if len(found) > query.limit else floor
    return DeliveryPage(
        items=[_delivery(row) for row in items], next=None if last is None else cursors.write(LIST, last)
    )


def page_statement(query: DeliveryQuery) -> str:
    """The statement that answers a query: by an event, by endpoints, or by everybody's deliveries."""
    if query.event is not None:
        first_half = "deliveries_of_event"
    elif query.endpoint is not None or query.tenant is not None:
        first_half = "deliveries_of_endpoints"
    else:
        first_half = "deliveries_of_everybody"
    return statement(first_half) + statement("delivery_page")


def page_parameters(query: DeliveryQuery) -> dict[str, Any]:
    """The parameters of that statement.

    Raises:
        Problem: 400, the cursor is none of this list's.
    """
    # Only dead ones have a reason.
    status = query.status if query.reason is None else query.status or DeliveryState.DEAD
    ids = id_range(query.since, query.until, cursors.read_id(LIST, query.cursor))
    return {
        "endpoint": query.endpoint,
        "tenant": query.tenant,
        "event": query.event,
        "status": status,
        "reason": query.reason,
        "type": query.type,
        "first": ids.first,
        "end": ids.end,
        "since": _ended_since(max(ids.first, query.event or ids.first)),
        "want_ended": status is None or status in FINISHED,
        "want_unhappy": status in {DeliveryState.DEAD, DeliveryState.CANCELLED},
        "want_unfinished": status is None or status not in FINISHED,
        "leased": None if status is None or status in FINISHED else status is DeliveryState.LEASED,
        "look_at_ended": query.limit + 1 if status is None and query.type is None else LOOK_AT,
        "look_at_unfinished": query.limit + 1 if query.type is None else max(query.limit + 1, LOOK_AT),
        "limit": query.limit,
        "few": SORT_AT_MOST,
        "walk": WALK_AT_MOST,
    }


def read(backend: Backend, request: ApiRequest) -> ApiResponse:
    """A delivery with its attempts, the newest first."""
    delivery_id = path_id(request, Prefix.DELIVERY)
    query = read_query(Attempts, request)
    below = _MORE_THAN_ANY
    if query.cursor is not None:
        (number,) = cursors.read("a", query.cursor, int)
        below = min(int(number), _MORE_THAN_ANY)

    def work(connection: Connection) -> DeliveryReading:
        delivery = _by_id(connection, delivery_id, query.tenant)
        rows = connection.execute(
            statement("attempts"), {"id": delivery_id, "below": below, "limit": ATTEMPTS_A_PAGE + 1}
        ).fetchall()
        attempts = [AttemptOut(**row) for row in rows[:ATTEMPTS_A_PAGE]]
        after = cursors.write("a", attempts[-1].number) if len(rows) > ATTEMPTS_A_PAGE else None
        return DeliveryReading(**dict(delivery), attempts=attempts, next=after)

    return ApiResponse(200, backend.read(work))


def _by_id(connection: Connection, delivery_id: UUID, tenant: str | None) -> DeliveryOut:
    sql = statement("delivery_by_id") + statement("delivery_page")
    parameters = {
        "id": delivery_id,
        "since": _ended_since(delivery_id),
        "tenant": tenant,
        "status": None,
        "reason": None,
        "type": None,
        "limit": 1,
    }
    row = connection.execute(sql, parameters).fetchone()
    if row is None or row["id"] is None:
        raise Problem(404, f"there is no delivery {encode(Prefix.DELIVERY, delivery_id)}")
    return _delivery(row)


def _ended_since(made: UUID) -> datetime:
    """A time before which nothing has ended that was made with this id or a later one.

    An id's time and that of a statement can differ by what the statement takes, and by a clock that a test holds.
    """
    return made_at(made) - timedelta(minutes=1)


def _delivery(row: Mapping[str, Any]) -> DeliveryOut:
    return DeliveryOut(
        id=row["id"],
        event_id=row["event_id"],
        endpoint_id=row["endpoint_id"],
        tenant=row["tenant"],
        type=row["type"],
        status=row["state"],
        reason=row["reason"],
        generation=row["generation"],
        attempt_count=row["attempts"],
        payload_bytes=row["payload_bytes"],
        created_at=made_at(row["id"]),
        due_at=row["due_at"],
        ended_at=row["ended_at"],
        replay_id=row["replay_id"],
        held=holds_of(row) if row["state"] == DeliveryState.PENDING else [],
    )
