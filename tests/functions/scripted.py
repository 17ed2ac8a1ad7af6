"""A claim loop on the real database, with a sender that answers as told and a platform that only remembers."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from forbear.data_keys import DataKeys
from forbear.loop import ClaimLoop, Limits
from forbear.metrics import Collector
from forbear.policy.verdict import ErrorClass
from forbear.sender import Request, Response
from forbear.store import Outlook, Room, Settlement, Store, Turned
from infra.local.deployment import url_as
from tests.functions.builders import data_keys

# Policies: one that tries again at once, and one whose retries a test does not meet.
QUICK = {"schedule": {"kind": "ladder", "gaps_s": [0.01, 0.01, 0.01], "jitter": {"kind": "none"}}}
SLOW = {"schedule": {"kind": "ladder", "gaps_s": [600], "repeat_last": True, "retries": 20, "jitter": {"kind": "none"}}}

type Script = Callable[[Request, int], Response | Awaitable[Response]]


def answer(status: int, *, retry_after: str | None = None, body: bytes = b"answer") -> Response:
    """A receiver's answer."""
    hints = () if retry_after is None else (retry_after,)
    return Response(status, b"content-type: text/plain", hints, body, None, "", 0.005, "127.0.0.1:80")


def failure(error: ErrorClass) -> Response:
    """No answer."""
    return Response(None, b"", (), b"", error, "it broke", 0.005, None)


def header(request: Request, name: bytes) -> str:
    """The value of a request's header."""
    return dict(request.headers)[name].decode()


class ScriptedSender:
    """Answers by a script, which gets the request and its number, from 0."""

    def __init__(self, script: Script) -> None:
        self.requests: list[Request] = []
        self.cancelled = 0
        self._script = script

    async def send(self, request: Request) -> Response:
        number = len(self.requests)
        self.requests.append(request)
        try:
            answered = self._script(request, number)
            if isinstance(answered, Response):
                await asyncio.sleep(0)
                return answered
            return await answered
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def aclose(self) -> None:
        pass

    @property
    def bodies(self) -> list[bytes]:
        """What was sent, in order."""
        return [request.body for request in self.requests]


def always(status: int) -> ScriptedSender:
    """A receiver that always answers the same."""
    return ScriptedSender(lambda _request, _number: answer(status))


class RememberingWaking:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    async def keep_ticking(self) -> bool:
        self.calls.append("tick")
        return True

    async def stop_ticking(self, until: float | None) -> bool:
        self.calls.append(("rest", until))
        return True

    async def call(self, reason: str) -> None:
        self.calls.append(reason)


class CountingStore(Store):
    """Counts its claims and outlooks, so that a test can wait until the loop has looked."""

    claims = 0
    outlooks = 0

    async def turn(
        self, settlement: Settlement | None = None, room: Room | None = None, *, step: bool = False
    ) -> Turned:
        self.claims += room is not None
        return await super().turn(settlement, room, step=step)

    async def outlook(self, claimer: UUID, *, leases: bool = True) -> Outlook:
        self.outlooks += 1
        return await super().outlook(claimer, leases=leases)


class Claimer:
    """A claim loop with what it works with."""

    def __init__(
        self,
        url: str,
        sender: ScriptedSender,
        *,
        store: type[CountingStore] = CountingStore,
        waking: type[RememberingWaking] = RememberingWaking,
        collector: Collector | None = None,
        keys: DataKeys | None = None,
        **limits: Any,
    ) -> None:
        self.store = store(url_as(url, "forbear_claimer"), keys or data_keys())
        self.sender = sender
        self.waking = waking()
        bounds = Limits(**({"linger_s": 0.0, "tick_s": 1.0} | limits))
        self.loop = ClaimLoop(self.store, sender, self.waking, bounds, random.Random(1), collector=collector)

    async def run(self, time_left_s: float = 60.0, *, only_if_alone: bool = False, sweeping: bool = False) -> Any:
        """Run until it ends. Gives the tally."""
        try:
            return await self.loop.run(time_left_s, only_if_alone=only_if_alone, sweeping=sweeping)
        finally:
            await self.store.aclose()

    async def look_again(self, times: int = 3) -> None:
        """Wait until the loop has looked for work so many times more."""
        goal = self.store.claims + self.store.outlooks + times
        await until(lambda: self.store.claims + self.store.outlooks >= goal)


@asynccontextmanager
async def running(claimer: Claimer, time_left_s: float = 60.0) -> AsyncIterator[asyncio.Task[Any]]:
    """A claimer at work beside the test; awaited at the end."""
    task = asyncio.create_task(claimer.run(time_left_s))
    try:
        yield task
        await asyncio.wait_for(task, 30)
    finally:
        task.cancel()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, which must come true within ten seconds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for is in the database or in the code under test
            await asyncio.sleep(0.002)
