"""Whether claiming, draining and taking in cost the same whatever lies about: each row compares databases in one thing.

They lie side by side on one server and take turns, statement by statement, after the same rest (vacuum, statistics,
checkpoint); at full scale they take some 20 GB. What is measured on each:

- claim: one call of forbear.claim for 500 deliveries, as the claimer makes it, after 500 more have come;
- drain: so many deliveries claimed, signed, sent and settled by ClaimLoop, Store and LeanSender in a process
  of its own (`draining` says why not the handler), from a queue in which more are due;
- ingest: one event to one endpoint by forbear.ingest, its COMMIT on disk.

A dead endpoint is one whose breaker is open, with a backlog behind it; dead ones come on top of the living, so that
the work is the same. (What an endpoint costs while its breaker is not open yet is `isolation`'s.) The row `held` is
another thing: what a transaction that somebody holds open costs, whose dead rows vacuum may not clear away. So is
`spread`, which has no aim: all of the endpoints have something to do, and a claim takes its batch from up to two
hundred lanes instead of ten.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace

import psycopg

from infra.bench.crowd import Crowd, break_off, finish, post, settle_in, wait
from infra.bench.draining import Drainer, drainer
from infra.bench.figure import Figure, at_least, at_most
from infra.bench.filling import payload
from infra.bench.sides import Side, side
from infra.bench.world import Scale, World

NAME = "flatness"

SPREAD = "spread"
BATCH = 500
UNITS = {"claim": "ms", "ingest": "ms", "drain": "1/s"}
CLAIM = "SELECT * FROM forbear.claim(%s, 33554432, 200, 1000)"
PAYLOAD = payload(100)
HELD_S, HELD_SLICE_S, HELD_DRAIN = 180.0, 30.0, 5_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What lies in a database.

    Attributes:
        endpoints: living ones.
        busy: those of them that have something to do, each its part of what waits and comes.
        waiting: due deliveries that stay waiting.
        dead: endpoints with an open breaker.
        behind: deliveries behind those, in all.
        finished: deliveries in today's history, with their attempts.
    """

    endpoints: int = 100
    busy: int = 100
    waiting: int = 1_000
    dead: int = 0
    behind: int = 0
    finished: int = 0

    @property
    def label(self) -> str:
        """What it is, in words."""
        words = [f"{self.waiting:,} waiting for {self.busy:,} of {self.endpoints:,} endpoints"]
        if self.dead:
            words.append(f"{self.dead} dead ones with {self.behind:,}")
        if self.finished:
            words.append(f"{self.finished:,} finished")
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured a repeat: claims, deliveries drained, events taken in."""

    claims: int
    drained: int
    ingests: int


def rows(*, quick: bool) -> dict[str, list[Shape]]:
    """The rows by their names, each with what is compared."""
    finished, behind, spread = (100_000, 20_000, 10_000) if quick else (10_000_000, 1_000_000, 1_000_000)
    depths = (1_000, 100_000) if quick else (1_000, 100_000, 10_000_000)
    counts = (10, 1_000) if quick else (10, 1_000, 100_000)
    found = {
        "waiting": [Shape(waiting=number) for number in depths],
        "endpoints": [Shape(endpoints=number, busy=10, waiting=spread) for number in counts],
        "dead": [Shape(), Shape(dead=1, behind=behind), Shape(dead=100, behind=behind)],
        "finished": [Shape(), Shape(finished=finished)],
    }
    if not quick:
        found[SPREAD] = [Shape(endpoints=number, busy=number, waiting=spread) for number in counts]
    return found


def measure(world: World, scale: Scale) -> Iterator[Figure]:
    """All rows, and at full scale the transaction held open."""
    effort = Effort(claims=2, drained=500, ingests=10) if scale.quick else Effort(15, 10_000, 100)
    with drainer(world.key) as draining:
        yield from measure_rows(world, rows(quick=scale.quick), effort, scale.repeats, draining)
        if not scale.quick:
            yield from held(world, HELD_S, HELD_SLICE_S, draining)


def measure_rows(
    world: World, compared: Mapping[str, Sequence[Shape]], effort: Effort, repeats: int, draining: Drainer
) -> Iterator[Figure]:
    """What each shape took, and for each row how far its shapes lie apart.

    Args:
        world: whose server and receiver.
        compared: the rows by their names.
        effort: how much a repeat.
        repeats: how often.
        draining: what drains.
    """
    shapes = list(dict.fromkeys(shape for row in compared.values() for shape in row))
    figures: dict[tuple[str, Shape], Figure] = {}
    with ExitStack() as stack:
        places = [stack.enter_context(prepared(world, f"shape{n}", shape)) for n, shape in enumerate(shapes)]
        took: dict[str, list[list[float]]] = {what: [[] for _ in places] for what in UNITS}
        for repeat in range(repeats + 1):
            for what, turns in (("claim", effort.claims), ("ingest", effort.ingests), ("drain", 1)):
                measured = [[place.take(what, effort, draining) for place in places] for _ in range(turns)]
                if repeat:  # the first time, connections are opened, plans made and caches filled
                    for values, column in zip(took[what], zip(*measured, strict=True), strict=True):
                        values.append(statistics.median(column))
    for what, unit in UNITS.items():
        for shape, values in zip(shapes, took[what], strict=True):
            conditions = {"receiver": world.receiver_name, "payload_bytes": len(PAYLOAD), **asdict(shape)}
            figures[what, shape] = Figure(NAME, f"{what}, {shape.label}", unit, tuple(values), conditions=conditions)
    yield from figures.values()
    for name, row in compared.items():
        for what in UNITS:
            medians = [figures[what, shape].median for shape in row]
            ratio = max(medians) / min(medians)
            conditions = {"of": [shape.label for shape in row]}
            aim = None if name == SPREAD else at_most(1.2)
            yield Figure(NAME, f"{name}: {what}, greatest to least", "ratio", (ratio,), aim, False, conditions)


class Place:
    """A database of a shape, ready to be measured."""

    def __init__(self, lying: Side, crowd: Crowd) -> None:
        self.side = lying
        self._crowd = crowd
        self._turn = 0

    def take(self, what: str, effort: Effort, draining: Drainer) -> float:
        """Measure one thing once, in its unit."""
        if what == "claim":
            return self.claim()
        return self.ingest() if what == "ingest" else self.drain(draining, effort.drained)

    def claim(self) -> float:
        """Milliseconds of a claim; what it took has left the queue afterwards.

        Raises:
            RuntimeError: it did not find a whole batch.
        """
        self.more(BATCH)
        connection = self.side.connection
        began = time.perf_counter()
        rows = connection.execute(CLAIM, (BATCH,)).fetchall()
        took = time.perf_counter() - began
        if len(rows) != BATCH:
            raise RuntimeError(f"a claim of {BATCH} found {len(rows)}")
        connection.execute("DELETE FROM forbear.queue WHERE id = ANY (%s)", ([row[0] for row in rows],))
        return took * 1000

    def drain(self, draining: Drainer, number: int) -> float:
        """Deliveries a second while so many are sent."""
        self.more(number)
        return draining.drain(self.side.claimer_url, number).per_s

    def ingest(self) -> float:
        """Milliseconds of one event's way in."""
        self._turn += 1
        tenant = self._crowd.tenants[self._turn % self._crowd.number]
        began = time.perf_counter()
        post(self.side.connection, [PAYLOAD], [tenant])
        return (time.perf_counter() - began) * 1000

    def more(self, number: int) -> None:
        """Have more deliveries wait."""
        wait(self.side.connection, self._crowd, number, PAYLOAD)


