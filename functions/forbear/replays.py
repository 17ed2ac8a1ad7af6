"""Replays and backfills: asked for, counted and cancelled.

Owns the orders and their first steps; what a step does is SQL (migration 0006), and the claimer runs the steps that
are left. Knows no HTTP but the problems that a caller is told; how a replay is shown is `replay_progress`'s.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from psycopg.rows import DictRow
from psycopg.types.json import Jsonb

from forbear import ids
from forbear.api import Problem
from forbear.db import Connection, Database, statement
from forbear.models.replays import DryRun, ReplayAccepted, ReplayIn, ReplayReading, Unchanged
from forbear.replay_progress import no_replay, read

STEP_ROWS: Final = 1_000
# Steps that a call runs itself, a few hundredths of a second each: what is small is done when the caller hears of it.
FIRST_STEPS: Final = 5
FIRST_CANCEL_STEPS: Final = 20
# A dry run's bounds.
COUNT_TO: Final = 1_000_000
COUNT_ROWS: Final = 10_000
COUNT_FOR_S: Final = 5.0

_NIL: Final = UUID(int=0)
# The columns of forbear.replays by which a replay selects.
_NO_SELECTION: Final = dict.fromkeys(
    ("deliveries", "tenant", "endpoint_id", "types", "status", "reason", "since", "until", "rate_per_s", "at")
)


def dry_run(database: Database, order: ReplayIn, tenant: str | None) -> DryRun:
    """Count what a replay would put back, by a filter up to a million deliveries or for five seconds.

    Args:
        database: where.
        order: the replay; when and how fast it would run does not matter.
        tenant: only what is this tenant's is known; None: all is.

    Raises:
        Problem: as `submit`.
    """
    if order.deliveries is not None:
        known, unknown, unchanged = _look_up(database, order.deliveries, tenant)
        return DryRun(matched=len(known) - len(unchanged), more=False, unknown=unknown, unchanged_deliveries=unchanged)
    selection = _selection(database, order, tenant)
    place: dict[str, Any] = {"lane": _NIL, "cursor": _NIL}
    stop_at = time.monotonic() + COUNT_FOR_S
    matched, finished = 0, False
    while not finished and matched < COUNT_TO and time.monotonic() < stop_at:
        row = _count(database, selection | place)
        matched, finished = matched + row["matched"], row["finished"]
        place = {"lane": row["lane"], "cursor": row["cursor"]}
    return DryRun(matched=matched, more=not finished, unknown=[], unchanged_deliveries=[])


def submit(database: Database, order: ReplayIn, tenant: str | None) -> ReplayAccepted:
    """Store a replay, and run its first steps unless it is to start later.

    It is not repeatable: a second call replays once more what has ended by then. What is unfinished, it leaves alone.

    Args:
        database: where.
        order: what to replay, when and how fast.
        tenant: only what is this tenant's is known; None: all is.

    Raises:
        Problem: 404, there is no such endpoint or none of the deliveries; 409, the endpoint was deleted; 422, the
            filter names another tenant than `tenant`.
    """
    unknown: list[UUID] = []
    unchanged: list[Unchanged] = []
    if order.deliveries is not None:
        known, unknown, unchanged = _look_up(database, order.deliveries, tenant)
        selection = _NO_SELECTION | {"deliveries": known, "tenant": tenant}
    else:
        selection = _selection(database, order, tenant)
    selection |= {"rate_per_s": order.rate, "at": order.at}
    replay_id = database.run(lambda connection: _create(connection, "replay", selection), repeatable=False)
    if order.at is None:
        # With a rate, the second step is due when the first one's deliveries have been.
        _run_steps(database, replay_id, FIRST_STEPS if order.rate is None else 1)
    return ReplayAccepted(
        **dict(read(database, replay_id, tenant)),
        unknown=unknown,
        unchanged_deliveries=unchanged if order.at is None else [],
    )


def start_backfill(
    database: Database, endpoint_id: UUID, since: datetime, until: datetime | None, types: Sequence[str] | None
) -> UUID:
    """Store a backfill and run its first steps: events that the endpoint subscribes to and did not get.

    Asked for again, it does no harm: no event becomes a second delivery. Afterwards the claimer must be called, as
    after all that makes work.

    Args:
        database: where.
        endpoint_id: an endpoint that is not deleted.
        since: events from then on.
        until: events before then; None: until now.
        types: subscription patterns that narrow down the endpoint's; None: they stay.

    Returns:
        The backfill's id; its progress is read as a replay's.
    """
    selection = _NO_SELECTION | {
        "endpoint_id": endpoint_id,
        "since": since,
        "until": until,
        "types": None if types is None else list(types),
    }
    backfill_id = database.run(lambda connection: _create(connection, "backfill", selection), repeatable=False)
    _run_steps(database, backfill_id, FIRST_STEPS)
    return backfill_id


def cancel(database: Database, replay_id: UUID, tenant: str | None) -> ReplayReading:
    """Cancel a replay or backfill: nothing more is put back, and what it put back and is pending is cancelled.

    What is being sent goes on. Cancelling again cancels what has come back since. Large ones are `cancelling` when this
    returns, and the claimer goes on.

    Raises:
        Problem: 404, there is none with this id, or it is not this tenant's.
    """
    found = database.run(
        lambda connection: connection.execute(
            statement("cancel_replay"), {"id": replay_id, "tenant": tenant}
        ).fetchone(),
        repeatable=True,
    )
    if found is None:
        raise no_replay(replay_id)
    _run_steps(database, replay_id, FIRST_CANCEL_STEPS)
    return read(database, replay_id, tenant)


def _look_up(
    database: Database, wanted: Sequence[UUID], tenant: str | None
) -> tuple[list[UUID], list[UUID], list[Unchanged]]:
    """The deliveries that there are, those that there are not, and which of the former stay as they are."""
    rows = database.run(
        lambda connection: connection.execute(
            "SELECT * FROM forbear.standings(%s, %s)", (list(wanted), tenant)
        ).fetchall(),
        repeatable=True,
    )
    known = [row["id"] for row in rows]
    unknown = sorted(set(wanted) - set(known))
    if not known:
        shown = [ids.encode(ids.Prefix.DELIVERY, one) for one in unknown]
        raise Problem(404, "there is none of these deliveries", unknown=shown)
    unchanged = [Unchanged(id=row["id"], because=row["standing"]) for row in rows if row["standing"] != "finished"]
    return known, unknown, unchanged


def _selection(database: Database, order: ReplayIn, tenant: str | None) -> dict[str, Any]:
    """A filter as columns of forbear.replays."""
    wanted = order.filter
    if wanted is None:
        raise ValueError("an order without deliveries has a filter")
    if tenant is not None and wanted.tenant not in {None, tenant}:
        raise Problem(422, f"the filter names the tenant {wanted.tenant}, the query {tenant}: name one")
    tenant = wanted.tenant or tenant
    if wanted.endpoint is not None:
        _check_endpoint(database, wanted.endpoint, tenant)
    return _NO_SELECTION | {
        "tenant": tenant,
        "endpoint_id": wanted.endpoint,
        "types": wanted.type and [wanted.type],
        "status": wanted.status,
        "reason": wanted.reason,
        "since": wanted.since,
        "until": wanted.until,
    }


def _check_endpoint(database: Database, endpoint_id: UUID, tenant: str | None) -> None:
    row = database.run(
        lambda connection: connection.execute(
            "SELECT tenant, deleted_at FROM forbear.endpoints WHERE id = %s", (endpoint_id,)
        ).fetchone(),
        repeatable=True,
    )
    shown = ids.encode(ids.Prefix.ENDPOINT, endpoint_id)
    if row is None or tenant not in {None, row["tenant"]}:
        raise Problem(404, f"there is no endpoint {shown}")
    if row["deleted_at"] is not None:
        raise Problem(409, f"the endpoint {shown} was deleted: its deliveries cannot be replayed")


def _create(connection: Connection, kind: str, selection: dict[str, Any]) -> UUID:
    row = connection.execute(statement("create_replay"), {"kind": kind, **selection}).fetchone()
    if row is None:
        raise RuntimeError("INSERT … RETURNING gave no row")
    return UUID(str(row["id"]))


def _count(database: Database, replay: dict[str, Any]) -> DictRow:
    """Count on from where a replay that is not stored stands."""
    columns = {name: str(value) if isinstance(value, UUID | datetime) else value for name, value in replay.items()}
    row = database.run(
        lambda connection: connection.execute(
            statement("count_replayable"), {"replay": Jsonb(columns), "limit": COUNT_ROWS}
        ).fetchone(),
        repeatable=True,
    )
    if row is None:
        raise RuntimeError("a function's row is missing")
    return row


def _run_steps(database: Database, replay_id: UUID, steps: int) -> None:
    for _ in range(steps):
        if not database.run(lambda connection: _step(connection, replay_id), repeatable=True):
            return


def _step(connection: Connection, replay_id: UUID) -> int:
    """Run a step. Gives the rows looked at: 0 if there is nothing to do now."""
    row = connection.execute("SELECT forbear.step_replay(%s, %s) AS walked", (replay_id, STEP_ROWS)).fetchone()
    return (row and row["walked"]) or 0
