"""One database with a clock that stands, several claimers on it, and the API: what the machine drives.

Owns connections, the clock and the way back to an empty database. What should be is the subject of `expected`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

import replay
from forbear import intake
from forbear.attempting import Attempted, _without_attempt, judged
from forbear.db import Database, Unavailable
from forbear.envelope import NewEvent
from forbear.leases import Lease
from forbear.maintenance import maintain
from forbear.policy.verdict import Answer, DeadReason, ErrorClass, decide
from forbear.sender import Response
from forbear.settling import Settling, Tally
from forbear.store import Room, Settlement, Store, Turned
from tests.functions.builders import data_keys
from tests.functions.events import body_of, http_event

type Connection = psycopg.Connection[Any]

# Near midnight, so that what ends may end on another day than it began.
START = datetime(2030, 1, 1, 23, 40, tzinfo=UTC)
RETENTION_DAYS = 1
CLAIMERS = 3
EMPTIED = (
    *("queue_attempts", "queue", "history_attempts", "history", "events", "idempotency_keys", "replays", "wakes"),
    *("claimers", "uncounted", "subscriptions", "secrets", "lanes", "endpoints", "tenants"),
)
LANES = """
    SELECT l.endpoint_id, l.held, l.disabled_at, l.dead_letter, l.breaker_until, l.breaker_allows, l.probe_until,
           l.concurrency, l.concurrency_limit, CASE WHEN isfinite(l.wait_until) THEN l.wait_until END AS wait_until
    FROM forbear.lanes l
"""
# What a receiver, or Forbear itself, may make of an attempt: status, error, Retry-After. None of an attempt is made by
# `return` and `expired`.
ANSWERS: dict[str, tuple[int | None, ErrorClass | None, tuple[str, ...]]] = {
    "ok": (200, None, ()),
    "error": (500, None, ()),
    "busy": (429, None, ("7",)),
    "down": (503, None, ("90",)),
    "missing": (404, None, ()),
    "moved": (301, None, ()),
    "gone": (410, None, ()),
    "timeout": (None, ErrorClass.TIMEOUT, ()),
    "unsendable": (None, ErrorClass.UNSENDABLE, ()),
}
KINDS = ("ok", "ok", "error", "error", *ANSWERS, "return", "expired")


class LossyStore(Store):
    """A store whose next answer to a settle may be lost on the way: what it asked for is done all the same."""

    lose = False

    async def turn(
        self, settlement: Settlement | None = None, room: Room | None = None, *, step: bool = False
    ) -> Turned:
        turned = await super().turn(settlement, room, step=step)
        if self.lose and settlement is not None:
            self.lose = False
            raise Unavailable("the answer was lost")
        return turned


@dataclass(slots=True)
class Claimer:
    """A claimer's process: its connection, what it knows of lanes, what it holds, and what it has settled."""

    store: LossyStore
    settling: Settling
    hand: list[Lease]
    settled: list[Attempted]