@contextmanager
def prepared(world: World, name: str, shape: Shape) -> Iterator[Place]:
    """A database of this shape and name, for as long as the block lasts."""
    with side(world, name) as lying:
        living = settle_in(world, lying.connection, Crowd(0, shape.endpoints, f"{world.receiver_url}/"))
        busy = replace(living, number=shape.busy)
        wait(lying.connection, busy, shape.waiting, PAYLOAD)
        if shape.dead:
            dead = Crowd(shape.endpoints, shape.dead, f"{world.receiver_url}/")
            settle_in(world, lying.connection, dead)
            wait(lying.connection, dead, shape.behind, PAYLOAD)
            break_off(lying.connection, dead)
        if shape.finished:
            finish(lying.connection, busy, shape.finished, PAYLOAD)
        lying.rest()
        yield Place(lying, busy)


def held(world: World, seconds: float, slice_s: float, draining: Drainer) -> Iterator[Figure]:
    """What a transaction held open by somebody else costs: two databases take turns, and in one of them it is open.

    Vacuum cannot clear away what a snapshot may still want to see, so that the queue's dead rows pile up there.

    Args:
        world: whose server and receiver.
        seconds: of work beside the open transaction.
        slice_s: a value of the figures for each so many seconds of it.
        draining: what drains.
    """
    shape = Shape(waiting=0)
    with (
        prepared(world, "held", shape) as with_it,
        prepared(world, "free", shape) as without,
        psycopg.connect(world.server.url(with_it.side.name)) as holder,
    ):
        for place in (with_it, without):
            place.drain(draining, HELD_DRAIN)
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM forbear.queue")
        rates: list[tuple[float, float]] = []
        claims: list[tuple[float, float]] = []
        slices: list[tuple[float, float]] = []
        worked_s = next_s = 0.0
        while worked_s < seconds:
            began = time.perf_counter()
            rate = with_it.drain(draining, HELD_DRAIN)
            worked_s += time.perf_counter() - began
            rates.append((rate, without.drain(draining, HELD_DRAIN)))
            claims.append((with_it.claim(), without.claim()))
            if worked_s >= min(next_s + slice_s, seconds):
                next_s = worked_s
                slices.append((_ratio(rates), _ratio(claims)))
                rates, claims = [], []
        holder.rollback()
    conditions = {"receiver": world.receiver_name, "seconds": seconds, "slice_s": slice_s, "drain": HELD_DRAIN}
    draining_ratios, claiming_ratios = zip(*slices, strict=True)
    name = "a transaction held open"
    yield Figure(
        NAME, f"{name}: drain, with to without", "ratio", draining_ratios, at_least(0.8), conditions=conditions
    )
    yield Figure(NAME, f"{name}: claim, with to without", "ratio", claiming_ratios, conditions=conditions)


def _ratio(pairs: Sequence[tuple[float, float]]) -> float:
    with_it, without = zip(*pairs, strict=True)
    return float(statistics.median(with_it) / statistics.median(without))
