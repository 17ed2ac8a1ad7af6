"""Settles through the store what a plain connection has claimed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import psycopg

from forbear.leases import Lane, Lease, Unsendable, parse_control
from forbear.policy.model import Policy
from forbear.store import Attempt, Result, Settled, Store
from infra.local.deployment import url_as
from tests.functions.builders import data_keys

type Connection = psycopg.Connection[Any]

CLOSED: dict[str, Any] = {
    "state": "closed",
    "since": "2026-01-01T00:00:00+00:00",
    "until": None,
    "reason": None,
    "failures": 0,
    "trips": 0,
    "epoch": 0,
    "allows": None,
    "limit": None,
    "memory": {},
    "version": 0,
}


def attempt_made(verdict: str, status: int | None, **changes: Any) -> Attempt:
    """The evidence of an attempt."""
    made = Attempt(
        *(verdict, time.monotonic(), 5.0, "https://receiver.example/", "192.0.2.1:443", b"h: v"),
        *(status, b"", b"", None, "", None),
        retry_after_honoured=False,
    )
    return replace(made, **changes)


async def settle_with_store(
    connection: Connection,
    results: list[tuple[Any, str, str | None, Attempt | None]],
) -> Settled:
    """Settle rows of a claim through the store."""
    store = Store(url_as(url_of(connection), "forbear_claimer"), data_keys())
    try:
        return await store.settle(
            [
                Result(lease_of(row), outcome, reason, 60.0, limited=False, attempt=attempt)
                for row, outcome, reason, attempt in results
            ]
        )
    finally:
        await store.aclose()


def url_of(connection: Connection) -> str:
    """The URL of a connection's database."""
    info = connection.info
    return f"postgresql://{info.user}:{info.password}@{info.host}:{info.port}/{info.dbname}"


def lease_of(row: Any) -> Lease:
    """A lease as far as a settle looks at it."""
    fields: dict[str, Any] = dict.fromkeys(Lease.__dataclass_fields__)
    lane = Lane(row.endpoint_id, Unsendable(), Policy(), parse_control(row.control or CLOSED), 1)
    known = {"delivery_id": row.delivery_id, "token": row.lease_token, "number": row.attempt, "lane": lane}
    return Lease(**(fields | known))
