import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from infra.local.gateway import Route
from infra.local.pool import FunctionSpec
from infra.local.stack import LocalStack, Timing
from tests.infra.local.support import PATIENCE_S, Gate, Launch, Output


@pytest.fixture
def output() -> Output:
    return Output()


@pytest.fixture
async def gate() -> AsyncIterator[Gate]:
    gate = Gate()
    server = await asyncio.start_server(gate.arrive, "127.0.0.1", 0)
    gate.port = server.sockets[0].getsockname()[1]
    yield gate
    gate.open()
    server.close()


@pytest.fixture
async def launch(output: Output) -> AsyncIterator[Launch]:
    """Start a stack that is stopped at the end of the test."""
    async with AsyncExitStack() as started:

        async def start(*functions: FunctionSpec, routes: tuple[Route, ...] = (), **options: Any) -> LocalStack:
            options.setdefault("timing", Timing(grace_s=0.2))
            stack = LocalStack(functions, routes, on_line=output.add, **options)
            await stack.start()
            started.push_async_callback(stack.stop)
            return stack

        yield start


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
        yield client
