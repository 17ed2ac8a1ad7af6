"""One endpoint's rows: found by what a request names, locked, and read as the API shows them.

Owns what "there is no such endpoint" means: unknown, deleted, or another tenant's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from forbear.api import ApiRequest, Problem
from forbear.db import Connection, statement
from forbear.ids import Prefix, encode
from forbear.manage.asking import path_id, read_query
from forbear.manage.circuits import circuit_of
from forbear.manage.times import HIGHEST_ID
from forbear.models.endpoints import EndpointOut
from forbear.models.queries import Scope
from forbear.policy.model import Policy
from forbear.policy.presets import Preset, name_of


def target(request: ApiRequest) -> tuple[UUID, str | None]:
    """The endpoint that a request is about, and the tenant that it must be of, if one is named.

    Raises:
        Problem: 404, the id is none; 422, the query is not as it should be.
    """
    return path_id(request, Prefix.ENDPOINT), read_query(Scope, request).tenant


def lock(connection: Connection, endpoint_id: UUID, tenant: str | None) -> dict[str, Any]:
    """Take an endpoint in hand for the rest of a transaction. Gives its settings.

    Raises:
        Problem: 404.
    """
    row = connection.execute(statement("lock_endpoint"), {"id": endpoint_id, "tenant": tenant}).fetchone()
    if row is None:
        raise not_found(endpoint_id)
    return row


def not_found(endpoint_id: UUID) -> Problem:
    """The problem that there is no such endpoint, or no longer, or not of that tenant."""
    return Problem(404, f"there is no endpoint {encode(Prefix.ENDPOINT, endpoint_id)}")


def read_endpoint(
    connection: Connection, endpoint_id: UUID, tenant: str | None, known: Mapping[str, Preset]
) -> EndpointOut:
    """An endpoint as it is, its policy by its name if it is one of the known presets.

    Raises:
        Problem: 404.
    """
    parameters = {"id": endpoint_id, "tenant": tenant, "below": HIGHEST_ID, "limit": 1}
    row = connection.execute(statement("endpoints"), parameters).fetchone()
    if row is None:
        raise not_found(endpoint_id)
    return endpoint_of(row, known)


def endpoint_of(row: Mapping[str, Any], known: Mapping[str, Preset]) -> EndpointOut:
    """An endpoint from a row of the statement `endpoints`."""
    policy = Policy.model_validate(row["policy"])
    read: dict[str, Any] = {"preset": name_of(policy, known), "policy": policy, "circuit": circuit_of(row)}
    return EndpointOut(**{name: row[name] for name in EndpointOut.model_fields if name not in read}, **read)
