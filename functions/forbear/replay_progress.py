"""How far replays and backfills have come, as they are shown.

Owns the reading and what a row of forbear.replays looks like to callers. Changes nothing.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from psycopg.rows import DictRow

from forbear import ids
from forbear.api import Problem
from forbear.db import Connection, Database, statement
from forbear.models.replays import BackfillSelection, ReplayFilter, ReplayOut, ReplayReading, StillPending

STILL_PENDING_BOUND: Final = 10_000


def read(database: Database, replay_id: UUID, tenant: str | None) -> ReplayReading:
    """Read how far a replay or backfill has come.

    Raises:
        Problem: 404, there is none with this id, or it is not this tenant's.
    """

    def work(connection: Connection) -> tuple[list[DictRow], int]:
        rows = connection.execute(statement("read_replays"), {"id": replay_id, "tenant": tenant, "limit": 1}).fetchall()
        pending = connection.execute(
            statement("count_still_pending"), {"id": replay_id, "bound": STILL_PENDING_BOUND + 1}
        ).fetchone()
        return rows, pending["count"] if pending else 0

    rows, pending = database.run(work, repeatable=True)
    if not rows:
        raise no_replay(replay_id)
    still_pending = StillPending(count=min(pending, STILL_PENDING_BOUND), more=pending > STILL_PENDING_BOUND)
    return ReplayReading(**_shown(rows[0]), still_pending=still_pending)


def newest(database: Database, limit: int, tenant: str | None) -> list[ReplayOut]:
    """Read the newest replays and backfills, `limit` at most; a tenant's, or (None) all."""
    rows = database.run(
        lambda connection: connection.execute(
            statement("read_replays"), {"id": None, "tenant": tenant, "limit": limit}
        ).fetchall(),
        repeatable=True,
    )
    return [ReplayOut(**_shown(row)) for row in rows]


def no_replay(replay_id: UUID) -> Problem:
    """The problem that there is none with this id."""
    return Problem(404, f"there is no replay {ids.encode(ids.Prefix.REPLAY, replay_id)}")


def _shown(row: DictRow) -> dict[str, Any]:
    """A row of read_replays as the fields of ReplayOut."""
    shared = {"tenant": row["tenant"], "endpoint": row["endpoint_id"], "since": row["since"], "until": row["until"]}
    wanted: ReplayFilter | BackfillSelection | None = None
    if row["kind"] == "backfill":
        wanted = BackfillSelection.model_construct(**shared, types=row["types"])
    elif row["deliveries"] is None:
        wanted = ReplayFilter.model_construct(
            **shared,
            all=row["tenant"] is None and row["endpoint_id"] is None,
            type=row["types"] and row["types"][0],
            status=row["status"],
            reason=row["reason"],
        )
    return {
        **{name: row[name] for name in ("id", "kind", "state", "deliveries", "matched", "unchanged", "cancelled")},
        "filter": wanted,
        "rate": row["rate_per_s"],
        "at": row["step_at"] if row["ended_at"] is None else None,
        **{name: row[name] for name in ("created_at", "started_at", "ended_at")},
    }
