"""API keys: made, listed and revoked.

Owns their rows. What a key looks like is `api_keys`'s, what it may do `access`'s.
"""

from __future__ import annotations

from typing import Any

from forbear.access import keyring
from forbear.api import ApiRequest, ApiResponse, Problem
from forbear.api_keys import make
from forbear.bodies import parse_body
from forbear.db import Connection, statement
from forbear.ids import Prefix, encode
from forbear.manage import cursors
from forbear.manage.asking import field_problem, path_id, read_query
from forbear.manage.backend import Backend, one
from forbear.manage.times import HIGHEST_ID
from forbear.models.keys import ApiKeyCreated, ApiKeyIn, ApiKeyOut, ApiKeyPage
from forbear.models.queries import Nothing, Page

LIST = "k"


def create(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Make an API key; 201 with its token, which is shown here and nowhere else.

    Raises:
        Problem: 422, it would have expired already.
        KeyUnavailable: the data key cannot be had.
    """
    read_query(Nothing, request)
    given = parse_body(ApiKeyIn, request.body)
    mac = keyring(backend.database, backend.settings.key).mac

    def work(connection: Connection) -> tuple[str, dict[str, Any]]:
        made = one(connection, "SELECT forbear.new_id() AS id, forbear.now() AS now", {})
        if given.expires_at is not None and given.expires_at <= made["now"]:
            raise field_problem("expires_at", "it has passed: name a time to come, or leave it out")
        token, key = make(made["id"], mac)
        return token, one(connection, statement("create_api_key"), {**dict(given), "id": key.id, "hash": key.hash})

    token, row = backend.change(work, repeatable=False)
    return ApiResponse(201, ApiKeyCreated(**row, token=token), {"cache-control": "no-store"})


def list_some(backend: Backend, request: ApiRequest) -> ApiResponse:
    """A page of API keys."""
    query = read_query(Page, request)
    parameters = {
        "tenant": query.tenant,
        "below": cursors.read_id(LIST, query.cursor) or HIGHEST_ID,
        "limit": query.limit + 1,
    }
    rows = backend.read(lambda connection: connection.execute(statement("api_keys"), parameters).fetchall())
    page = rows[: query.limit]
    after = cursors.write(LIST, page[-1]["id"]) if len(rows) > query.limit else None
    return ApiResponse(200, ApiKeyPage(items=[ApiKeyOut(**row) for row in page], next=after))


def revoke(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Revoke an API key, which is refused from the next request on; 204.

    Raises:
        Problem: 404.
    """
    key_id = path_id(request, Prefix.API_KEY)
    read_query(Nothing, request)
    row = backend.change(
        lambda connection: connection.execute(statement("revoke_api_key"), {"id": key_id}).fetchone(), repeatable=True
    )
    if row is None:
        raise Problem(404, f"there is no API key {encode(Prefix.API_KEY, key_id)}")
    return ApiResponse(204)
