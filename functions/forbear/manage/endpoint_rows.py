"""Endpoints' rows: found by what a request names, locked, and read as the API shows them.

Owns what "there is no such endpoint" means: unknown, deleted, or another tenant's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from forbear.api import ApiRequest, Problem
from forbear.db import Connection, statement
from forbear.ids import Prefix, encode
from forbear.manage.asking import path_id, read_query
from forbear.manage.backend import Backend
from forbear.manage.circuits import circuit_of
from forbear.manage.times import HIGHEST_ID
from forbear.models.endpoints import EndpointOut
from forbear.models.queries import Scope
from forbear.policy.model import Policy
from forbear.policy.presets import Preset, name_of
from forbear.sealed import open_headers
from forbear.vault import CannotOpen, Keyring, KeyUnavailable

logger = logging.getLogger(__name__)

type Row = dict[str, Any]


def target(request: ApiRequest) -> tuple[UUID, str | None]:
    """The endpoint that a request is about, and the tenant that it must be of, if one is named.

    Raises:
        Problem: 404, the id is none; 422, the query is not as it should be.
    """
    return path_id(request, Prefix.ENDPOINT), read_query(Scope, request).tenant


def lock(connection: Connection, endpoint_id: UUID, tenant: str | None) -> Row:
    """Take an endpoint in hand for the rest of a transaction. Gives its settings, the headers sealed.

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


def endpoint_row(connection: Connection, endpoint_id: UUID, tenant: str | None) -> Row:
    """An endpoint's row of the statement `endpoints`.

    Raises:
        Problem: 404.
    """
    parameters = {"id": endpoint_id, "tenant": tenant, "below": HIGHEST_ID, "limit": 1}
    row = connection.execute(statement("endpoints"), parameters).fetchone()
    if row is None:
        raise not_found(endpoint_id)
    return row


def without_header_values(endpoint: EndpointOut) -> EndpointOut:
    """An endpoint as API keys read it: its headers may be credentials, which to read is not what a key is for."""
    hidden = endpoint.headers and dict.fromkeys(endpoint.headers, "***")
    return endpoint.model_copy(update={"headers": hidden})


def endpoints_of(rows: Sequence[Row], backend: Backend) -> list[EndpointOut]:
    """Endpoints from rows of the statement `endpoints`, their policies by name if they are presets that are known.

    Without the key outside of the database they are shown all the same, but for their headers: who pauses an endpoint
    must not have to wait for another service.

    Args:
        rows: the rows.
        backend: opens their headers, if they have any; no transaction is under way.
    """
    keyring = None
    if any(row["headers"] is not None for row in rows):
        try:
            keyring = backend.keyring()
        except KeyUnavailable as error:
            logger.warning("headers are not shown: %s", error)
    return [_endpoint(row, backend.presets, keyring) for row in rows]


def _endpoint(row: Row, known: Mapping[str, Preset], keyring: Keyring | None) -> EndpointOut:
    policy = Policy.model_validate(row["policy"])
    read: Row = {
        "preset": name_of(policy, known),
        "policy": policy,
        "circuit": circuit_of(row),
        "headers": _headers(row, keyring),
    }
    return EndpointOut(**{name: row[name] for name in EndpointOut.model_fields if name not in read}, **read)


def _headers(row: Row, keyring: Keyring | None) -> dict[str, str] | None:
    """An endpoint's headers; None if they cannot be opened, which must not hide the endpoint, or others on its page."""
    if row["headers"] is None:
        return {}
    if keyring is None:
        return None
    try:
        return open_headers(keyring, row["id"], row["headers"])
    except CannotOpen as error:
        logger.warning("%s: %s", encode(Prefix.ENDPOINT, row["id"]), error)
        return None
