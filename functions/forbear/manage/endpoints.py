"""Endpoints: create, list, read, change, delete, and what holds one of them.

Owns how a request changes an endpoint's rows. Knows nothing of how deliveries are sent.
"""

from __future__ import annotations

from typing import Any

from forbear import urls
from forbear.api import ApiRequest, ApiResponse
from forbear.bodies import parse_body
from forbear.db import Connection, statement
from forbear.guard import Guard
from forbear.ids import Prefix, encode
from forbear.manage import cursors
from forbear.manage.asking import field_problem, read_query
from forbear.manage.backend import Backend, one
from forbear.manage.circuits import COUNT_TO, reading_of
from forbear.manage.endpoint_rows import Row, endpoint_row, endpoints_of, lock, target, without_header_values
from forbear.manage.presets import policy_of
from forbear.manage.secrets import public_key_of
from forbear.manage.times import HIGHEST_ID
from forbear.models.endpoints import (
    EVERYTHING,
    EndpointCreated,
    EndpointIn,
    EndpointOut,
    EndpointPage,
    EndpointPatch,
    EndpointReading,
)
from forbear.models.queries import EndpointQuery, Nothing
from forbear.policy.model import Policy
from forbear.sealed import seal_headers, seal_secret
from forbear.settings import Settings
from forbear.signing import generate_secret

CANCEL_AT_ONCE = 1_000


