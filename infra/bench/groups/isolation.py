"""What some endpoints' trouble costs the others.

- Ninety healthy endpoints get their events while ten others, with more due than they will ever take, hang until just
  under their timeout and then answer 200, so that no breaker ever opens. Measured is the time from an event's COMMIT to
  its receipt, at the healthy ones, without and with the hanging ones beside them, in turns. The claimer is the handler
  in a process of its own, awake all the time; the receiver is `recording`.
- One noisy tenant has 10,000 deliveries due and takes all it may get; then ninety-nine quiet tenants get one each.
  Counted are the claims, each as the claimer makes it, until every quiet delivery has been leased; nothing is settled
  meanwhile.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from forbear.ids import Prefix, encode
from infra.bench.claiming import claimer
from infra.bench.crowd import Crowd, post, settle_in, wait
from infra.bench.figure import Figure, at_most
from infra.bench.filling import payload
from infra.bench.percentiles import percentile
from infra.bench.recording import Recorder, recorder
from infra.bench.world import Scale, World

NAME = "isolation"

PAYLOAD = payload(500)
SLOTS, BATCH = 1000, 500
PATIENCE_S = 60.0
CLAIM = "SELECT endpoint_id FROM forbear.claim(%s, 33554432, 200, %s)"


@dataclass(frozen=True, slots=True)
class Load:
    """The load of the first part.

    Attributes:
        seconds: for how long, each time.
        per_s: events a second for the healthy ones together.
        hang_s: how long the one that hangs longest takes; the others a fiftieth less each.
        timeout_s: their timeout.
        due: how many deliveries each of the hanging ones has due.
    """

    seconds: float
    per_s: float
    hang_s: float
    timeout_s: float
    due: int


def measure(world: World, scale: Scale) -> Iterator[Figure]:
    """Both parts."""
    load = Load(0.7, 200, 0.9, 1.0, 300) if scale.quick else Load(15.0, 200, 4.8, 5.0, 20_000)
    yield from hanging(world, load, scale.repeats)
    world.fresh()
    yield noisy(world)


def hanging(world: World, load: Load, repeats: int) -> Iterator[Figure]:
    """Healthy endpoints without and with hanging ones beside them."""
    without: list[list[float]] = []
    beside: list[list[float]] = []
    with recorder() as receiver, world.connect() as connection:
        healthy = settle_in(world, connection, Crowd(0, 90, f"{receiver.url}/now/"))
        # Each has its own time: all of them at once, again and again, would be a drum that nobody beats out there.
        stuck = [Crowd(90 + n, 1, f"{receiver.url}/late/{load.hang_s * (1 - n / 50):g}/") for n in range(10)]
        for each in stuck:
            settle_in(world, connection, each, {"timeout_s": load.timeout_s})
        environment = {**world.environment("claimer"), "FORBEAR_LINGER_S": "60"}
        with claimer(environment) as function:
            function.invoke()
            trickle(connection, receiver, healthy, load)  # connections are opened and caches filled
            for _ in range(repeats):
                without.append(trickle(connection, receiver, healthy, load))
                for each in stuck:
                    wait(connection, each, load.due, PAYLOAD)
                in_flight = until_steady(receiver)
                beside.append(trickle(connection, receiver, healthy, load))
                connection.execute(
                    "DELETE FROM forbear.queue WHERE endpoint_id <> ALL (%s) AND lease_token IS NULL", (healthy.ids,)
                )
                until(lambda: not receiver.unanswered())
            function.stop()
    conditions = {
        "healthy": healthy.number,
        "hanging": len(stuck),
        "hanging_for_s": load.hang_s,
        "timeout_s": load.timeout_s,
        "hanging_in_flight": in_flight,
        "events_per_s": load.per_s,
        "seconds": load.seconds,
    }
    for percent in (50, 99):
        for name, times in (("without", without), ("beside", beside)):
            values = tuple(percentile(each, percent) for each in times)
            yield Figure(
                NAME, f"healthy, {name} hanging ones, {percent}th percentile", "ms", values, None, False, conditions
            )
    ratios = tuple(percentile(b, 99) / percentile(a, 99) for a, b in zip(without, beside, strict=True))
    yield Figure(
        NAME, "healthy at the 99th percentile, beside to without", "ratio", ratios, at_most(1.5), False, conditions
    )


def trickle(connection: psycopg.Connection[Any], receiver: Recorder, crowd: Crowd, load: Load) -> list[float]:
    """Milliseconds from each event's COMMIT to its receipt, while events come at random.

    Raises:
        TimeoutError: they did not all arrive.
    """
    rng, committed = random.Random(1), {}  # noqa: S311 - the same load each time
    receiver.take()
    due = time.monotonic()
    end = due + load.seconds
    while (due := due + rng.expovariate(load.per_s)) < end:
        time.sleep(max(0.0, due - time.monotonic()))
        (event,) = post(connection, [PAYLOAD], [rng.choice(crowd.tenants)])
        committed[event] = time.monotonic()
    received: dict[str, float] = {}

    def arrived() -> bool:
        received.update((each.event, each.at) for each in receiver.take() if each.path.startswith("/now/"))
        return len(received) >= len(committed)

    until(arrived)
    return [(received[encode(Prefix.EVENT, event)] - at) * 1000 for event, at in committed.items()]


def until_steady(receiver: Recorder) -> int:
    """Wait until no more requests are in flight than a moment ago. Gives their number."""
    before, now = -1, 0
    while now > before or not now:
        time.sleep(0.3)
        before, now = now, receiver.unanswered()
    return now


def noisy(world: World) -> Figure:
    """In which claim the last of the quiet tenants' deliveries is leased."""
    with world.connect() as connection:
        loud = settle_in(world, connection, Crowd(0, 1, f"{world.receiver_url}/"))
        quiet = settle_in(world, connection, Crowd(1, 99, f"{world.receiver_url}/"))
        wait(connection, loud, 10_000, PAYLOAD)
        leased = 0
        while (took := len(claim(connection, SLOTS - leased))) > 0:
            leased += took
        post(connection, [PAYLOAD] * quiet.number, quiet.tenants)
        missing, claims = set(quiet.ids), 0
        while missing:
            lanes = claim(connection, SLOTS - leased)
            if not lanes:
                raise RuntimeError(f"{len(missing)} quiet deliveries are not claimed")
            claims, leased = claims + 1, leased + len(lanes)
            missing.difference_update(lanes)
    conditions = {"noisy_due": 10_000, "noisy_leased_before": leased - quiet.number, "quiet": quiet.number}
    return Figure(
        NAME, "claims until every quiet tenant's delivery starts", "count", (claims,), at_most(2), True, conditions
    )


def claim(connection: psycopg.Connection[Any], free: int) -> list[UUID]:
    """Lease what a claimer with so many free slots would. Gives each lease's endpoint."""
    rows = connection.execute(CLAIM, (min(BATCH, free), free)).fetchall()
    return [row[0] for row in rows]


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: it does not come.
    """
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {PATIENCE_S:g} s")
        time.sleep(0.02)
