"""Claims and settles over a plain connection, and looks at the queue: what the store does, without its loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row, namedtuple_row

from forbear.db import statement
from forbear.leases import control_json, parse_control
from forbear.policy.breaker import Breaker, BreakerState
from forbear.policy.control import Control
from tests.functions.builders import make_endpoint

type Connection = psycopg.Connection[Any]

MANY = 500
ENOUGH_BYTES = 32 << 20
# By the default timeout of 15 s.
LEASE_S = 15 + 30
# What holds a lane, and what lets it go again.
HOLDS = {
    "paused": ("paused_at = forbear.now()", "paused_at = NULL"),
    "tenant paused": ("tenant_paused_at = forbear.now()", "tenant_paused_at = NULL"),
    "disabled": ("disabled_at = forbear.now(), disabled_reason = 'gone'", "disabled_at = NULL, disabled_reason = NULL"),
}


# For tests of what may go at once after a hold.
AT_ONCE = {"breaker": {"slow_start": False}}


def limits(**limits: object) -> dict[str, Any]:
    """A policy with these limits."""
    return {"limits": limits}


def several(connection: Connection, number: int, **endpoint: Any) -> list[UUID]:
    """Make endpoints that subscribe to types of their own: t0, t1, …"""
    return [make_endpoint(connection, event_types=(f"t{n}",), **endpoint) for n in range(number)]


def freeze(connection: Connection, *, forward_s: float = 0.0) -> None:
    """Stop Forbear's clock; a clock that stands already goes `forward_s` seconds forward."""
    connection.execute(
        "UPDATE forbear.clock SET frozen_at = forbear.now() + %s * interval '1 second'",
        (forward_s,),
    )


def claim(connection: Connection, slots: int = MANY, payload_bytes: int = ENOUGH_BYTES, lanes: int = 200) -> list[Any]:
    """Lease what is due. Gives the rows, with the columns as attributes."""
    cursor = connection.cursor(row_factory=namedtuple_row)
    return cursor.execute("SELECT * FROM forbear.claim(%s, %s, %s)", (slots, payload_bytes, lanes)).fetchall()


@dataclass(frozen=True)
class Settled:
    """What a settle answers: the places of late results, and the control that was not as expected."""

    late: list[int]
    stale: dict[UUID, Control]


VERDICTS = {"delivered": "success", "retry": "retry", "dead": "permanent", "return": None}


def settle(
    connection: Connection,
    leases: Sequence[Any],
    outcome: str = "delivered",
    *,
    verdict: str | None = None,
    reason: str | None = None,
    delay_s: float = 60.0,
    limited: bool = False,
    status: int | None = None,
    headers: bytes = b"content-type: text/plain",
    body: bytes = b"answer",
    error: str | None = None,
    retry_after_s: float | None = None,
    changes: Sequence[tuple[UUID, Control, Breaker | Control]] = (),
    waits: dict[UUID, float] | None = None,
    disables: dict[UUID, str] | None = None,
) -> Settled:
    """Settle leases, all with the same result. A verdict of None is the outcome's usual one; `return` has none.

    Changes: of an endpoint, the control that it is thought to have, and the control or the breaker that it comes to.
    """
    waits, disables = waits or {}, disables or {}
    befores = {endpoint_id: before for endpoint_id, before, _ in changes}
    afters = {
        endpoint_id: after if isinstance(after, Control) else replace(before, breaker=after)
        for endpoint_id, before, after in changes
    }
    lanes = sorted(befores.keys() | waits.keys() | disables.keys())
    number = len(leases)
    verdict = VERDICTS[outcome] if verdict is None else verdict
    status = {"delivered": 200, "retry": 500, "dead": 404, "return": None}[outcome] if status is None else status
    row = (
        connection.cursor(row_factory=dict_row)
        .execute(
            statement("settle"),
            {
                "ids": [lease.delivery_id for lease in leases],
                "tokens": [lease.lease_token for lease in leases],
                "endpoints": [lease.endpoint_id for lease in leases],
                "outcomes": [outcome] * number,
                "reasons": [reason if outcome == "dead" else None] * number,
                "delays": [0.0 if outcome == "return" else delay_s] * number,
                "limited": [limited] * number,
                "verdicts": [verdict] * number,
                "ages": [0.25] * number,
                "latencies_ms": [250.0] * number,
                "urls": ["https://receiver.example/hook"] * number,
                "addresses": ["192.0.2.1:443"] * number,
                "request_headers": [b"webhook-id: x"] * number,
                "statuses": [None if error else status] * number,
                "response_headers": [headers] * number,
                "response_bodies": [body] * number,
                "errors": [error] * number,
                "error_details": ["it broke" if error else ""] * number,
                "retry_afters": [retry_after_s] * number,
                "honoured": [retry_after_s is not None] * number,
                "lane_ids": lanes,
                "versions": [befores[lane].version if lane in befores else None for lane in lanes],
                "controls": [control_json(afters[lane]) if lane in afters else None for lane in lanes],
                "waits": [waits.get(lane) for lane in lanes],
                "disables": [disables.get(lane) for lane in lanes],
                "same_ids": [],
                "same_versions": [],
            },
        )
        .fetchone()
    )
    assert row is not None
    return Settled(
        sorted(row["late"]), {UUID(lane["endpoint"]): parse_control(lane["control"]) for lane in row["stale"] or ()}
    )