def create(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Store a new endpoint; 201 with its secret."""
    read_query(Nothing, request)
    given = parse_body(EndpointIn, request.body)
    request.caller.hold(given.tenant)
    url = checked_url(given.url, backend.settings)
    policy = policy_of(given, Policy(), backend.presets)
    secret = given.secret or generate_secret()
    keyring = backend.keyring()

    def work(connection: Connection) -> Row:
        connection.execute(statement("tenant_row"), {"tenant": given.tenant})
        endpoint_id = one(connection, "SELECT forbear.new_id() AS id", {})["id"]
        headers = seal_headers(keyring, endpoint_id, given.headers)
        parameters = {
            "id": endpoint_id,
            "tenant": given.tenant,
            "secret": seal_secret(keyring, endpoint_id, secret),
            "paused": given.paused,
            **_columns(url, given.event_types, given.description, headers, policy),
        }
        connection.execute(statement("create_endpoint"), parameters)
        return endpoint_row(connection, endpoint_id, None)

    (made,) = endpoints_of([backend.change(work, repeatable=False)], backend)
    created = EndpointCreated(**dict(made), secret=secret, public_key=public_key_of(secret))
    return ApiResponse(201, created, {"location": f"/v1/endpoints/{encode(Prefix.ENDPOINT, made.id)}"})


def list_some(backend: Backend, request: ApiRequest) -> ApiResponse:
    """A page of a tenant's endpoints, or of everybody's."""
    query = read_query(EndpointQuery, request)
    parameters = {
        "id": None,
        "tenant": query.tenant,
        "below": cursors.read_id("e", query.cursor) or HIGHEST_ID,
        "limit": query.limit + 1,
    }
    rows = backend.read(lambda connection: connection.execute(statement("endpoints"), parameters).fetchall())
    page = rows[: query.limit]
    after = cursors.write("e", page[-1]["id"]) if len(rows) > query.limit else None
    return ApiResponse(200, EndpointPage(items=_as_read(endpoints_of(page, backend), request), next=after))


def read(backend: Backend, request: ApiRequest) -> ApiResponse:
    """An endpoint, and how it is doing."""
    endpoint_id, tenant = target(request)

    def work(connection: Connection) -> tuple[Row, Row]:
        row = endpoint_row(connection, endpoint_id, tenant)
        return row, one(connection, statement("traffic"), {"id": endpoint_id, "count_to": COUNT_TO})

    row, traffic = backend.read(work)
    (endpoint,) = _as_read(endpoints_of([row], backend), request)
    return ApiResponse(200, EndpointReading(**{**dict(endpoint), "circuit": reading_of(endpoint.circuit, traffic)}))


def change(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Change what is given; 200 with the endpoint."""
    endpoint_id, tenant = target(request)
    given = parse_body(EndpointPatch, request.body)
    fields = given.model_fields_set
    url = checked_url(given.url, backend.settings) if "url" in fields else None
    keyring = backend.keyring() if given.headers else None

    def work(connection: Connection) -> Row:
        row = lock(connection, endpoint_id, tenant)
        headers = row["headers"]
        if "headers" in fields:
            headers = keyring and seal_headers(keyring, endpoint_id, given.headers or {})
        policy = policy_of(given, Policy.model_validate(row["policy"]), backend.presets)
        connection.execute(
            statement("change_endpoint"),
            {
                "id": endpoint_id,
                "tenant": row["tenant"],
                **_columns(
                    url or row["url"],
                    given.event_types or EVERYTHING if "event_types" in fields else row["event_types"],
                    given.description or "" if "description" in fields else row["description"],
                    headers,
                    policy,
                ),
            },
        )
        return endpoint_row(connection, endpoint_id, tenant)

    changed = backend.change(work, repeatable=True)
    backend.wake()
    return ApiResponse(200, endpoints_of([changed], backend)[0])


def delete(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Delete an endpoint and cancel what is unfinished: some of it at once, the rest by the claimer; 204."""
    endpoint_id, tenant = target(request)

    def work(connection: Connection) -> int:
        lock(connection, endpoint_id, tenant)
        connection.execute(statement("delete_endpoint"), {"id": endpoint_id})
        row = one(connection, statement("cancel_deleted"), {"id": endpoint_id, "limit": CANCEL_AT_ONCE})
        return int(row["cancelled"])

    if backend.change(work, repeatable=False) == CANCEL_AT_ONCE:
        backend.wake()
    return ApiResponse(204)


def pause(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Hold an endpoint's deliveries until it is resumed."""
    return _switch(backend, request, "pause_endpoint", wake=False)


def resume(backend: Backend, request: ApiRequest) -> ApiResponse:
    """End a pause; what was held goes out."""
    return _switch(backend, request, "resume_endpoint", wake=True)


def enable(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Enable an endpoint that was disabled; what was held goes out."""
    return _switch(backend, request, "enable_endpoint", wake=True)


def reset_breaker(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Close the breaker as if nothing had failed, and end the wait that a Retry-After asked for."""
    return _switch(backend, request, "reset_breaker", wake=True)


def checked_url(text: str, settings: Settings) -> str:
    """An endpoint's URL as it is kept.

    Raises:
        Problem: 422, it is none, or leads where nothing may be sent.
    """
    try:
        url = urls.parse(text, allow_http=settings.allow_http, ports=frozenset(settings.ports) or None)
    except urls.InvalidUrl as error:
        raise field_problem("url", str(error)) from None
    refusal = Guard(settings.allow_networks).refusal_of_host(url.host)
    if refusal is not None:
        raise field_problem("url", f"webhooks cannot go there: {refusal}")
    return str(url)


def _as_read(endpoints: list[EndpointOut], request: ApiRequest) -> list[EndpointOut]:
    return endpoints if request.caller.key is None else [without_header_values(one) for one in endpoints]


def _switch(backend: Backend, request: ApiRequest, name: str, *, wake: bool) -> ApiResponse:
    endpoint_id, tenant = target(request)

    def work(connection: Connection) -> Row:
        connection.execute(statement(name), {"id": endpoint_id, "tenant": tenant})
        return endpoint_row(connection, endpoint_id, tenant)

    changed = backend.change(work, repeatable=True)
    if wake:
        backend.wake()
    return ApiResponse(200, endpoints_of([changed], backend)[0])


def _columns(url: str, event_types: list[str], description: str, headers: str | None, policy: Policy) -> dict[str, Any]:
    """An endpoint's settings as columns, headers sealed; the lane's copies of the policy's limits are made in SQL."""
    return {
        "url": url,
        "event_types": event_types,
        "description": description,
        "headers": headers,
        "policy": policy.model_dump_json(),
    }
