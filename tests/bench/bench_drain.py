"""How fast a claimer drains a backlog: claim, sign, send, settle, attempts kept.

The real SQL, loop, signing and sender against an embedded PostgreSQL with fsync on and a receiver in another process,
everything on this machine. Prints one JSON line a repeat and one with the spread.

    python -m tests.bench.bench_drain [--events 20000] [--endpoints 100] [--repeats 3] [--payload 1000]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import tempfile
import time
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import psycopg
import uvloop

from forbear.guard import Guard
from forbear.loop import ClaimLoop, Limits
from forbear.sender.lean import LeanSender
from forbear.store import Store
from infra.local.deployment import bring_up
from infra.local.postgres import EmbeddedPostgres
from tests.bench.receiver import receiver
from tests.functions.builders import KEY_FILE, data_keys, key_file, make_endpoint, post


class NoWaking:
    """There is no platform here."""

    async def keep_ticking(self) -> bool:
        return True

    async def stop_ticking(self, until: float | None) -> bool:
        return True

    async def call(self, reason: str) -> None:
        pass


async def drain(url: str, events: int) -> dict[str, float]:
    """Run one claimer until the backlog is gone."""
    store, sender = Store(url, data_keys()), LeanSender(Guard((ip_network("127.0.0.0/8"),), allow_http=True))
    loop = ClaimLoop(store, sender, NoWaking(), Limits(linger_s=0.0), random.Random(1))
    began, cpu = time.perf_counter(), time.process_time()
    tally = await loop.run(300)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    await sender.aclose()
    await store.aclose()
    if tally.delivered != events:
        raise SystemExit(f"delivered {tally.delivered} of {events}: {tally}")
    return {"deliveries_per_s": events / took, "python_cpu_us_per_delivery": cpu / events * 1e6}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--endpoints", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--payload", type=int, default=1000, help="bytes")
    parser.add_argument("--profile", action="store_true", help="print where Python's time goes")
    arguments = parser.parse_args()
    rates = []
    with tempfile.TemporaryDirectory(prefix="forbear-bench-") as folder, receiver() as (target, name):
        Path(folder).chmod(0o755)
        server = EmbeddedPostgres(Path(folder))
        server.start()
        try:
            os.environ[KEY_FILE] = f"{folder}/key"
            bring_up(server.url(), key_file())
            with psycopg.connect(server.url(), autocommit=True) as connection:
                settings = {
                    setting: connection.execute(f"SHOW {setting}").fetchone()[0]  # type: ignore[index]
                    for setting in ("server_version", "fsync", "synchronous_commit", "full_page_writes")
                }
                for n in range(arguments.endpoints):
                    make_endpoint(connection, tenant=f"t{n}", url=f"{target}/{n}")
                for _ in range(arguments.repeats):
                    rates.append(repeat(server.url(), connection, arguments))
                    print(json.dumps(rates[-1]), flush=True)
        finally:
            server.stop()
    values = [rate["deliveries_per_s"] for rate in rates]
    print(
        json.dumps(
            {
                "figure": "drain",
                "median_per_s": round(statistics.median(values)),
                "min": round(min(values)),
                "max": round(max(values)),
                "receiver": name,
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                **vars(arguments),
                **settings,
            }
        )
    )


def repeat(url: str, connection: psycopg.Connection[Any], arguments: argparse.Namespace) -> dict[str, float]:
    """Fill the queue and drain it once."""
    body = json.dumps({"filler": "x" * max(0, arguments.payload - 15)}).encode()
    left = arguments.events
    while left:
        for n in range(arguments.endpoints):
            batch = min(left, 100, -(-arguments.events // arguments.endpoints))
            if batch:
                post(connection, *[body] * batch, tenant=f"t{n}")
            left -= batch
    connection.execute("CHECKPOINT")
    if arguments.profile:
        import cProfile

        profile = cProfile.Profile()
        found = profile.runcall(lambda: uvloop.run(drain(url, arguments.events)))
        profile.print_stats("tottime")
        return found
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(drain(url, arguments.events))


if __name__ == "__main__":
    main()
