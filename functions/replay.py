"""The replay function, behind a URL of its own and the HTTP API: puts back what has ended, shows progress, cancels."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel, ValidationError

from forbear import replay_progress, replays
from forbear.api import ApiRequest, ApiResponse, Operation, invalid, respond
from forbear.bodies import parse_body
from forbear.db import Database, Target
from forbear.models.replays import ReplayIn, ReplayList, ReplayOne, ReplayQuery, ReplayScope
from forbear.settings import settings
from forbear.waking import prepare, wake


@cache
def database() -> Database:
    """The connection of this execution environment."""
    return Database(Target.of(settings()), while_waking=lambda: prepare(settings()))


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer a request of the function URL or the HTTP API (payload format 2.0)."""
    return respond(event, OPERATIONS, context, database)


def post(request: ApiRequest) -> ApiResponse:
    """Replay, or count what would be."""
    tenant = _query(ReplayScope, request.query).tenant
    order = parse_body(ReplayIn, request.body)
    if order.filter is not None:
        request.caller.hold(order.filter.tenant)
    if order.dry_run:
        return ApiResponse(200, replays.dry_run(database(), order, tenant))
    accepted = replays.submit(database(), order, tenant)
    if accepted.matched or accepted.ended_at is None:
        wake(database(), settings())
    return ApiResponse(202, accepted)


def get(request: ApiRequest) -> ApiResponse:
    """Show a replay's progress, or the newest replays."""
    query = _query(ReplayQuery, request.query)
    if query.id is not None:
        return ApiResponse(200, replay_progress.read(database(), query.id, query.tenant))
    return ApiResponse(200, ReplayList(items=replay_progress.newest(database(), query.limit, query.tenant)))


def delete(request: ApiRequest) -> ApiResponse:
    """Cancel a replay: 200 when that is done, 202 while it goes on."""
    query = _query(ReplayOne, request.query)
    cancelled = replays.cancel(database(), query.id, query.tenant)
    if cancelled.ended_at is not None:
        return ApiResponse(200, cancelled)
    wake(database(), settings())
    return ApiResponse(202, cancelled)


# By method for the function URL, by route key for the HTTP API.
OPERATIONS: dict[str, Operation] = {"POST": post, "GET": get, "DELETE": delete}
OPERATIONS |= {f"{method} /v1/replays": operation for method, operation in OPERATIONS.items()}


def _query[M: BaseModel](model: type[M], query: Mapping[str, str]) -> M:
    try:
        return model.model_validate(query)
    except ValidationError as error:
        raise invalid(error) from error
