"""The sender alone: one process on uvloop, plain HTTP over loopback, no database."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Final

import uvloop

from forbear.guard import Guard
from forbear.sender import Request
from forbear.sender.lean import LeanSender
from forbear.urls import parse
from infra.bench.filling import payload

IN_FLIGHT: Final = 100
_WARM: Final = 500
# About what Forbear sends.
_HEADERS: Final = (
    (b"content-type", b"application/json"),
    (b"user-agent", b"Forbear/0.1"),
    (b"webhook-id", b"x" * 30),
    (b"webhook-timestamp", b"1" * 10),
    (b"webhook-signature", b"x" * 47),
    (b"idempotency-key", b"x" * 30),
    (b"forbear-attempt", b"1"),
)


class SendingFailed(Exception):
    """The receiver answered something else than 200."""


@dataclass(frozen=True, slots=True)
class Sent:
    """Requests a second, and the process's CPU time for all of them, in seconds."""

    per_s: float
    cpu_s: float


def send(url: str, requests: int) -> Sent:
    """Send requests with `IN_FLIGHT` in flight, on connections that are open by then.

    Raises:
        SendingFailed: one did not succeed.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_send(url, requests))


async def _send(url: str, requests: int) -> Sent:
    request = Request(parse(f"{url}/hook", allow_http=True), _HEADERS, payload(), 15.0, 5.0)
    sender = LeanSender(Guard((ip_network("127.0.0.0/8"),), allow_http=True))

    async def work(left: range) -> None:
        for _ in left:
            response = await sender.send(request)
            if response.status != 200:
                raise SendingFailed(f"unexpected: {response}")

    async def together(number: int) -> None:
        await asyncio.gather(*(work(range(number // IN_FLIGHT)) for _ in range(IN_FLIGHT)))

    await together(_WARM)
    began, cpu_s = time.perf_counter(), time.process_time()
    await together(requests)
    took, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s
    await sender.aclose()
    return Sent(requests / took, cpu_s)
