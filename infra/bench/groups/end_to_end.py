"""How much goes through, from a POST to a 2xx that is settled.

100 endpoints and payloads of 1 KiB; every request is signed, every attempt kept. Ingest and the claimer are the
functions' own handlers, each in processes of its own, called as Lambda calls them; the receiver is another process.

- *drain*: one claimer works off a backlog; from its invocation to its return, when the last delivery is settled.
- *sustained*: ingest and one claimer side by side. Producers post batches at a steady pace a little above the aim, and
  events count from the first POST to the last one's settling. *Acknowledged* is from when a request was due to its
  answer; *accepted to settled* is told by the database's clock.
- *saturation*: the same, with the producers posting as fast as they are answered.
- *ingest*: events a second alone, with eight producers at once.
- *sender*: requests a second of the sender alone, with 100 in flight.
- CPU is that of the functions' processes (Python), and of all of PostgreSQL's.
- Statements, rows and WAL are counted on work of fixed size: batches of 500 claimed and settled, events posted one by
  one and in batches of 100. Statements are those that clients send; the others are run by functions within these. WAL
  is without full-page images, rows are those inserted, updated and deleted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from forbear.settling import BATCH
from infra.bench.claiming import claimer
from infra.bench.counting import Counted, counted
from infra.bench.figure import Aim, Figure, at_least, at_most
from infra.bench.filling import fill, make_endpoints, payload
from infra.bench.percentiles import percentile
from infra.bench.posting import Job, Posted, producers
from infra.bench.processor import server_cpu_s
from infra.bench.sending import send
from infra.bench.turns import take_turns
from infra.bench.world import Scale, World

NAME: Final = "end-to-end"
ENDPOINTS: Final = 100
FAN_OUTS: Final = (1, 5)
PRODUCERS: Final = 8
INGEST_BATCH: Final = 100
# The steady pace: four producers, each a batch of 25 at a time, 4 % above what is aimed at.
STEADY_PRODUCERS, STEADY_BATCH, STEADY_PER_S, STEADY_AIM = 4, 25, 2600, 2500
COUNTED_DELIVERIES: Final = 5000
COUNTED_SINGLES, COUNTED_BATCHES = 1000, 50
_PATIENCE_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class _Sizes:
    """How much is done in one repeat."""

    drained: int
    steady_s: float
    saturating: int
    singles: int
    batched: int
    sent: int


_FULL: Final = _Sizes(20_000, 60.0, 50_000, 20_000, 50_000, 50_000)
_QUICK: Final = _Sizes(1_500, 1.5, 2_500, 1_200, 3_000, 8_000)


@dataclass(slots=True)
class _Figures:
    """Collects values by name, and makes figures of them in the order of their first values."""

    conditions: dict[str, object]
    counted: bool = False
    _values: dict[str, list[float]] = field(default_factory=dict)
    _units: dict[str, tuple[str, Aim | None]] = field(default_factory=dict)

    def add(self, name: str, value: float | None, unit: str, aim: Aim | None = None) -> None:
        """Add a repeat's value; None: this machine does not tell it."""
        if value is not None:
            self._values.setdefault(name, []).append(value)
            self._units[name] = unit, aim

    def figures(self) -> Iterator[Figure]:
        """The figures."""
        for name, values in self._values.items():
            unit, aim = self._units[name]
            yield Figure(NAME, name, unit, tuple(values), aim, self.counted, self.conditions)


def measure(world: World, scale: Scale) -> Iterator[Figure]:
    """Measure the group; see the module."""
    sizes = _QUICK if scale.quick else _FULL
    yield from _counted(world, scale)
    for fan_out in FAN_OUTS:
        yield from _drain(world, scale, fan_out, sizes.drained)
    yield from _sustained(world, scale, sizes)
    yield from _ingest(world, scale, sizes)
    yield from _sender(world, scale, sizes.sent)


