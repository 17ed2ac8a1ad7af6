"""The job on pgqueuer, with aiohttp. Run by the scratch environment's Python; imports nothing of Forbear's.

Tuned as its benchmark is: asyncpg under uvloop, and jobs fetched, and their ends written, in batches.
"""

from __future__ import annotations

import json
import sys
import time

import aiohttp
import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, QueueManager
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode

BATCH, AT_ONCE = 50, 200


async def main() -> None:
    """Fill the queue, or work until it is empty and say how long that took."""
    step, database, receiver, body = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[5]
    jobs, endpoints = int(sys.argv[4]), int(sys.argv[6])
    connection = await asyncpg.connect(database)
    queries = Queries(AsyncpgDriver(connection))
    if step == "fill":
        await queries.install()
        for first in range(0, jobs, 1000):
            batch = range(first, min(first + 1000, jobs))
            payloads: list[bytes | None] = [
                json.dumps({"url": f"{receiver}/{n % endpoints}", "body": body}).encode() for n in batch
            ]
            await queries.enqueue(["deliver"] * len(batch), payloads, [0] * len(batch))
        await connection.close()
        return
    manager = QueueManager(queries)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)) as client:

        async def deliver(job: Job) -> None:
            asked = json.loads(job.payload or b"")
            headers = {"content-type": "application/json"}
            async with client.post(asked["url"], data=asked["body"].encode(), headers=headers) as response:
                await response.read()
                response.raise_for_status()

        manager.entrypoint("deliver")(deliver)
        began, cpu = time.perf_counter(), time.process_time()
        await manager.run(batch_size=BATCH, max_concurrent_tasks=AT_ONCE, mode=QueueExecutionMode.drain)
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
    print(json.dumps({"seconds": took, "cpu_s": cpu}))


if __name__ == "__main__":
    uvloop.run(main())
