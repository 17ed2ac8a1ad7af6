"""How a round's tenant stands in the database: what has not ended and when it may go on, and how everything ended.

Owns the statements of this kind. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from forbear.ids import Prefix, encode
from infra.torture.ledger import Attempt, Delivery

type Sql = Callable[..., Awaitable[list[tuple[Any, ...]]]]
"""Runs a statement with its parameters and gives its rows."""

# Nothing has moved for so long: nobody works on it, or it is not due.
_STILL_S = 0.8
# A claimer renews its mark every 1.5 s: one that has stood still for longer is a dead one's.
_MARK_STILL_S = 2.0


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What has not ended: the rows, in how many seconds something may go on, and how long nothing must have moved."""

    rows: list[tuple[Any, ...]]
    next_s: float
    still_s: float


async def unfinished(sql: Sql, tenant: str) -> Unfinished | None:
    """What has not ended, as it stands; None if everything has."""
    rows = await sql(
        """
        SELECT q.id, q.attempts, q.due_at::text, q.lease_until::text, l.breaker_state, l.ready_at::text,
               extract(epoch FROM CASE WHEN q.lease_until IS NOT NULL THEN q.lease_until
                                       ELSE greatest(q.due_at, forbear.barred_until(l),
                                                     nullif(l.ready_at, 'infinity')) END - forbear.now())::float8
        FROM forbear.queue q JOIN forbear.lanes l USING (endpoint_id) WHERE l.tenant = %s ORDER BY q.id
        """,
        tenant,
    )
    rows += await sql(
        "SELECT id, state, step_at::text, cursor, extract(epoch FROM step_at - forbear.now())::float8 "
        "FROM forbear.replays WHERE ended_at IS NULL"  # of deliveries by their names, it names no tenant
    )
    if not rows:
        return None
    next_s = min(row[-1] for row in rows)
    standing = [row[:-1] for row in rows]
    if next_s <= 0:
        # It is due. If nobody comes, that may be for the mark of one that died.
        marks = await sql(
            "SELECT id, awake_until, extract(epoch FROM awake_until - forbear.now())::float8 FROM forbear.claimers "
            "WHERE awake_until > forbear.now() ORDER BY id"
        )
        if marks:
            seen = standing + [mark[:-1] for mark in marks]
            return Unfinished(seen, max(mark[-1] for mark in marks), _MARK_STILL_S)
    return Unfinished(standing, next_s, _STILL_S)


async def leftovers(sql: Sql, tenant: str) -> list[str]:
    """What has not ended and why, a line for each of the first rows."""
    rows = await sql(
        """
        SELECT q.id, CASE WHEN q.lease_token IS NULL THEN 'pending' ELSE 'leased' END,
               round(extract(epoch FROM q.due_at - forbear.now()), 1),
               round(extract(epoch FROM q.lease_until - forbear.now()), 1), q.attempts,
               round(extract(epoch FROM l.ready_at - forbear.now()), 1), l.held, l.breaker_state,
               (SELECT count(*) FROM forbear.wakes w WHERE l.endpoint_id = ANY (w.endpoint_ids)),
               (SELECT count(*) FROM forbear.claimers c WHERE c.awake_until > forbear.now())
        FROM forbear.queue q JOIN forbear.lanes l USING (endpoint_id) WHERE l.tenant = %s ORDER BY q.id LIMIT 5
        """,
        tenant,
    )
    return [
        f"{encode(Prefix.DELIVERY, row[0])} is {row[1]}, due in {row[2]} s, lease for {row[3]} s, attempt {row[4]}; "
        f"lane ready in {row[5]} s, held {row[6]}, breaker {row[7]}, {row[8]} wake rows; "
        f"{row[9]} claimers marked awake"
        for row in rows
    ]


async def ends(sql: Sql, tenant: str) -> list[Delivery]:
    """All of the tenant's deliveries."""
    rows = await sql(
        "SELECT d.id, d.event_id, d.state, d.reason, d.generation, d.attempts FROM forbear.deliveries d "
        "JOIN forbear.lanes l USING (endpoint_id) WHERE l.tenant = %s",
        tenant,
    )
    return [Delivery(encode(Prefix.DELIVERY, row[0]), encode(Prefix.EVENT, row[1]), *row[2:]) for row in rows]


async def attempts(sql: Sql, tenant: str) -> list[Attempt]:
    """All attempts of the tenant's deliveries."""
    rows = await sql(
        "SELECT a.delivery_id, a.number, a.generation, a.verdict, a.late FROM forbear.attempts a "
        "WHERE a.delivery_id IN (SELECT d.id FROM forbear.deliveries d JOIN forbear.lanes l USING (endpoint_id) "
        "WHERE l.tenant = %s)",
        tenant,
    )
    return [Attempt(encode(Prefix.DELIVERY, row[0]), *row[1:]) for row in rows]


async def events(sql: Sql, tenant: str) -> list[str]:
    """The ids of the tenant's events, test events left out."""
    rows = await sql("SELECT id FROM forbear.events WHERE tenant = %s AND type <> 'forbear.test'", tenant)
    return [encode(Prefix.EVENT, row[0]) for row in rows]
