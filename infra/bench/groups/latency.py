"""How soon an event is with its receiver at light load, through the local stack's processes and the real handlers.

Events are posted over HTTP, at random times, twenty a second on average; measured from the moment before the request is
sent to the moment when the receiver (`recording`) has the whole of the delivery. The stack's gateway and the client
stand in this process for API Gateway, the functions run in environments of their own. Then each event is posted when
everything is asleep, so that ingest must call a claimer: measured from the post, and from the 202.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
import psycopg

from infra.bench.crowd import Crowd, settle_in
from infra.bench.figure import Aim, Figure, at_most
from infra.bench.filling import EVENT_TYPE, payload
from infra.bench.percentiles import percentile
from infra.bench.recording import Recorder, recorder
from infra.bench.world import Scale, World
from infra.local.deployment import local_stack

NAME = "latency"

PER_S = 20.0
TENANTS = 10
PAYLOAD_BYTES = 1024
WARM_UP = 10
PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Times:
    """An event's way, by `time.monotonic`."""

    posted: float
    answered: float
    received: float


def measure(world: World, scale: Scale) -> Iterator[Figure]:
    """Light load, and everything asleep."""
    events, wakes = (25, 2) if scale.quick else (600, 30)
    light = asyncio.run(awake(world, events, scale.repeats))
    asleep = asyncio.run(waking(world, wakes, scale.repeats))
    yield from figures("post to receipt", light, {50: at_most(15), 99: at_most(50)})
    yield from figures("post to receipt, everything asleep", asleep, {50: None, 90: None})
    answered = tuple(percentile(((t.received - t.answered) * 1000 for t in each), 50) for each in asleep)
    yield Figure(NAME, "202 to receipt, everything asleep, 50th percentile", "ms", answered)


def figures(name: str, repeats: list[list[Times]], aims: dict[int, Aim | None]) -> Iterator[Figure]:
    """The percentiles of the time from post to receipt."""
    conditions = {"events_per_s": PER_S, "events": len(repeats[0]), "payload_bytes": PAYLOAD_BYTES}
    for percent, aim in aims.items():
        values = tuple(percentile(((t.received - t.posted) * 1000 for t in each), percent) for each in repeats)
        yield Figure(NAME, f"{name}, {percent}th percentile", "ms", values, aim, False, conditions)


async def awake(world: World, events: int, repeats: int) -> list[list[Times]]:
    """Events at random times, while a claimer is awake or has just gone to sleep, as it comes."""
    async with running(world, {}) as stack:
        await stack.scattered(WARM_UP, 0)
        return [await stack.scattered(events, n) for n in range(1, repeats + 1)]


async def waking(world: World, events: int, repeats: int) -> list[list[Times]]:
    """One event after the other, each when all claimers have gone to sleep."""
    async with running(world, {"FORBEAR_LINGER_S": "0"}) as stack:
        await stack.scattered(WARM_UP, 0)
        return [[await stack.when_asleep() for _ in range(events)] for _ in range(repeats)]


class Stack:
    """A running local stack, a client of its API, and the receiver."""

    def __init__(
        self, client: httpx.AsyncClient, connection: psycopg.Connection[tuple[int]], receiver: Recorder
    ) -> None:
        self._client = client
        self._connection = connection
        self._receiver = receiver
        self._payload = payload(PAYLOAD_BYTES).decode()

    async def scattered(self, events: int, seed: int) -> list[Times]:
        """Post events at random times. Gives each one's way."""
        rng = random.Random(seed)  # noqa: S311 - the same times in each run
        due, posting = time.monotonic(), []
        for _ in range(events):
            due += rng.expovariate(PER_S)
            await asyncio.sleep(due - time.monotonic())
            posting.append(asyncio.create_task(self._post(rng.randrange(TENANTS))))
        return await self._received(await asyncio.gather(*posting))

    async def when_asleep(self) -> Times:
        """Post an event when nobody is awake. Gives its way."""
        await until(lambda: self._connection.execute("SELECT count(*) FROM forbear.claimers").fetchone() == (0,))
        await asyncio.sleep(0.2)  # the claimer's answer to Lambda is on its way
        return (await self._received([await self._post(0)]))[0]

    async def _post(self, tenant: int) -> tuple[str, float, float]:
        text = f'{{"tenant":"t{tenant}","type":"{EVENT_TYPE}","payload":{self._payload}}}'
        posted = time.monotonic()
        response = await self._client.post("/v1/events", content=text, headers={"content-type": "application/json"})
        answered = time.monotonic()
        return str(response.raise_for_status().json()["id"]), posted, answered

    async def _received(self, posts: list[tuple[str, float, float]]) -> list[Times]:
        at: dict[str, float] = {}

        def all_there() -> bool:
            at.update((each.event, each.at) for each in self._receiver.take())
            return all(event in at for event, _, _ in posts)

        await until(all_there)
        return [Times(posted, answered, at[event]) for event, posted, answered in posts]


@asynccontextmanager
async def running(world: World, environment: dict[str, str]) -> AsyncIterator[Stack]:
    """The stack on an empty database, for as long as the block lasts."""
    world.fresh()
    with recorder() as receiver, world.connect() as connection:
        settle_in(world, connection, Crowd(0, TENANTS, f"{receiver.url}/now/"))
        stack = local_stack(world.url(), world.key, environment=environment)
        await stack.start()
        try:
            async with httpx.AsyncClient(base_url=stack.api_url, timeout=30, trust_env=False) as client:
                yield Stack(client, connection, receiver)
        finally:
            await stack.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: it does not come.
    """
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {PATIENCE_S:g} s")
        await asyncio.sleep(0.02)
