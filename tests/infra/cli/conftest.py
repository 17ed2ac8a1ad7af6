"""A stack for the command to talk to: the real handlers, in this process, behind the local gateway's real sockets."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import pytest
from starlette.types import ASGIApp
from typer.testing import CliRunner, Result

from forbear.routes import ROUTES
from infra.cli.main import app
from infra.local.function_url import FunctionUrl
from infra.local.functions import Functions
from infra.local.gateway import Gateway, Route
from infra.local.runtime_api import Outcome
from infra.local.serving import Listener
from tests.functions.conftest import handlers as handlers  # noqa: PLC0414 - the fixture, for the tests here
from tests.functions.conftest import role as role  # noqa: PLC0414 - what that fixture asks for

type Run = Callable[..., Result]
type Serve = Callable[[ASGIApp], str]


@dataclass(frozen=True)
class Stack:
    """Where the stack is."""

    api_url: str
    replay_url: str


class InProcess:
    """Stands for the local Lambda service: calls the handler in this process."""

    async def invoke(self, function: str, payload: bytes, *, trace_id: str | None = None) -> Outcome:
        result = import_module(function).handler(json.loads(payload), None)
        return Outcome(json.dumps(result).encode())


@pytest.fixture
def in_loop() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Runs coroutines in an event loop of another thread, one at a time."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def serve(in_loop: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[Serve]:
    """Serves an application on loopback and gives its URL."""
    listeners: list[Listener] = []

    def start(application: ASGIApp) -> str:
        listeners.append(Listener("127.0.0.1"))
        in_loop(listeners[-1].start(application))
        return f"http://{listeners[-1].authority}"

    yield start
    for listener in listeners:
        in_loop(listener.stop(1))


@pytest.fixture
def stack(handlers: pytest.MonkeyPatch, serve: Serve) -> Stack:
    """The API and the replay function, on this test's database; endpoints may be on this machine."""
    handlers.setenv("FORBEAR_OPEN", "true")
    handlers.setenv("FORBEAR_ALLOW_HTTP", "true")
    handlers.setenv("FORBEAR_ALLOW_NETWORKS", "127.0.0.0/8")
    functions = cast(Functions, InProcess())
    routes = [Route(route.method, route.path, route.function) for route in ROUTES]
    return Stack(serve(Gateway(routes, functions)), serve(FunctionUrl("replay", functions)))


@pytest.fixture
def forbear(stack: Stack) -> Run:
    """Runs the command against the stack."""
    environment = {"FORBEAR_URL": stack.api_url, "FORBEAR_REPLAY_URL": stack.replay_url}

    def run(*arguments: str, input: str | bytes | None = None) -> Result:  # noqa: A002 - as CliRunner calls it
        return CliRunner().invoke(app, arguments, input=input, env=environment)

    return run


@pytest.fixture
def ask(forbear: Run) -> Callable[..., Any]:
    """Runs the command with --json, which must succeed, and gives what it printed: a document, or a list of several."""

    def run(*arguments: str, input: str | bytes | None = None) -> Any:  # noqa: A002
        result = forbear("--json", *arguments, input=input)
        assert result.exit_code == 0, result.output
        documents = [json.loads(line) for line in result.stdout.splitlines()]
        return documents[0] if len(documents) == 1 else documents

    return run
