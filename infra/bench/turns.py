"""A claimer's turns with nothing left to the clock: claim a full batch, settle it, until nothing is due.

The claim loop's batches grow and shrink with time; these do not, so what they cost can be counted. Requests are built
and signed as ever, and answered at once by a sender that sends nothing.
"""

from __future__ import annotations

import asyncio
import random
from typing import Final

from forbear.attempting import attempt
from forbear.data_keys import DataKeys
from forbear.sender import Request, Response
from forbear.settling import BATCH, Settling, Tally
from forbear.store import Store
from forbear.vault import Purpose, wrapping
from infra.bench.world import World

_PAYLOAD_BYTES: Final = 32 << 20
_FREE: Final = 1000
# What nginx answers to a POST.
_HEADERS: Final = (
    b"Server: nginx/1.26.3\r\nDate: Mon, 01 Jan 2026 00:00:00 GMT\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 0\r\nConnection: keep-alive"
)


class _Answering:
    """Answers each request with 200, and sends none."""

    async def send(self, request: Request) -> Response:
        del request
        return Response(200, _HEADERS, (), b"", None, "", 0.001, "127.0.0.1:80")

    async def aclose(self) -> None:
        pass


def take_turns(world: World, deliveries: int) -> None:
    """Claim and settle all deliveries that are due, in batches of `BATCH`, on a connection of the claimer's.

    Raises:
        RuntimeError: it were not so many.
    """
    asyncio.run(_take_turns(world, deliveries))


async def _take_turns(world: World, deliveries: int) -> None:
    store = Store(world.url("claimer"), DataKeys(Purpose.SECRETS, lambda: wrapping(str(world.key))))
    tally, sender, rng = Tally(), _Answering(), random.Random(1)  # noqa: S311 - jitter
    settling = Settling(store, tally)

    try:
        while leases := await store.claim(BATCH, _PAYLOAD_BYTES, _FREE):
            settling.learn(leases)
            settling.results += [await attempt(lease, sender, store.now, rng) for lease in leases]
            await settling.settle()
    finally:
        await store.aclose()
    if tally.delivered != deliveries:
        raise RuntimeError(f"{tally.delivered} of {deliveries} deliveries: {tally}")
