"""Handlers to run, where they wait, what they wrote: what the tests of the local stack share."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from infra.local.gateway import Route
from infra.local.pool import FunctionSpec
from infra.local.runtime_api import Outcome
from infra.local.stack import LocalStack

HANDLERS = Path(__file__).parent / "handlers"
PATIENCE_S = 20.0


class Output:
    """The lines that functions wrote."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._changed = asyncio.Event()

    def add(self, function: str, line: str) -> None:
        self.lines.append(f"{function}: {line}")
        self._changed.set()

    async def until(self, condition: Callable[[list[str]], bool]) -> list[str]:
        """Wait until the lines so far fulfil a condition."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition(self.lines):
                self._changed.clear()
                await self._changed.wait()
        return self.lines


class Gate:
    """Where handlers wait until they are let through."""

    def __init__(self) -> None:
        self.port = 0
        self._arrivals: asyncio.Queue[int] = asyncio.Queue()
        self._waiting: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    @property
    def event(self) -> bytes:
        return json.dumps({"gate": self.port}).encode()

    async def arrive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._waiting.append((reader, writer))
        self._arrivals.put_nowait(int(await reader.readline()))

    async def arrival(self) -> int:
        """The process id of the next handler that arrives."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._arrivals.get()

    async def hung_up(self) -> None:
        """Wait until the first of those who wait has gone without being let through."""
        async with asyncio.timeout(PATIENCE_S):
            assert await self._waiting[0][0].read() == b""

    def open(self) -> None:
        """Let those through who wait."""
        while self._waiting:
            _, writer = self._waiting.pop(0)
            writer.write(b".")
            writer.close()


class Launch(Protocol):
    async def __call__(
        self, *functions: FunctionSpec, routes: tuple[Route, ...] = (), **options: Any
    ) -> LocalStack: ...


def plain(name: str = "plain", **options: Any) -> FunctionSpec:
    return FunctionSpec(**{"name": name, "handler": "plain.handler", "timeout_s": 30, "folder": HANDLERS, **options})


def web(**options: Any) -> FunctionSpec:
    return FunctionSpec(**{"name": "web", "handler": "web.handler", "timeout_s": 30, "folder": HANDLERS, **options})


async def call(stack: LocalStack, event: Any, function: str = "plain") -> Any:
    """Invoke and return the result of an invocation that must succeed."""
    outcome = await stack.functions.invoke(function, json.dumps(event).encode())
    assert outcome.error is None, outcome
    return json.loads(outcome.payload)


def error_of(outcome: Outcome) -> Any:
    """The error document of an invocation that must have failed."""
    assert outcome.error == "Unhandled", outcome
    return json.loads(outcome.payload)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait for something that nobody tells about."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.005)
