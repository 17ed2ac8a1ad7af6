"""Senders under test on both event loops, receivers, and certificates.

The modules `test_sender_*.py` hold what any sender promises and run with each sender; the others are about the parts of
ours. A sender that cannot keep a promise says so in its table, and the test must fail with it.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack

import pytest
import trustme
import uvloop

from forbear.guard import Guard
from forbear.sender import Sender
from forbear.sender.dialer import tls_context
from forbear.sender.lean import LeanSender
from forbear.sender.resolver import Lookup
from tests.functions.sender import httpx_sender
from tests.functions.sender.building import LOOPBACK, Authority, MakeSender, Start
from tests.functions.sender.receivers import Receiver, Script, lookup_of, receiving

TO_LOOPBACK = lookup_of("127.0.0.1")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Every asynchronous test of this folder runs on both loops."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One loop is enough for the sender that is here for comparison."""

    def wanted(item: pytest.Item) -> bool:
        params = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        return params.get("kind") != "httpx" or uvloop.new_event_loop not in params.values()

    items[:] = [item for item in items if wanted(item)]


@pytest.fixture(scope="session")
def authority() -> Authority:
    """An authority that the senders under test trust."""
    ca = trustme.CA()
    client = tls_context()
    ca.configure_trust(client)
    return Authority(ca, client)


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts receivers that end with the test."""
    async with AsyncExitStack() as stack:

        async def start(
            script: Script, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
        ) -> Receiver:
            return await stack.enter_async_context(receiving(script, tls=tls, host=host, port=port))

        yield start


@pytest.fixture(params=["lean", "httpx"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which sender is under test."""
    name: str = request.param
    if name == "httpx":
        test = request.node.originalname
        if test in httpx_sender.CANNOT:
            request.applymarker(pytest.mark.xfail(reason=httpx_sender.CANNOT[test], strict=True))
        if test in httpx_sender.CANNOT_ALWAYS:
            request.applymarker(pytest.mark.xfail(reason=httpx_sender.CANNOT_ALWAYS[test], run=False))
    return name


@pytest.fixture
async def make_sender(kind: str, authority: Authority) -> AsyncIterator[MakeSender]:
    """Makes senders of the kind under test that end with the test."""
    async with AsyncExitStack() as stack:

        def make(*, guard: Guard = LOOPBACK, lookup: Lookup = TO_LOOPBACK, tls: ssl.SSLContext | None = None) -> Sender:
            make_one = LeanSender if kind == "lean" else httpx_sender.HttpxSender
            sender = make_one(guard, tls=tls or authority.client, lookup=lookup)
            stack.push_async_callback(sender.aclose)
            return sender

        yield make


@pytest.fixture
def sender(make_sender: MakeSender) -> Sender:
    """A sender for which every name is 127.0.0.1, which may be connected to."""
    return make_sender()
