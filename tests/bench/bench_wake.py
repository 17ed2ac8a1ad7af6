"""How soon after the 202 a sleeping stack makes the first attempt, through the local stack's processes.

Each event is posted when the claimer has gone to sleep, so that ingest must call it; the schedule ticks once a minute.
Prints one JSON line.

    python -m tests.bench.bench_wake [--events 50]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import psycopg

from infra.local.deployment import bring_up
from infra.local.postgres import EmbeddedPostgres
from tests.e2e.world import running, until
from tests.functions.builders import KEY_FILE, key_file


async def measure(url: str, events: int) -> list[float]:
    """Milliseconds from the 202 to the request's arrival, each event."""
    took = []
    async with running(url, {"FORBEAR_LINGER_S": "0"}) as world:
        with psycopg.connect(url, autocommit=True) as connection:
            await world.endpoint()
            for n in range(events + 3):
                event_id = await world.post({"id": 1})
                answered = time.monotonic()
                await until(lambda n=n: len(world.receiver.receipts) > n)
                if n >= 3:  # the first ones start the functions
                    took.append((world.receiver.receipts[n].at - answered) * 1000)
                await world.ended(event_id, "delivered")

                def asleep() -> bool:
                    return connection.execute("SELECT count(*) FROM forbear.claimers").fetchone() == (0,)

                await until(asleep)
                await asyncio.sleep(0.2)
    return took


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="forbear-bench-") as folder:
        Path(folder).chmod(0o755)
        server = EmbeddedPostgres(Path(folder))
        server.start()
        try:
            os.environ[KEY_FILE] = f"{folder}/key"
            bring_up(server.url(), key_file())
            took = sorted(asyncio.run(measure(server.url(), arguments.events)))
        finally:
            server.stop()
    print(
        json.dumps(
            {
                "figure": "wake",
                "events": len(took),
                "median_ms": round(statistics.median(took), 1),
                "min_ms": round(took[0], 1),
                "p90_ms": round(took[int(len(took) * 0.9)], 1),
                "max_ms": round(took[-1], 1),
            }
        )
    )


if __name__ == "__main__":
    main()
