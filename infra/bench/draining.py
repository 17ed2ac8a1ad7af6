"""A process that drains so many deliveries of a deeper backlog: ClaimLoop, Store and LeanSender, told when to stop.

The handler itself drains until nothing is due, so that a backlog of a thousand and one of ten millions would be
measured over different amounts of work. Owns the process; one drain at a time, of any database of the server.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_network
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from forbear.data_keys import DataKeys
from forbear.guard import Guard
from forbear.loop import ClaimLoop, Limits
from forbear.sender.lean import LeanSender
from forbear.store import Room, Settlement, Store, Turned
from forbear.vault import Purpose, wrapping

LONGEST_S = 600.0


class Drained(NamedTuple):
    """What a drain came to: the deliveries that arrived, and from its begin to the last one's settling, in seconds."""

    delivered: int
    took_s: float

    @property
    def per_s(self) -> float:
        """Deliveries a second."""
        return self.delivered / self.took_s


class Drainer:
    """The process, as seen from outside."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def drain(self, url: str, number: int) -> Drained:
        """Have so many due deliveries sent and settled.

        Args:
            url: the database's.
            number: how many; that many are due at least.

        Raises:
            EOFError: the process is gone.
        """
        self._pipe.send((url, number))
        return Drained(*self._pipe.recv())


@contextmanager
def drainer(key: Path) -> Iterator[Drainer]:
    """A process that drains, for as long as the block lasts.

    Args:
        key: the key file that its databases were made with.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(key, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Drainer(ours)
    finally:
        ours.close()  # it ends when it is asked for nothing more
        process.join(5)
        process.kill()
        process.join()


class StandingAlone:
    """There is no platform here: nobody ticks and nobody is called."""

    async def keep_ticking(self) -> bool:
        """Nothing to do."""
        return True

    async def stop_ticking(self, until: float | None) -> bool:
        """Nothing to do."""
        del until
        return True

    async def call(self, reason: str) -> None:
        """Nothing to do."""


class _Rationed(Store):
    """Claims so many deliveries and no more."""

    left: int
    on_last: Callable[[], None]

    async def turn(
        self, settlement: Settlement | None = None, room: Room | None = None, *, step: bool = False
    ) -> Turned:
        if room is not None:
            # Nothing is left, but the loop has not stopped yet: no room is no claim.
            room = replace(room, slots=min(room.slots, self.left)) if self.left else None
        if settlement is None and room is None and not step:
            return Turned(None, [], None, 0.0)
        turned = await super().turn(settlement, room, step=step)
        if turned.leases:
            self.left -= len(turned.leases)
            if not self.left:
                self.on_last()
        return turned


def _run(key: Path, pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the command's, which ends this process
    stores: dict[str, _Rationed] = {}
    sender = LeanSender(Guard((ip_network("127.0.0.0/8"),), allow_http=True))
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        while True:
            try:
                url, number = pipe.recv()
            except EOFError:
                break
            if url not in stores:
                stores[url] = _Rationed(url, DataKeys(Purpose.SECRETS, lambda: wrapping(str(key))))
            pipe.send(runner.run(_drain(stores[url], sender, number)))
        for store in stores.values():
            runner.run(store.aclose())
        runner.run(sender.aclose())


async def _drain(store: _Rationed, sender: LeanSender, number: int) -> tuple[Any, ...]:
    loop = ClaimLoop(store, sender, StandingAlone(), Limits(linger_s=0.0), random.Random(1))  # noqa: S311 - jitter
    store.left, store.on_last = number, loop.stop
    await store.keyring()  # its connection is open when the time begins
    began = time.perf_counter()
    tally = await loop.run(LONGEST_S)
    return tally.delivered, time.perf_counter() - began