class World:
    """The database of a test, with everybody who works on it.

    Args:
        connection: the owner's, in autocommit mode.
        ingest_url, claimer_url, owner_url: the database as these roles.
    """

    def __init__(self, connection: Connection, *, ingest_url: str, claimer_url: str, owner_url: str) -> None:
        self.connection = connection
        self.now = START
        self.rng = Random(0)
        self._runner = asyncio.Runner()
        self._producer = Database(ingest_url)
        self._claimer_url, self._owner_url = claimer_url, owner_url
        self.claimers = [self._claimer() for _ in range(CLAIMERS)]
        # The checks' queries are small; compiling them takes longer than running them.
        connection.execute("SET jit = off")

    def close(self) -> None:
        self._producer.close()
        for claimer in self.claimers:
            self._runner.run(claimer.store.aclose())
        self._runner.close()

    def reset(self) -> None:
        """Make everything as it was in the beginning, the clock included."""
        self.now, self.rng = START, Random(0)
        with self.connection.transaction():
            for table in EMPTIED:
                self.connection.execute(f"DELETE FROM forbear.{table}")
            self.connection.execute(
                "UPDATE forbear.control SET paused_at = NULL, resumed_at = '-infinity', held_total = '0',"
                " maintained_at = '-infinity', maintenance_called_at = '-infinity'"
            )
            self.connection.execute("UPDATE forbear.clock SET frozen_at = %s", (self.now,))
            days = {f"{self.now - timedelta(days=1) + timedelta(days=n):%Y%m%d}" for n in range(9)}
            for (name,) in self._partitions():
                if name[-8:] not in days:
                    self.connection.execute(f"DROP TABLE forbear.{name}")
            self.connection.execute("SELECT forbear.make_partitions()")
        for number in range(CLAIMERS):
            self.crash(number)

    def _partitions(self) -> list[Any]:
        return self.connection.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits i JOIN pg_class c"
            " ON c.oid = i.inhrelid WHERE c.relkind = 'r'"
        ).fetchall()

    def monotonic(self) -> float:
        """Seconds by the clock that stands."""
        return (self.now - START).total_seconds()

    def move(self, seconds: float) -> None:
        """Move the clock on."""
        self.now += timedelta(seconds=seconds)
        self.connection.execute("UPDATE forbear.clock SET frozen_at = %s", (self.now,))

    def rows(self, sql: str, *parameters: object) -> list[dict[str, Any]]:
        """What a query gives."""
        return self.connection.cursor(row_factory=dict_row).execute(sql, parameters).fetchall()

    def lanes(self) -> dict[UUID, dict[str, Any]]:
        """What holds, bars and limits each lane."""
        return {row["endpoint_id"]: row for row in self.rows(LANES)}

    # Producers and operators.

    def post(self, events: Sequence[NewEvent]) -> tuple[intake.Stored, ...]:
        """Store events in one batch."""
        return intake.store(self._producer, events).stored

    def replays(self, method: str, body: object = None, **query: str) -> tuple[int, Any]:
        """Call the replay function. Gives status and body."""
        event = http_event(
            method,
            "/",
            query=query,
            headers={"content-type": "application/json"},
            body=b"" if body is None else json.dumps(body).encode(),
        )
        result = replay.handler(event | {"routeKey": "$default"}, None)
        return result["statusCode"], body_of(result)

    def maintain(self) -> list[str]:
        """Run the maintenance function's work. Gives the partitions dropped."""
        return maintain(self._owner_url, RETENTION_DAYS)

    # Claimers.

    def _claimer(self) -> Claimer:
        store = LossyStore(self._claimer_url, data_keys(), self.monotonic)
        return Claimer(store, Settling(store, Tally()), [], [])

    def crash(self, number: int) -> None:
        """A claimer dies, and another one starts in its place: it knows of nothing."""
        claimer = self.claimers[number]
        claimer.settling, claimer.hand, claimer.settled = Settling(claimer.store, Tally()), [], []

    def claim(self, number: int, slots: int, payload_bytes: int, free: int | None) -> list[Lease]:
        """Lease what is due; the caller gives it into the claimer's hand, or does not."""
        claimer = self.claimers[number]
        leases = self._runner.run(claimer.store.claim(slots, payload_bytes, free))
        claimer.settling.learn(leases)
        return leases

    def settle(self, number: int, batch: Sequence[Attempted], *, lose: bool = False) -> None:
        """Settle as the claimer does; if the answer is lost, once more."""
        claimer = self.claimers[number]
        claimer.settling.results += batch
        claimer.store.lose = lose
        try:
            self._runner.run(claimer.settling.settle())
        except Unavailable:
            self._runner.run(claimer.settling.settle())
        assert not claimer.settling.results

    def reap(self, number: int) -> int:
        """Take over what has lapsed. Gives the number."""
        return self._runner.run(self.claimers[number].store.reap())

    def give_up(self, number: int, leases: Sequence[Lease]) -> int:
        """Give leases up. Gives the number taken over, everybody's."""
        return self._runner.run(self.claimers[number].store.give_up(leases))

    def replay_step(self, number: int) -> bool:
        """Run a step of a replay. Says whether there was one."""
        return self._runner.run(self.claimers[number].store.replay_step())

    def mark(self, number: int, *, awake: bool) -> None:
        """Mark a claimer as awake, or as asleep."""
        store, name = self.claimers[number].store, UUID(int=number + 1)
        self._runner.run(store.stay_awake(name, 5.0) if awake else store.fall_asleep(name))

    def attempted(self, lease: Lease, kind: str) -> Attempted:
        """What a lease's attempt comes to now when the receiver, or Forbear, does this (see `KINDS`)."""
        return attempted(lease, kind, self.now, self.monotonic(), self.rng)


def attempted(lease: Lease, kind: str, now: datetime, at: float, rng: Random) -> Attempted:
    """What a lease's attempt comes to when the receiver, or Forbear, does this (see `KINDS`).

    Args:
        lease: the delivery.
        kind: what happens.
        now: when, by the database's clock.
        at: the same by the store's `monotonic`.
        rng: for jitter.
    """
    if kind in {"return", "expired"}:
        dead = kind == "expired"
        made = _without_attempt(lease, "dead" if dead else "return", DeadReason.EXPIRED if dead else None, now)
        return replace(made, finished=at)
    status, error, retry_after = ANSWERS[kind]
    response = Response(status, b"", retry_after, kind.encode(), error, "" if error is None else kind, 0.01, None)
    decision = decide(lease.lane.policy, Answer(status, error, retry_after), lease.progress, now, rng)
    return judged(lease, response, decision, headers=b"", started=now, began=at, finished=at)
