"""The manage function: endpoints, deliveries, events and pauses, as its owners read and change them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

from forbear import __version__
from forbear.api import ApiRequest, ApiResponse, Operation, respond
from forbear.db import Database, Target
from forbear.manage import cancelling, deliveries, endpoints, events, keys, pauses, presets, secrets, sending
from forbear.manage.backend import Backend
from forbear.models.readings import Health
from forbear.policy.presets import with_own
from forbear.settings import InvalidSettings, settings
from forbear.waking import prepare


@cache
def database() -> Database:
    """The connection of this execution environment."""
    return Database(Target.of(settings()), while_waking=lambda: prepare(settings()))


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer a request of the HTTP API (payload format 2.0)."""
    return respond(event, OPERATIONS, context, database)


def health(_request: ApiRequest) -> ApiResponse:
    """Say that this function runs, without touching the database: whoever asks must not keep that awake."""
    return ApiResponse(200, Health(status="ok", version=__version__), {"cache-control": "no-store"})


def openapi(_request: ApiRequest) -> ApiResponse:
    """The API's description."""
    from forbear.openapi import document  # noqa: PLC0415 - it knows every model, and few ask for it

    return ApiResponse(200, document())


def _with_backend(operation: Callable[[Backend, ApiRequest], ApiResponse]) -> Operation:
    return lambda request: operation(Backend(database(), settings()), request)


OPERATIONS: dict[str, Operation] = {
    "GET /v1/health": health,
    "GET /v1/openapi.json": openapi,
} | {
    key: _with_backend(operation)
    for key, operation in {
        "POST /v1/endpoints": endpoints.create,
        "GET /v1/endpoints": endpoints.list_some,
        "GET /v1/endpoints/{id}": endpoints.read,
        "PATCH /v1/endpoints/{id}": endpoints.change,
        "DELETE /v1/endpoints/{id}": endpoints.delete,
        "POST /v1/endpoints/{id}/pause": endpoints.pause,
        "POST /v1/endpoints/{id}/resume": endpoints.resume,
        "POST /v1/endpoints/{id}/enable": endpoints.enable,
        "POST /v1/endpoints/{id}/reset-breaker": endpoints.reset_breaker,
        "GET /v1/endpoints/{id}/secret": secrets.reveal,
        "POST /v1/endpoints/{id}/rotate-secret": secrets.rotate,
        "POST /v1/endpoints/{id}/test": sending.send_test,
        "POST /v1/endpoints/{id}/backfill": sending.backfill,
        "GET /v1/presets": presets.list_all,
        "POST /v1/tenants/{tenant}/pause": pauses.pause_tenant,
        "POST /v1/tenants/{tenant}/resume": pauses.resume_tenant,
        "POST /v1/pause": pauses.pause_everything,
        "POST /v1/resume": pauses.resume_everything,
        "GET /v1/deliveries": deliveries.list_some,
        "GET /v1/deliveries/{id}": deliveries.read,
        "POST /v1/deliveries/cancel": cancelling.cancel,
        "POST /v1/keys": keys.create,
        "GET /v1/keys": keys.list_some,
        "DELETE /v1/keys/{id}": keys.revoke,
        "GET /v1/events": events.list_some,
        "GET /v1/events/{id}": events.read,
    }.items()
}

# A file of presets that cannot be used is told when the function starts, not when somebody first names one. Settings
# that are missing are told to whoever needs them: health and the description do not.
with suppress(InvalidSettings):
    with_own(settings().presets)
