"""An endpoint's signing secrets: shown when they are made, when they are asked for, and when they are rotated.

Owns the rules of a rotation. Knows nothing of signing but what a secret looks like.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from forbear.api import ApiRequest, ApiResponse, Problem, parse_body
from forbear.db import Connection, statement
from forbear.manage.backend import Backend
from forbear.manage.endpoint_rows import lock, not_found, target
from forbear.models.endpoints import EarlierSecret, SecretIn, Secrets
from forbear.models.fields import show_time
from forbear.signing import AsymmetricKey, generate_secret, parse_secret

# Each is one more signature in a header, which receivers bound, and one more to compute.
MOST_LIVE = 5


def reveal(backend: Backend, request: ApiRequest) -> ApiResponse:
    """An endpoint's secret, and the earlier ones that still sign."""
    endpoint_id, tenant = target(request)
    rows = backend.read(lambda connection: _live(connection, endpoint_id, tenant))
    if not rows:
        raise not_found(endpoint_id)
    return ApiResponse(200, _secrets(rows), {"cache-control": "no-store"})


def rotate(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Give an endpoint a new secret; the one before signs for 24 hours more."""
    endpoint_id, tenant = target(request)
    secret = parse_body(SecretIn, request.body).secret or generate_secret()

    def work(connection: Connection) -> Sequence[dict[str, Any]]:
        lock(connection, endpoint_id, tenant)
        _check(_live(connection, endpoint_id, tenant), secret)
        connection.execute(statement("expire_secrets"), {"id": endpoint_id})
        connection.execute(statement("add_secret"), {"id": endpoint_id, "secret": secret})
        return _live(connection, endpoint_id, tenant)

    return ApiResponse(200, _secrets(backend.change(work, repeatable=False)), {"cache-control": "no-store"})


def public_key_of(secret: str) -> str | None:
    """What receivers verify with, if the secret is an Ed25519 key."""
    key = parse_secret(secret)
    return key.public_text if isinstance(key, AsymmetricKey) else None


def _check(live: Sequence[dict[str, Any]], secret: str) -> None:
    """Refuse a rotation that would not be one, or one too many.

    Raises:
        Problem: 409.
    """
    if secret in [row["secret"] for row in live]:
        raise Problem(409, "the endpoint signs with this secret already: rotate to another one")
    if len(live) >= MOST_LIVE:
        first = show_time(min(row["expires_at"] for row in live if row["expires_at"] is not None))
        raise Problem(409, f"{MOST_LIVE} secrets sign for this endpoint already: rotate again after {first}")


def _live(connection: Connection, endpoint_id: UUID, tenant: str | None) -> Sequence[dict[str, Any]]:
    return connection.execute(statement("secrets"), {"id": endpoint_id, "tenant": tenant}).fetchall()


def _secrets(rows: Sequence[dict[str, Any]]) -> Secrets:
    current, *earlier = [{**row, "public_key": public_key_of(row["secret"])} for row in rows]
    current.pop("expires_at")
    return Secrets(**current, earlier=[EarlierSecret(**row) for row in earlier])
