"""An endpoint's signing secrets: shown when they are made, when they are asked for, and when they are rotated.

Owns the rules of a rotation. Knows nothing of signing but what a secret looks like, and nothing of how it is sealed.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from forbear.api import ApiRequest, ApiResponse, Problem
from forbear.bodies import parse_body
from forbear.db import Connection, statement
from forbear.manage.backend import Backend
from forbear.manage.endpoint_rows import Row, lock, not_found, target
from forbear.models.endpoints import EarlierSecret, SecretIn, Secrets
from forbear.models.fields import show_time
from forbear.sealed import open_secret, seal_secret
from forbear.signing import AsymmetricKey, generate_secret, parse_secret
from forbear.vault import CannotOpen, Keyring

# Each is one more signature in a header, which receivers bound, and one more to compute.
MOST_LIVE = 5


def reveal(backend: Backend, request: ApiRequest) -> ApiResponse:
    """An endpoint's secret, and the earlier ones that still sign."""
    endpoint_id, tenant = target(request)
    rows = backend.read(lambda connection: _live(connection, endpoint_id, tenant))
    if not rows:
        raise not_found(endpoint_id)
    live, unreadable = _opened(backend.keyring(), endpoint_id, rows)
    if unreadable:
        raise Problem(409, "a secret of the endpoint cannot be opened, it was altered: rotate it")
    return ApiResponse(200, _secrets(live), {"cache-control": "no-store"})


def rotate(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Give an endpoint a new secret; the one before signs for 24 hours more, unless it cannot be opened."""
    endpoint_id, tenant = target(request)
    secret = parse_body(SecretIn, request.body).secret or generate_secret()
    backend.keyring()

    def work(connection: Connection) -> list[Row]:
        lock(connection, endpoint_id, tenant)
        before = _live(connection, endpoint_id, tenant)
        keyring = backend.keyring(connection)
        live, unreadable = _opened(keyring, endpoint_id, before)
        _check(live, secret)
        connection.execute(statement("expire_secrets"), {"id": endpoint_id, "unreadable": unreadable})
        sealed = seal_secret(keyring, endpoint_id, secret)
        connection.execute(statement("add_secret"), {"id": endpoint_id, "secret": sealed})
        return _opened(keyring, endpoint_id, _live(connection, endpoint_id, tenant))[0]

    return ApiResponse(200, _secrets(backend.change(work, repeatable=False)), {"cache-control": "no-store"})


def public_key_of(secret: str) -> str | None:
    """What receivers verify with, if the secret is an Ed25519 key."""
    key = parse_secret(secret)
    return key.public_text if isinstance(key, AsymmetricKey) else None


def _check(live: Sequence[Row], secret: str) -> None:
    """Refuse a rotation that would not be one, or one too many.

    Raises:
        Problem: 409.
    """
    if secret in [row["secret"] for row in live]:
        raise Problem(409, "the endpoint signs with this secret already: rotate to another one")
    if len(live) >= MOST_LIVE:
        first = show_time(min(row["expires_at"] for row in live if row["expires_at"] is not None))
        raise Problem(409, f"{MOST_LIVE} secrets sign for this endpoint already: rotate again after {first}")


def _live(connection: Connection, endpoint_id: UUID, tenant: str | None) -> list[Row]:
    return connection.execute(statement("secrets"), {"id": endpoint_id, "tenant": tenant}).fetchall()


def _opened(keyring: Keyring, endpoint_id: UUID, rows: Sequence[Row]) -> tuple[list[Row], list[str]]:
    """Rows with their secrets opened, and the sealed texts that cannot be."""
    opened, unreadable = [], []
    for row in rows:
        try:
            opened.append({**row, "secret": open_secret(keyring, endpoint_id, row["secret"])})
        except CannotOpen:
            unreadable.append(row["secret"])
    return opened, unreadable


def _secrets(rows: Sequence[Row]) -> Secrets:
    current, *earlier = [{**row, "public_key": public_key_of(row["secret"])} for row in rows]
    current.pop("expires_at")
    return Secrets(**current, earlier=[EarlierSecret(**row) for row in earlier])
