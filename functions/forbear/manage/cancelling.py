"""Cancelling deliveries that have not ended: by their ids, or by a filter.

Owns the steps that a large cancellation takes. Each is a transaction that holds one lane (by ids: those of these
deliveries), so the claimer is kept from a lane for milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from forbear.api import ApiRequest, ApiResponse, Problem
from forbear.bodies import parse_body
from forbear.db import Connection, statement
from forbear.ids import Prefix, encode
from forbear.manage import cursors
from forbear.manage.asking import read_query
from forbear.manage.backend import Backend, one
from forbear.manage.times import EPOCH, LOWEST_ID, IdRange, id_range
from forbear.models.deliveries import CancelFilter, CancelIn, Cancelled
from forbear.models.queries import Scope

STEP = 1_000
# A call ends after about so many, cancelled or looked at, and gives a cursor to go on with.
CANCEL_AT_MOST = 20_000
LOOK_AT_MOST = 100_000
# A step on a lane takes about as long as looking at so many, even if there is little.
LANE_COSTS = 50
# What is being settled is tried again; a settle takes milliseconds, so it is not being settled any more long before.
TRIES = 200
_MICROSECOND = timedelta(microseconds=1)


@dataclass(slots=True)
class _Position:
    """Where a cancellation by filter stands: the lane, and the last pending delivery looked at there."""

    lane: UUID = LOWEST_ID
    due_at: datetime = EPOCH
    delivery: UUID = LOWEST_ID

    @classmethod
    def read(cls, cursor: str | None) -> _Position:
        if cursor is None:
            return cls()
        lane, due_at, delivery = cursors.read("c", cursor, UUID, int, UUID)
        try:
            return cls(UUID(str(lane)), EPOCH + int(due_at) * _MICROSECOND, UUID(str(delivery)))
        except OverflowError:
            raise cursors.foreign() from None

    def write(self) -> str:
        return cursors.write("c", self.lane, (self.due_at - EPOCH) // _MICROSECOND, self.delivery)


def cancel(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Cancel deliveries; 200 with what became of them.

    Raises:
        Problem: 400, the cursor is none of this list's; 404, there is none of the deliveries; 422; 503, some are being
            settled and stay so.
    """
    tenant = read_query(Scope, request).tenant
    given = parse_body(CancelIn, request.body)
    if given.filter is None:
        return ApiResponse(200, _by_ids(backend, list(dict.fromkeys(given.deliveries or ())), tenant))
    request.caller.hold(given.filter.tenant)
    if given.filter.event is not None:
        return ApiResponse(200, _of_event(backend, given.filter.event, tenant))
    return ApiResponse(200, _by_filter(backend, given.filter, tenant, _Position.read(given.cursor)))


def _by_ids(backend: Backend, ids: Sequence[UUID], tenant: str | None) -> Cancelled:
    parameters = {"ids": ids, "tenant": tenant}

    def work(connection: Connection) -> tuple[int, int]:
        locked = connection.execute(statement("lock_lanes_of"), parameters).fetchall()
        lanes = [row["endpoint_id"] for row in locked]
        row = one(connection, statement("cancel_deliveries"), {**parameters, "lanes": lanes})
        return row["cancelled"], row["busy"]

    rows = backend.read(lambda connection: connection.execute(statement("known_deliveries"), parameters).fetchall())
    known = {row["id"] for row in rows}
    unknown = [one for one in ids if one not in known]
    if not known:
        shown = [encode(Prefix.DELIVERY, one) for one in unknown]
        raise Problem(404, "there is none of these deliveries", unknown=shown)
    cancelled = 0
    for _ in range(TRIES):
        now, busy = backend.change(work, repeatable=True)
        cancelled += now
        if not busy:
            break
    else:
        raise Problem(503, f"{busy} of them are being settled just now: try again", headers={"retry-after": "1"})
    return Cancelled(cancelled=cancelled, unchanged=len(known) - cancelled, unknown=unknown, next=None)


def _of_event(backend: Backend, event: UUID, tenant: str | None) -> Cancelled:
    parameters = {"event": event, "tenant": tenant, "limit": CANCEL_AT_MOST}
    rows = backend.read(lambda connection: connection.execute(statement("unfinished_of_event"), parameters).fetchall())
    if not rows:
        return Cancelled(cancelled=0, unchanged=0, unknown=[], next=None)
    return _by_ids(backend, [row["id"] for row in rows], tenant)


def _by_filter(backend: Backend, wanted: CancelFilter, tenant: str | None, position: _Position) -> Cancelled:
    if tenant is not None and wanted.tenant not in {None, tenant}:
        raise Problem(422, f"the filter names the tenant {wanted.tenant}, the query {tenant}: name one")
    scope = {"endpoint": wanted.endpoint, "tenant": wanted.tenant or tenant, "from": position.lane}
    rows = backend.read(lambda connection: connection.execute(statement("cancellable_lanes"), scope).fetchall())
    ids = id_range(wanted.since, wanted.until)
    cancelled = looked = tries = 0
    for lane in [row["endpoint_id"] for row in rows]:
        if lane != position.lane:
            position = _Position(lane)
        finished = False
        while not finished:
            if cancelled >= CANCEL_AT_MOST or looked >= LOOK_AT_MOST or tries >= TRIES:
                return Cancelled(cancelled=cancelled, unchanged=0, unknown=[], next=position.write())
            step = backend.change(_step(position, ids, wanted.type), repeatable=True)
            cancelled += step["cancelled"]
            if step["busy"]:
                tries += 1
                continue
            looked += max(step["looked"], LANE_COSTS)
            finished = step["looked"] < STEP
            if not finished:
                position = _Position(lane, step["due_at"], step["id"])
    return Cancelled(cancelled=cancelled, unchanged=0, unknown=[], next=None)


def _step(position: _Position, ids: IdRange, event_type: str | None) -> Callable[[Connection], dict[str, Any]]:
    parameters = {
        "endpoint": position.lane,
        "due_at": position.due_at,
        "id": position.delivery,
        "first": ids.first,
        "end": ids.end,
        "type": event_type,
        "limit": STEP,
    }

    def work(connection: Connection) -> dict[str, Any]:
        connection.execute(statement("lock_lane"), parameters)
        return one(connection, statement("cancel_step"), parameters)

    return work
