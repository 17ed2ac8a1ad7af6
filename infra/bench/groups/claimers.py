"""Many claimers on one database: each is the handler in a process of its own, all started at once on one backlog.

The backlog lies with a hundred endpoints, or with one hot one. The receiver (`recording`) notes every delivery's id, so
that one sent twice is seen; deadlocks are PostgreSQL's own count; and again and again it is asked whether backends wait
for each other's locks. All of it (PostgreSQL, claimers, receiver) shares this machine's cores: more claimers than cores
show whether they get in each other's way, and not what they carry.

What one Aurora writer carries is EXTRAPOLATED: a second of CPU over the CPU time that PostgreSQL took here for a
delivery, its event's way in by a transaction of its own included. It says nothing of Aurora's storage, its CPUs or its
network, and leaves nothing in reserve.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg

from infra.bench.claiming import Claimer, claimer
from infra.bench.crowd import Crowd, post, settle_in, wait
from infra.bench.figure import Figure, at_most
from infra.bench.filling import payload
from infra.bench.processor import server_cpu_s
from infra.bench.recording import Receipt, Recorder, recorder
from infra.bench.world import Scale, World

NAME = "claimers"

PAYLOAD = payload(1024)
LOOK_EVERY_S = 0.02


@dataclass
class Seen:
    """What was seen of a number of claimers on one kind of backlog, a value a repeat."""

    per_s: list[float] = field(default_factory=list)
    database_us: list[float] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    twice: list[float] = field(default_factory=list)


def measure(world: World, scale: Scale) -> Iterator[Figure]:
    """Every number of claimers, on many endpoints and on one."""
    numbers, deliveries, ingests = ((1, 2), 1_000, 200) if scale.quick else ((1, 2, 4, 8), 20_000, 5_000)
    yield from together(world, numbers, deliveries, ingests, scale.repeats)


def together(world: World, numbers: tuple[int, ...], deliveries: int, ingests: int, repeats: int) -> Iterator[Figure]:
    """All figures.

    Args:
        world: whose database.
        numbers: of claimers.
        deliveries: a backlog.
        ingests: events taken in one by one, to know what PostgreSQL takes for one.
        repeats: how often.
    """
    with recorder() as receiver, world.connect() as connection:
        many = settle_in(world, connection, Crowd(0, 100, f"{receiver.url}/now/"))
        hot = settle_in(world, connection, Crowd(100, 1, f"{receiver.url}/now/"))
        backlogs = {f"{many.number} endpoints": many, "one hot endpoint": hot}
        seen = {(label, number): Seen() for label in backlogs for number in numbers}
        environment = {**world.environment("claimer"), "FORBEAR_LINGER_S": "0", "FORBEAR_MAX_CLAIMERS": "50"}
        ground, before = Ground(world, connection, receiver), deadlocks(connection)
        with ExitStack() as stack:
            functions = [stack.enter_context(claimer(environment)) for _ in range(max(numbers))]
            drain(ground, functions, many, len(functions) * 100, Seen())  # the first one connects
            for _ in range(repeats):
                for label, crowd in backlogs.items():
                    for number in numbers:
                        drain(ground, functions[:number], crowd, deliveries, seen[label, number])
        # Their connections are closed, so what they counted has been written.
        locked = deadlocks(connection) - before
        ingest_us = ingest_cost(world, connection, hot, ingests)
    for (label, number), each in seen.items():
        yield from figures(f"{number} on {label}", each, {"claimers": number, "deliveries": deliveries})
    yield Figure(NAME, "deadlocks", "count", (locked,), at_most(0), conditions={"claimers": list(numbers)})
    yield Figure(NAME, "database CPU of an event's way in", "us", (ingest_us,), conditions={"events": ingests})
    alone = seen[f"{many.number} endpoints", numbers[0]]
    yield Figure(
        NAME,
        "EXTRAPOLATED: what one Aurora writer carries, a vCPU",
        "1/s",
        tuple(1e6 / (value + ingest_us) for value in alone.database_us),
        conditions={"from": "database CPU here, ingest included; a whole CPU, nothing in reserve", "fan_out": 1},
    )


def figures(label: str, seen: Seen, conditions: dict[str, object]) -> Iterator[Figure]:
    """What was seen of a number of claimers on a backlog."""
    yield Figure(NAME, f"throughput, {label}", "1/s", tuple(seen.per_s), conditions=conditions)
    yield Figure(NAME, f"database CPU a delivery, {label}", "us", tuple(seen.database_us), conditions=conditions)
    yield Figure(
        NAME, f"backends waiting for a lock, {label}", "ratio", tuple(seen.waiting), at_most(0.1), conditions=conditions
    )
    yield Figure(NAME, f"sent twice, {label}", "count", tuple(seen.twice), at_most(0), conditions=conditions)


@dataclass(frozen=True, slots=True)
class Ground:
    """What all of it happens on."""

    world: World
    connection: psycopg.Connection[Any]
    receiver: Recorder


def drain(ground: Ground, functions: list[Claimer], crowd: Crowd, deliveries: int, seen: Seen) -> None:
    """Have some claimers drain a backlog together, and add what was seen.

    Raises:
        RuntimeError: they did not deliver all of it.
    """
    world, receiver = ground.world, ground.receiver
    wait(ground.connection, crowd, deliveries, PAYLOAD)
    ground.connection.execute("CHECKPOINT")
    receiver.take()
    cpu_s = server_cpu_s(world.server.pid)
    with Watch(world) as watch:
        for function in functions:
            function.invoke()
        runs = [function.ended() for function in functions]
    cpu_s = server_cpu_s(world.server.pid) - cpu_s
    delivered = sum(run.tally["delivered"] for run in runs)
    if delivered != deliveries:
        raise RuntimeError(f"{delivered} of {deliveries} were delivered")
    receipts = receiver.take()
    # From the first one's begin to the last receipt: whoever finds nothing left stays a little.
    seen.per_s.append(deliveries / (max(each.at for each in receipts) - min(run.began for run in runs)))
    seen.database_us.append(cpu_s / deliveries * 1e6)
    seen.waiting.append(watch.waiting / max(1, watch.working))
    seen.twice.append(sent_twice(receipts))


def sent_twice(receipts: list[Receipt]) -> int:
    """How many requests there were beyond one a delivery."""
    return len(receipts) - len({each.delivery for each in receipts})


class Watch:
    """Looks what the claimers' backends do, as long as the block lasts.

    Attributes:
        working: backends that were busy with a statement, summed up over all looks.
        waiting: those of them that waited for a lock.
    """

    def __init__(self, world: World) -> None:
        self.working = self.waiting = 0
        self._connection = world.connect()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._connection.close()

    def _look(self) -> None:
        while not self._over.wait(LOOK_EVERY_S):
            working, waiting = self._connection.execute(
                "SELECT count(*), count(*) FILTER (WHERE wait_event_type = 'Lock') FROM pg_stat_activity"
                " WHERE usename = 'forbear_claimer' AND state = 'active' AND datname = current_database()"
            ).fetchone() or (0, 0)
            self.working += working
            self.waiting += waiting


def deadlocks(connection: psycopg.Connection[Any]) -> int:
    """How many PostgreSQL has seen in this database."""
    row = connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    return int(row[0]) if row else 0


def ingest_cost(world: World, connection: psycopg.Connection[Any], crowd: Crowd, events: int) -> float:
    """Microseconds of PostgreSQL's CPU time for an event with one delivery, in a transaction of its own."""
    connection.execute("CHECKPOINT")
    cpu_s = server_cpu_s(world.server.pid)
    for _ in range(events):
        post(connection, [PAYLOAD], [crowd.tenants[0]])
    return (server_cpu_s(world.server.pid) - cpu_s) / events * 1e6
