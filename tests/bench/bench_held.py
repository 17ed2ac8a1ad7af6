"""What a transaction that somebody holds open costs the queue: the rate of claims with it and without.

Vacuum cannot clear away what a snapshot may still want to see, so that the queue's dead rows pile up: each database has
its own. Two databases of one server take turns, a drain each, and in one of them a REPEATABLE READ transaction stays
open until that one has worked for three minutes (by default) while it was. The real SQL and loop against an embedded
PostgreSQL with fsync on, with a sender that answers at once. Prints one JSON line a side and half minute, and one with
the ratio: 0.8 or more is wanted.

    python -m tests.bench.bench_held [--seconds 180] [--events 5000] [--endpoints 100]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import uvloop

from forbear.data_keys import make_data_keys
from forbear.loop import ClaimLoop, Limits
from forbear.migrations import migrate
from forbear.sender import Request, Response
from forbear.store import Store
from forbear.vault import make_key_file, wrapping
from infra.local.postgres import EmbeddedPostgres
from tests.bench.bench_drain import NoWaking
from tests.functions.builders import KEY_FILE, data_keys, key_file, make_endpoint, one, post

type Connection = psycopg.Connection[Any]
BODY = json.dumps({"filler": "x" * 485}).encode()
SLICE_S = 30.0


class Answering:
    """A sender whose receivers answer at once."""

    async def send(self, request: Request) -> Response:
        del request
        return Response(204, b"", (), b"", None, "", 0.001, "127.0.0.1:80")

    async def aclose(self) -> None:
        pass


class TimedStore(Store):
    """Adds up how long its claims took."""

    claiming_s = 0.0

    async def claim(self, slots: int, payload_bytes: int, free: int | None = None) -> Any:
        began = time.perf_counter()
        try:
            return await super().claim(slots, payload_bytes, free)
        finally:
            self.claiming_s += time.perf_counter() - began


@dataclass
class Side:
    """One of the two databases, and what it has done: in all, and since the last line was printed."""

    name: str
    connection: Connection
    store: TimedStore
    events: int = 0
    draining_s: float = 0.0
    working_s: float = 0.0
    before: tuple[int, float, float] = field(default=(0, 0.0, 0.0))

    def drain(self, runner: asyncio.Runner, events: int, endpoints: int) -> None:
        """Fill the queue, and drain it."""
        began = time.perf_counter()
        for n in range(endpoints):
            post(self.connection, *[BODY] * (events // endpoints), tenant=f"t{n}")
        loop = ClaimLoop(self.store, Answering(), NoWaking(), Limits(linger_s=0.0), random.Random(1))
        filled = time.perf_counter()
        tally = runner.run(loop.run(600))
        self.draining_s += time.perf_counter() - filled
        self.working_s += time.perf_counter() - began
        self.events += tally.delivered

    def line(self) -> dict[str, Any]:
        """What it has done since the last line."""
        events, draining_s, claiming_s = self.before
        self.before = self.events, self.draining_s, self.store.claiming_s
        done = self.events - events
        return {
            "side": self.name,
            "worked_s": round(self.working_s),
            "claimed_per_s": round(done / (self.draining_s - draining_s)),
            "claim_us_per_delivery": round((self.store.claiming_s - claiming_s) / done * 1e6),
            "queue_mb": round(one(self.connection, "SELECT pg_total_relation_size('forbear.queue')") / 1e6, 1),
            "lanes_mb": round(one(self.connection, "SELECT pg_total_relation_size('forbear.lanes')") / 1e6, 1),
        }


def side(server: EmbeddedPostgres, name: str, endpoints: int) -> Side:
    """A fresh database with its endpoints."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    connection = psycopg.connect(server.url(name), autocommit=True)
    migrate(connection)
    make_data_keys(connection, wrapping(str(key_file())))
    for n in range(endpoints):
        make_endpoint(connection, tenant=f"t{n}")
    return Side(name, connection, TimedStore(server.url(name), data_keys()))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=180.0, help="of work beside the open transaction")
    parser.add_argument("--events", type=int, default=5_000, help="a drain")
    parser.add_argument("--endpoints", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forbear-bench-") as folder:
        Path(folder).chmod(0o755)
        server = EmbeddedPostgres(Path(folder))
        server.start()
        try:
            os.environ[KEY_FILE] = f"{folder}/key"
            make_key_file(key_file())
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                measure(server, runner, arguments)
        finally:
            server.stop()


def measure(server: EmbeddedPostgres, runner: asyncio.Runner, arguments: argparse.Namespace) -> None:
    """Let the two databases take turns, and print what came of it."""
    sides = held, _ = [side(server, name, arguments.endpoints) for name in ("held", "free")]
    for each in sides:
        for _ in range(3):
            each.drain(runner, arguments.events, arguments.endpoints)
        each.events, each.draining_s, each.working_s, each.store.claiming_s = 0, 0.0, 0.0, 0.0
    with psycopg.connect(server.url(held.name)) as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM forbear.queue")
        next_line_s = 0.0
        last: list[dict[str, Any]] = []
        while held.working_s < arguments.seconds:
            for each in sides:
                each.drain(runner, arguments.events, arguments.endpoints)
            if held.working_s >= min(next_line_s + SLICE_S, arguments.seconds):
                next_line_s = held.working_s
                last = [each.line() for each in sides]
                for line in last:
                    print(json.dumps(line), flush=True)
        holder.rollback()
    rates = [each.events / each.draining_s for each in sides]
    print(
        json.dumps(
            {
                "figure": "held",
                "ratio": round(rates[0] / rates[1], 3),
                "ratio_at_the_end": round(last[0]["claimed_per_s"] / last[1]["claimed_per_s"], 3),
                "held_per_s": round(rates[0]),
                "free_per_s": round(rates[1]),
                **vars(arguments),
            }
        )
    )
    for each in sides:
        each.connection.close()
        runner.run(each.store.aclose())


if __name__ == "__main__":
    main()