def keep_late(connection: Connection, lease: Any, *, status: int = 200, body: bytes = b"late answer") -> None:
    """Keep what a late result saw."""
    connection.execute(
        statement("keep_late"),
        {
            "id": lease.delivery_id,
            "number": lease.attempt,
            "age": 40.0,
            "latency_ms": 40_000.0,
            "url": "https://receiver.example/hook",
            "address": "192.0.2.1:443",
            "request_headers": b"webhook-id: x",
            "status": status,
            "response_headers": b"",
            "response_body": body,
            "error": None,
            "error_detail": "",
            "retry_after": None,
        },
    )


def reap(connection: Connection) -> int:
    """Take over what has lapsed. Gives the number."""
    return int(fetch(connection, "SELECT forbear.reap(500) AS number").number)


def fetch(connection: Connection, sql: str, *parameters: object) -> Any:
    """A statement's only row, with the columns as attributes."""
    row = connection.cursor(row_factory=namedtuple_row).execute(sql, parameters).fetchone()
    assert row is not None
    return row


def ready_in_s(connection: Connection, endpoint_id: UUID) -> float:
    """In how many seconds the claimer looks at a lane; infinity: when it is woken."""
    sql = "SELECT extract(epoch FROM ready_at - forbear.now())::float8 AS s FROM forbear.lanes WHERE endpoint_id = %s"
    return float(fetch(connection, sql, endpoint_id).s)


def control(connection: Connection, endpoint_id: UUID) -> Control:
    """What outcomes change about a lane."""
    sql = "SELECT forbear.control_of(l) AS control FROM forbear.lanes l WHERE l.endpoint_id = %s"
    return parse_control(fetch(connection, sql, endpoint_id).control)


def breaker(connection: Connection, endpoint_id: UUID) -> Breaker:
    """A lane's breaker."""
    return control(connection, endpoint_id).breaker


def failing(before: Control, failures: int) -> Control:
    """A control whose breaker has counted so many failures in a row."""
    return replace(before, breaker=replace(before.breaker, failures=failures))


def open_breaker(connection: Connection, endpoint_id: UUID, *, for_s: float = 30.0) -> Breaker:
    """Open a lane's breaker as the claimer would, by a settle. Gives it as it is then."""
    before = control(connection, endpoint_id)
    now = fetch(connection, "SELECT forbear.now() AS now, forbear.now() + %s * interval '1 second' AS until", for_s)
    epoch = before.breaker.epoch + 1
    after = Breaker(BreakerState.OPEN, now.now, 5, 1, now.until, epoch, "5 failures in a row, the last: 500")
    assert settle(connection, [], changes=[(endpoint_id, before, after)]) == Settled([], {})
    return after


def delivery(connection: Connection, delivery_id: UUID) -> Any:
    """A delivery as everybody reads it: queue and history as one."""
    return fetch(connection, "SELECT * FROM forbear.deliveries WHERE id = %s", delivery_id)


def attempts(connection: Connection, delivery_id: UUID) -> list[Any]:
    """A delivery's attempts in the order of their numbers, wherever they are kept."""
    cursor = connection.cursor(row_factory=namedtuple_row)
    return cursor.execute(
        "SELECT * FROM forbear.attempts WHERE delivery_id = %s ORDER BY number", (delivery_id,)
    ).fetchall()


def count(connection: Connection, what: str) -> int:
    """How many rows there are of what follows FROM."""
    return int(fetch(connection, f"SELECT count(*) AS number FROM {what}").number)


def close_to(seconds: float, expected: float) -> bool:
    """Whether a time is as expected but for a microsecond's rounding."""
    return math.isclose(seconds, expected, abs_tol=0.000_1)


def endings(connection: Connection) -> dict[str, int]:
    """How many deliveries ended how: by the reason of the dead, by the state of the others."""
    rows = connection.execute("SELECT coalesce(reason, state), count(*) FROM forbear.history GROUP BY 1").fetchall()
    return {row[0]: row[1] for row in rows}