def _drain(world: World, scale: Scale, fan_out: int, deliveries: int) -> Iterator[Figure]:
    found = _Figures({"deliveries": deliveries, "receiver": world.receiver_name})
    world.fresh()
    name = f"drain, fan-out {fan_out}"
    environment = world.environment("claimer") | {"FORBEAR_LINGER_S": "0"}
    with world.connect() as connection, claimer(environment) as claiming:
        tenants = make_endpoints(world, connection, ENDPOINTS, fan_out)
        claiming.invoke()
        claiming.ended()  # it is connected, and warm
        for _ in range(scale.repeats):
            each = -(-deliveries // ENDPOINTS)
            expected = fill(connection, {tenant: [payload()] * each for tenant in tenants})
            connection.execute("CHECKPOINT")
            server_s = _server_cpu(world)
            claiming.invoke()
            done = claiming.ended()
            if done.tally["delivered"] != expected:
                raise RuntimeError(f"{expected} deliveries were due: {done.tally}")
            found.add(name, expected / done.took_s, "1/s", at_least(6000))
            found.add(f"{name}: Python CPU per delivery", done.cpu_s / expected * 1e6, "us", at_most(150))
            found.add(f"{name}: PostgreSQL CPU per delivery", server_s(expected), "us")
    yield from found.figures()


def _sustained(world: World, scale: Scale, sizes: _Sizes) -> Iterator[Figure]:
    world.fresh()
    every_s = STEADY_PRODUCERS * STEADY_BATCH / STEADY_PER_S
    steady = _Figures({"pace_per_s": STEADY_PER_S, "seconds": sizes.steady_s, "producers": STEADY_PRODUCERS})
    flat_out = _Figures({"events": sizes.saturating, "producers": STEADY_PRODUCERS, "batch": INGEST_BATCH})
    environment = world.environment("ingest")
    with (
        world.connect() as connection,
        claimer(world.environment("claimer") | {"FORBEAR_LINGER_S": "60"}) as claiming,
        producers(environment, STEADY_PRODUCERS) as producing,
    ):
        tenants = make_endpoints(world, connection, ENDPOINTS)
        jobs = _jobs(tenants, STEADY_PRODUCERS, STEADY_BATCH, round(sizes.steady_s * STEADY_PER_S), every_s)
        flat_out_jobs = _jobs(tenants, STEADY_PRODUCERS, INGEST_BATCH, sizes.saturating)
        for found, name, work in ((steady, "sustained", jobs), (flat_out, "saturation", flat_out_jobs)):
            for _ in range(scale.repeats):
                connection.execute("CHECKPOINT")
                since = _one(connection, "SELECT forbear.now()")
                server_s = _server_cpu(world)
                claiming.invoke()
                posted = producing.post(work)
                settled_at = _until_settled(connection)
                settled_s = server_s(posted.events)
                done = claiming.stop()
                if done.tally["delivered"] != posted.events:
                    raise RuntimeError(f"{posted.events} deliveries were expected: {done.tally}")
                aim = at_least(STEADY_AIM) if name == "sustained" else None
                found.add(name, posted.events / (settled_at - posted.began), "1/s", aim)
                _acknowledged(found, name, posted)
                for percent, lag_ms in zip((50, 99), _lags_ms(connection, since), strict=True):
                    found.add(f"{name}: accepted to settled, {percent}th percentile", lag_ms, "ms")
                for whose, cpu_s in (("ingest's", posted.cpu_s), ("the claimer's", done.cpu_s)):
                    found.add(f"{name}: {whose} Python CPU per event", cpu_s / posted.events * 1e6, "us")
                found.add(f"{name}: PostgreSQL CPU per event", settled_s, "us")
    yield from steady.figures()
    yield from flat_out.figures()


def _ingest(world: World, scale: Scale, sizes: _Sizes) -> Iterator[Figure]:
    world.fresh()
    singles = _Figures({"events": sizes.singles, "producers": PRODUCERS})
    batches = _Figures({"events": sizes.batched, "producers": PRODUCERS, "batch": INGEST_BATCH})
    with world.connect() as connection, producers(world.environment("ingest"), PRODUCERS) as producing:
        tenants = make_endpoints(world, connection, ENDPOINTS)
        single_jobs = _jobs(tenants, PRODUCERS, 1, sizes.singles)
        batch_jobs = _jobs(tenants, PRODUCERS, INGEST_BATCH, sizes.batched)
        for found, name, jobs, aim in (
            (singles, "ingest, single events", single_jobs, at_least(2500)),
            (batches, "ingest, in batches", batch_jobs, at_least(15_000)),
        ):
            for _ in range(scale.repeats):
                connection.execute("CHECKPOINT")
                server_s = _server_cpu(world)
                posted = producing.post(jobs)
                found.add(name, posted.per_s, "1/s", aim)
                _acknowledged(found, name, posted)
                found.add(f"{name}: Python CPU per event", posted.cpu_s / posted.events * 1e6, "us")
                found.add(f"{name}: PostgreSQL CPU per event", server_s(posted.events), "us")
    yield from singles.figures()
    yield from batches.figures()


def _sender(world: World, scale: Scale, requests: int) -> Iterator[Figure]:
    found = _Figures({"requests": requests, "in_flight": 100, "receiver": world.receiver_name})
    for _ in range(scale.repeats):
        sent = send(world.receiver_url, requests)
        found.add("sender", sent.per_s, "1/s")
        found.add("sender: Python CPU per request", sent.cpu_s / requests * 1e6, "us")
    yield from found.figures()


def _counted(world: World, scale: Scale) -> Iterator[Figure]:
    found = _Figures({"batch": BATCH, "deliveries": COUNTED_DELIVERIES}, counted=True)
    single = _Figures({"events": COUNTED_SINGLES}, counted=True)
    batch = _Figures({"batch": INGEST_BATCH, "events": COUNTED_BATCHES * INGEST_BATCH}, counted=True)
    for _ in range(1 if scale.quick else scale.repeats):  # it comes out the same
        world.fresh()
        with world.connect() as connection:
            tenants = make_endpoints(world, connection, ENDPOINTS)
            fill(connection, {tenant: [payload()] * (COUNTED_DELIVERIES // ENDPOINTS) for tenant in tenants})
        _add(found, "delivery", counted(world, partial(take_turns, world, COUNTED_DELIVERIES)), COUNTED_DELIVERIES)
        for figures, name, job in (
            (single, "event, one by one", Job(tenants, COUNTED_SINGLES)),
            (batch, "event, in batches", Job(tenants, COUNTED_BATCHES, INGEST_BATCH)),
        ):
            _add(figures, name, counted(world, partial(_post, world, job)), job.events)
    for figures in (found, single, batch):
        yield from figures.figures()


def _post(world: World, job: Job) -> None:
    with producers(world.environment("ingest"), 1) as producing:
        producing.post([job])


def _add(found: _Figures, name: str, cost: Counted, number: int) -> None:
    found.add(f"statements per {name}", cost.statements / number, "count")
    found.add(f"statements within these per {name}", cost.nested / number, "count")
    found.add(f"rows written per {name}", cost.rows / number, "count")
    found.add(f"WAL per {name}", cost.wal_bytes / number, "bytes")


def _acknowledged(found: _Figures, name: str, posted: Posted) -> None:
    for percent in (50, 99):
        found.add(f"{name}: acknowledged, {percent}th percentile", percentile(posted.latencies_ms, percent), "ms")


def _jobs(tenants: Sequence[str], number: int, batch: int, events: int, every_s: float = 0.0) -> list[Job]:
    """The jobs of so many producers, who post so many events together."""
    starts = [place * len(tenants) // number for place in range(number)]
    requests = -(-events // (number * batch))
    return [Job([*tenants[start:], *tenants[:start]], requests, batch, every_s) for start in starts]


def _server_cpu(world: World) -> Callable[[int], float | None]:
    """Gives what tells PostgreSQL's CPU since now, in microseconds for each of a number of things (Linux)."""
    if not Path("/proc/self/stat").exists():
        return lambda _number: None
    postmaster = world.server.pid
    before = server_cpu_s(postmaster)

    def since(number: int) -> float:
        return (server_cpu_s(postmaster) - before) / number * 1e6

    return since


def _until_settled(connection: Any) -> float:
    """Wait until the queue is empty. Gives when it was seen to be, by `time.monotonic`."""
    end = time.monotonic() + _PATIENCE_S
    while _one(connection, "SELECT EXISTS (SELECT FROM forbear.queue)"):
        if time.monotonic() > end:
            raise TimeoutError("the backlog is not worked off")
        time.sleep(0.01)
    return time.monotonic()


def _lags_ms(connection: Any, since: object) -> list[float]:
    """From an event's acceptance to its delivery's settling, for what ended since then: median and 99th percentile."""
    found: list[float] = _one(
        connection,
        "SELECT percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP ("
        "  ORDER BY extract(epoch FROM ended_at - uuid_extract_timestamp(event_id)) * 1000)"
        " FROM forbear.history WHERE ended_at >= %s",
        since,
    )
    return found


def _one(connection: Any, statement: str, *parameters: object) -> Any:
    row = connection.execute(statement, parameters or None).fetchone()
    return row[0] if row else None
