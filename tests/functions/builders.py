"""Builds endpoints, events and claims for tests, through the very SQL that Forbear runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from forbear.data_keys import DataKeys
from forbear.event_types import matching_patterns
from forbear.policy.model import Policy
from forbear.sealed import seal_headers, seal_secret
from forbear.signing import generate_secret
from forbear.vault import Keyring, Purpose, wrapping

type Connection = psycopg.Connection[Any]

# Names the key file of this run's databases.
KEY_FILE = "FORBEAR_TEST_KEY"


def key_file() -> Path:
    """The key file that this run's databases are made with."""
    return Path(os.environ[KEY_FILE])


@cache
def data_keys() -> DataKeys:
    """What opens the secrets in this run's databases."""
    return DataKeys(Purpose.SECRETS, lambda: wrapping(str(key_file())))


def keyring_of(connection: Connection) -> Keyring:
    """The keyring of a connection's database."""
    return data_keys().ring(data_keys().rows(connection))


def make_endpoint(
    connection: Connection,
    *,
    tenant: str = "acme",
    url: str = "http://127.0.0.1:9/",
    event_types: tuple[str, ...] = ("*",),
    policy: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    secret: str | None = None,
) -> UUID:
    """Store an endpoint with its lane, subscriptions and secret. Gives its id."""
    parsed = Policy.model_validate(policy or {})
    endpoint_id = uuid4()
    keyring = keyring_of(connection)
    sealed = seal_secret(keyring, endpoint_id, secret or generate_secret())
    row = (tenant, url, list(event_types), seal_headers(keyring, endpoint_id, headers or {}), parsed.model_dump_json())
    with connection.transaction():
        connection.execute(
            "INSERT INTO forbear.endpoints (id, tenant, url, event_types, headers, policy) VALUES (%s,%s,%s,%s,%s,%s)",
            (endpoint_id, *row),
        )
        connection.execute("INSERT INTO forbear.lanes (endpoint_id, tenant) VALUES (%s, %s)", (endpoint_id, tenant))
        for pattern in event_types:
            connection.execute("INSERT INTO forbear.subscriptions VALUES (%s, %s, %s)", (tenant, pattern, endpoint_id))
        connection.execute(
            "INSERT INTO forbear.secrets (endpoint_id, secret) VALUES (%s, %s)",
            (endpoint_id, sealed),
        )
    return endpoint_id


def reseal(
    connection: Connection, endpoint_id: UUID, *, secret: str | None = None, headers: dict[str, str] | None = None
) -> None:
    """Put another secret or other headers where an endpoint's were, whatever the API would say to them."""
    keyring = keyring_of(connection)
    if secret is not None:
        parameters = (seal_secret(keyring, endpoint_id, secret), endpoint_id)
        connection.execute("UPDATE forbear.secrets SET secret = %s WHERE endpoint_id = %s", parameters)
    if headers is not None:
        changed = (seal_headers(keyring, endpoint_id, headers), endpoint_id)
        connection.execute("UPDATE forbear.endpoints SET headers = %s WHERE id = %s", changed)


def post(
    connection: Connection,
    *payloads: bytes,
    tenant: str = "acme",
    event_type: str = "order.paid",
    expires_at: object = None,
) -> list[UUID]:
    """Ingest events in one batch. Gives their ids."""
    number = len(payloads)
    rows = connection.execute(
        "SELECT event_id FROM forbear.ingest(%s, %s, %s, %b, %s::timestamptz[], %s, %s::text[], %s::bytea[])"
        " ORDER BY n",
        (
            *([tenant] * number, [event_type] * number, ["application/json"] * number, list(payloads)),
            *([expires_at] * number, [" ".join(matching_patterns(event_type))] * number),
            *([None] * number, [None] * number),
        ),
    ).fetchall()
    return [row[0] if isinstance(row, tuple) else row["event_id"] for row in rows]


def one(connection: Connection, sql: str, *parameters: object) -> Any:
    """The only column of a statement's only row."""
    row = connection.execute(sql, parameters).fetchone()
    assert row is not None
    return next(iter(row.values())) if isinstance(row, dict) else row[0]


def move_clock(connection: Connection, **shift: float) -> None:
    """Move Forbear's clock on; keyword arguments as of timedelta."""
    interval = " ".join(f"{amount} {unit}" for unit, amount in shift.items())
    connection.execute("UPDATE forbear.clock SET shift = shift + %s::interval", (interval,))


def run[T](work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end on a loop of its own."""
    return asyncio.run(work)
