"""Deliveries that somebody asks an endpoint to be given: a test event, and what it missed."""

from __future__ import annotations

from forbear.api import ApiRequest, ApiResponse
from forbear.bodies import parse_body
from forbear.db import statement
from forbear.ids import Prefix, encode
from forbear.manage.backend import Backend
from forbear.manage.endpoint_rows import endpoint_row, not_found, target
from forbear.models.endpoints import BackfillAccepted, BackfillIn, DeliveryAccepted
from forbear.replays import start_backfill


def send_test(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Send an endpoint an event of type forbear.test, through the queue like any other; 202."""
    endpoint_id, tenant = target(request)
    parameters = {"id": endpoint_id, "tenant": tenant, "shown_id": encode(Prefix.ENDPOINT, endpoint_id)}
    row = backend.change(
        lambda connection: connection.execute(statement("test_event"), parameters).fetchone(), repeatable=False
    )
    if row is None:
        raise not_found(endpoint_id)
    backend.wake()
    return ApiResponse(202, DeliveryAccepted(**row))


def backfill(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Give an endpoint the events that it did not get; 202, and the claimer works on."""
    endpoint_id, tenant = target(request)
    given = parse_body(BackfillIn, request.body)
    backend.read(lambda connection: endpoint_row(connection, endpoint_id, tenant))
    backfill_id = start_backfill(backend.database, endpoint_id, given.since, given.until, given.types)
    backend.wake()
    return ApiResponse(202, BackfillAccepted(id=backfill_id))
