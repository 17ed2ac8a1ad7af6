"""Stores events: one transaction with all their deliveries, committed before anybody is told.

Owns what happens when the connection is lost on the way, and finds out whether a claimer must be woken. Knows no HTTP
but the problem that a producer is told.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from forbear.access import authorisation, refusal
from forbear.api import RETRY_AFTER_S, Problem
from forbear.api_keys import ApiKey
from forbear.db import Connection, Database, Unavailable, statement
from forbear.envelope import NewEvent
from forbear.event_types import matching_patterns
from forbear.round_trip import Statement, commit_and_ask
from forbear.routes import KeyScope

logger = logging.getLogger(__name__)

MUST_CALL = Statement("SELECT forbear.call_claimer(p_for_wakes => true)")


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of an event.

    `event_id`: of the first event under its key. `duplicate`: that one was stored before and is the same. `conflict`:
    it is not the same, and nothing was stored now.
    """

    event_id: UUID
    deliveries: int
    duplicate: bool
    conflict: bool


@dataclass(frozen=True, slots=True)
class Intake:
    """What became of several events, in their order, and whether the caller has to invoke a claimer."""

    stored: tuple[Stored, ...]
    must_wake: bool


def store(database: Database, events: Sequence[NewEvent], key: ApiKey | None = None) -> Intake:
    """Store events and fan them out, in one round trip, which checks the API key, too.

    When this returns, all of it is committed. If every event has a key, it is done once more when the connection was
    lost on the way (an event that was stored by then is answered as a duplicate).

    Args:
        database: where.
        events: what to store.
        key: the producer's API key; None: it needs none.

    Raises:
        Refused: the key may not; nothing was stored. `Elsewhere` if it may not for some of the events' tenants.
        Problem: 503, the database cannot be reached. It says whether the events may have been stored.
    """
    condition = None if key is None else authorisation(key, KeyScope.INGEST, [event.tenant for event in events])
    storing = _storing(events)
    keyed = all(event.key for event in events)
    runs = 0

    def work(connection: Connection) -> tuple[list[tuple[Any, ...]], bool]:
        nonlocal runs
        runs += 1
        rows, asked = commit_and_ask(connection, storing, MUST_CALL, condition=condition)
        # An answer that was lost may have been yes; a claimer too many does no harm, one too few does.
        return rows, asked is None or asked[0] or runs > 1

    try:
        rows, must_wake = database.run(work, repeatable=keyed)
    except psycopg.Error as error:
        refused = refusal(error, KeyScope.INGEST)
        if refused is None:
            raise
        raise refused from None
    except Unavailable as error:
        logger.warning("database unavailable", exc_info=error)
        raise Problem(503, _advice(error, keyed=keyed), headers={"retry-after": str(RETRY_AFTER_S)}) from error
    if len(events) == 1:
        ((row,),) = rows
        rows = [row]
    stored = tuple(Stored(*row) for row in rows)
    if not must_wake and any(one.duplicate for one in stored):
        must_wake = _must_wake_after_a_repeat(database)
    return Intake(stored, must_wake)


def _must_wake_after_a_repeat(database: Database) -> bool:
    """Ask again, not relying on a claimer that was only called.

    The producer repeats because it got no answer: whoever stored the event first may have died between its commit and
    that call, and on a quiet stack nobody else would call for hours.
    """
    try:
        row = database.run(
            lambda connection: connection.execute(
                "SELECT forbear.call_claimer(p_for_wakes => true, p_relying => false) AS called"
            ).fetchone(),
            repeatable=False,
        )
    except (Unavailable, psycopg.Error):
        # The events are committed, whatever becomes of the question. The lost answer may have been yes.
        logger.exception("whether a claimer is awake could not be asked: one is called")
        return True
    return row is None or bool(row["called"])


def _storing(events: Sequence[NewEvent]) -> Statement:
    """The statement that stores events."""
    columns: list[list[Any]] = [
        [event.tenant for event in events],
        [event.type for event in events],
        [event.content_type for event in events],
        [event.payload for event in events],
        [event.expires_at for event in events],
        [" ".join(matching_patterns(event.type)) for event in events],
        [event.key for event in events],
        [event.digest() if event.key else None for event in events],
    ]
    if len(events) == 1:
        return Statement(statement("ingest"), [value for (value,) in columns])
    return Statement(statement("ingest_batch"), columns)


def _advice(error: Unavailable, *, keyed: bool) -> str:
    if error.nothing_done:
        return "the database cannot be reached now; nothing was stored: send it again"
    if keyed:
        return "the database was lost on the way: send it again with the same key, it is stored once"
    return (
        "the database was lost on the way; whether it was stored is not known: sent again, it may be there twice. With"
        " an Idempotency-Key, sending again is safe"
    )
