"""Endpoints and events to measure with, put into the database by the very SQL that Forbear runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid4

import psycopg

from forbear.data_keys import DataKeys
from forbear.event_types import matching_patterns
from forbear.policy.model import Policy
from forbear.sealed import seal_headers, seal_secret
from forbear.signing import generate_secret
from forbear.vault import Keyring, Purpose, wrapping
from infra.bench.world import World

type Connection = psycopg.Connection[Any]

EVENT_TYPE: Final = "order.paid"
PAYLOAD_BYTES: Final = 1024
_BATCH: Final = 500


def keyring(world: World, connection: Connection) -> Keyring:
    """What seals secrets in a world's database."""
    keys = DataKeys(Purpose.SECRETS, lambda: wrapping(str(world.key)))
    return keys.ring(keys.rows(connection))


def payload(size: int = PAYLOAD_BYTES) -> bytes:
    """A JSON document of so many bytes, 16 at least."""
    return json.dumps({"filler": "x" * (size - 14)}).encode()


def make_endpoint(
    connection: Connection, keyring: Keyring, tenant: str, url: str, policy: Mapping[str, Any] | None = None
) -> UUID:
    """Store an endpoint for all of a tenant's events, with its lane, subscription and secret. Gives its id.

    Args:
        connection: a superuser's, in autocommit mode.
        keyring: seals its secret.
        tenant: whose it is.
        url: where its receiver is.
        policy: what differs from the default policy.
    """
    parsed = Policy.model_validate(policy or {})
    endpoint_id = uuid4()
    row = (endpoint_id, tenant, url, seal_headers(keyring, endpoint_id, {}), parsed.model_dump_json())
    secret = seal_secret(keyring, endpoint_id, generate_secret())
    with connection.transaction():
        connection.execute(
            "INSERT INTO forbear.endpoints (id, tenant, url, event_types, headers, policy)"
            " VALUES (%s, %s, %s, '{*}', %s, %s)",
            row,
        )
        connection.execute("INSERT INTO forbear.lanes (endpoint_id, tenant) VALUES (%s, %s)", (endpoint_id, tenant))
        connection.execute("INSERT INTO forbear.subscriptions VALUES (%s, '*', %s)", (tenant, endpoint_id))
        connection.execute("INSERT INTO forbear.secrets (endpoint_id, secret) VALUES (%s, %s)", (endpoint_id, secret))
    return endpoint_id


def make_endpoints(world: World, connection: Connection, number: int, fan_out: int = 1) -> list[str]:
    """Store endpoints at the world's receiver, `fan_out` of them for each tenant. Gives the tenants."""
    ring = keyring(world, connection)
    tenants = [f"tenant-{n // fan_out}" for n in range(number)]
    for n, tenant in enumerate(tenants):
        make_endpoint(connection, ring, tenant, f"{world.receiver_url}/{n}")
    return list(dict.fromkeys(tenants))


def fill(connection: Connection, events: Mapping[str, Sequence[bytes]]) -> int:
    """Store events with their deliveries, in batches. Gives the number of deliveries.

    Args:
        connection: in autocommit mode.
        events: payloads by tenant.
    """
    patterns = " ".join(matching_patterns(EVENT_TYPE))
    deliveries = 0
    for tenant, payloads in events.items():
        for start in range(0, len(payloads), _BATCH):
            batch = list(payloads[start : start + _BATCH])
            rows = connection.execute(
                "SELECT deliveries FROM forbear.ingest(%s, %s, %s, %b, %s::timestamptz[], %s, %s::text[], %s::bytea[])",
                (
                    *([tenant] * len(batch), [EVENT_TYPE] * len(batch), ["application/json"] * len(batch), batch),
                    *([None] * len(batch), [patterns] * len(batch), [None] * len(batch), [None] * len(batch)),
                ),
            ).fetchall()
            deliveries += sum(row[0] for row in rows)
    return deliveries
