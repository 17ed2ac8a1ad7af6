"""The job on procrastinate, with httpx. Run by the scratch environment's Python; imports nothing of Forbear's.

Tuned as its manual says under "launch a worker with concurrency": many jobs at once in one worker, a pool that has
connections for them, jobs deleted when they succeeded.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import httpx
from procrastinate import App, PsycopgConnector

CONCURRENCY, CONNECTIONS = 30, 10


async def main() -> None:
    """Fill the queue, or work until it is empty and say how long that took."""
    step, database, receiver, body = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[5]
    jobs, endpoints = int(sys.argv[4]), int(sys.argv[6])
    app = App(connector=PsycopgConnector(conninfo=database, min_size=4, max_size=CONNECTIONS))
    limits = httpx.Limits(max_connections=CONCURRENCY, max_keepalive_connections=CONCURRENCY)
    async with app.open_async(), httpx.AsyncClient(limits=limits, timeout=15) as client:

        async def deliver(url: str, body: str) -> None:
            response = await client.post(url, content=body, headers={"content-type": "application/json"})
            response.raise_for_status()

        task = app.task(deliver, name="deliver")
        if step == "fill":
            await app.schema_manager.apply_schema_async()
            for first in range(0, jobs, 1000):
                batch = range(first, min(first + 1000, jobs))
                await task.batch_defer_async(*({"url": f"{receiver}/{n % endpoints}", "body": body} for n in batch))
            return
        began, cpu = time.perf_counter(), time.process_time()
        await app.run_worker_async(
            wait=False, concurrency=CONCURRENCY, delete_jobs="successful", install_signal_handlers=False
        )
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        print(json.dumps({"seconds": took, "cpu_s": cpu}))


if __name__ == "__main__":
    asyncio.run(main())
