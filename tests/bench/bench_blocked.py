"""What a dead endpoint's backlog costs the others: claim time and time to first attempt, with and without it.

A million (by default) pending deliveries wait behind an open breaker; another endpoint gets an event now and then. The
real SQL, loop and sender against an embedded PostgreSQL with fsync on. Prints one JSON line a figure.

    python -m tests.bench.bench_blocked [--backlog 1000000] [--rounds 200]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import uvloop

from forbear.guard import Guard
from forbear.loop import ClaimLoop, Limits
from forbear.sender import Request, Response
from forbear.sender.lean import LeanSender
from forbear.store import Store
from infra.local.deployment import bring_up
from infra.local.postgres import EmbeddedPostgres
from tests.bench.bench_drain import NoWaking
from tests.bench.receiver import receiver
from tests.functions.builders import KEY_FILE, data_keys, key_file, make_endpoint, post

type Connection = psycopg.Connection[Any]


class Timed:
    """A sender that notes when each attempt begins."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self._inner = LeanSender(Guard((ip_network("127.0.0.0/8"),), allow_http=True))

    async def send(self, request: Request) -> Response:
        self.began.append(time.perf_counter())
        return await self._inner.send(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


def fill(connection: Connection, endpoint: UUID, backlog: int) -> None:
    """Put a backlog behind an endpoint's open breaker."""
    (event,) = post(connection, b"{}", tenant="dead")
    connection.execute(
        "INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes)"
        " SELECT uuidv7(), %s, %s, forbear.now() - n * interval '1 millisecond', 2 FROM generate_series(1, %s) n",
        (event, endpoint, backlog),
    )
    connection.execute(
        "UPDATE forbear.lanes SET breaker_state = 'open', breaker_until = forbear.now() + interval '1 day',"
        " ready_at = forbear.now() + interval '1 day' WHERE endpoint_id = %s",
        (endpoint,),
    )


def claims(connection: Connection, rounds: int) -> list[float]:
    """Milliseconds of one claim that finds one delivery, each round."""
    took = []
    for _ in range(rounds):
        post(connection, b'{"a":1}', tenant="healthy")
        began = time.perf_counter()
        rows = connection.execute("SELECT delivery_id FROM forbear.claim(500, 33554432, 200)").fetchall()
        took.append((time.perf_counter() - began) * 1000)
        assert len(rows) == 1
        connection.execute("DELETE FROM forbear.queue WHERE id = %s", rows[0])
    return took


async def first_attempts(url: str, connection: Connection, rounds: int) -> list[float]:
    """Milliseconds from an event's commit to the begin of its first attempt, while a claimer is awake."""
    store, sender = Store(url, data_keys()), Timed()
    loop = ClaimLoop(store, sender, NoWaking(), Limits(linger_s=600), random.Random(1))
    running = asyncio.create_task(loop.run(600))
    took = []
    for n in range(rounds):
        await asyncio.to_thread(post, connection, b'{"a":1}', tenant="healthy")
        committed = time.perf_counter()
        while len(sender.began) <= n:
            await asyncio.sleep(0.0005)
        took.append((sender.began[n] - committed) * 1000)
        await asyncio.sleep(random.random() * 0.03)
    loop.stop()
    await running
    await sender.aclose()
    await store.aclose()
    return took


def figures(values: list[float]) -> dict[str, float]:
    """Median, 99th percentile and greatest."""
    ordered = sorted(values)
    return {
        "median_ms": round(statistics.median(ordered), 3),
        "p99_ms": round(ordered[int(len(ordered) * 0.99)], 3),
        "max_ms": round(ordered[-1], 3),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forbear-bench-") as folder, receiver() as (target, name):
        Path(folder).chmod(0o755)
        server = EmbeddedPostgres(Path(folder))
        server.start()
        try:
            os.environ[KEY_FILE] = f"{folder}/key"
            bring_up(server.url(), key_file())
            with psycopg.connect(server.url(), autocommit=True) as connection:
                dead = make_endpoint(connection, tenant="dead", url=f"{target}/dead")
                make_endpoint(connection, tenant="healthy", url=f"{target}/healthy")
                claims(connection, 20)
                medians = {}
                for backlog in (0, arguments.backlog):
                    if backlog:
                        fill(connection, dead, backlog)
                        connection.execute("CHECKPOINT")
                    for figure, values in (
                        ("claim", claims(connection, arguments.rounds)),
                        ("first_attempt", uvloop.run(first_attempts(server.url(), connection, arguments.rounds))),
                    ):
                        found = figures(values)
                        medians[figure, backlog] = found["median_ms"]
                        print(json.dumps({"figure": figure, "backlog": backlog, "receiver": name, **found}), flush=True)
                ratio = medians["claim", arguments.backlog] / medians["claim", 0]
                print(json.dumps({"figure": "claim_ratio", "ratio": round(ratio, 2)}))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
