"""The local stack with a scripted receiver: what the end-to-end tests act on, through HTTP only."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from infra.local.deployment import local_stack
from infra.local.pool import LineSink
from infra.local.serving import Listener
from infra.local.stack import LocalStack, log_line
from tests.functions.builders import key_file

PATIENCE_S = 40.0
QUICK = {"schedule": {"kind": "ladder", "gaps_s": [0.05, 0.05, 0.05], "jitter": {"kind": "none"}}}


@dataclass(frozen=True, slots=True)
class Receipt:
    """A request that came in."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def event_id(self) -> str:
        return self.headers["webhook-id"]


type Answer = tuple[int, dict[str, str]] | int


@dataclass
class Receiver:
    """An ASGI application that answers as it is told.

    Attributes:
        answer: given the request and how often its path has seen that event (from 1), the status (and headers).
        receipts: what came in.
        in_flight: requests that are not answered yet.
    """

    answer: Callable[[Receipt, int], Answer | Awaitable[Answer]] = lambda _receipt, _time: 204
    receipts: list[Receipt] = field(default_factory=list)
    in_flight: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        receipt = Receipt(request.url.path, dict(request.headers), await request.body(), time.monotonic())
        self.receipts.append(receipt)
        times = sum(1 for one in self.receipts if (one.path, one.event_id) == (receipt.path, receipt.event_id))
        self.in_flight += 1
        try:
            answer = self.answer(receipt, times)
            if not isinstance(answer, (int, tuple)):
                answer = await answer
            status, headers = (answer, {}) if isinstance(answer, int) else answer
            await Response(status_code=status, headers=headers)(scope, receive, send)
        finally:
            self.in_flight -= 1

    def at(self, path: str) -> list[Receipt]:
        return [receipt for receipt in self.receipts if receipt.path == path]


@dataclass
class World:
    """A running stack, a client and a receiver."""

    stack: LocalStack
    client: httpx.AsyncClient
    receiver: Receiver
    receiver_url: str

    async def call(self, method: str, path: str, body: Any = None, expect: int | None = None) -> Any:
        """Call the API; gives the answer's JSON."""
        response = await self.client.request(method, f"{self.stack.api_url}{path}", json=body)
        assert response.status_code == expect if expect else response.is_success, response.text
        return response.json() if response.content else None

    async def endpoint(self, path: str = "/hook", *, tenant: str = "acme", **more: Any) -> dict[str, Any]:
        """Make an endpoint at the receiver."""
        body = {"tenant": tenant, "url": f"{self.receiver_url}{path}", "policy": QUICK, **more}
        return dict(await self.call("POST", "/v1/endpoints", body, 201))

    async def post(self, payload: Any = None, *, tenant: str = "acme", event_type: str = "order.paid") -> str:
        """Post an event; gives its id."""
        event = {"tenant": tenant, "type": event_type, "payload": payload}
        return str((await self.call("POST", "/v1/events", event, 202))["id"])

    async def deliveries(self, query: str) -> list[dict[str, Any]]:
        """The newest deliveries of a query."""
        return list((await self.call("GET", f"/v1/deliveries?limit=200&{query}"))["items"])

    async def one_delivery(self, event_id: str) -> dict[str, Any]:
        """The event's only delivery, with its attempts."""
        event = await self.call("GET", f"/v1/events/{event_id}")
        (delivery,) = event["deliveries"]["items"]
        return dict(await self.call("GET", f"/v1/deliveries/{delivery['id']}"))

    async def ended(self, event_id: str, status: str) -> dict[str, Any]:
        """Wait until the event's only delivery is in a state; gives it with its attempts."""
        return dict(await until(self._in_state, event_id, status))

    async def _in_state(self, event_id: str, status: str) -> dict[str, Any] | None:
        delivery = await self.one_delivery(event_id)
        return delivery if delivery["status"] == status else None

    async def replay(self, body: dict[str, Any]) -> dict[str, Any]:
        """Start a replay."""
        assert self.stack.replay_url
        response = await self.client.post(self.stack.replay_url, json=body)
        assert response.is_success, response.text
        return dict(response.json())


async def until(condition: Callable[..., Any], *arguments: Any) -> Any:
    """Wait for a condition to give something true; gives that."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = condition(*arguments)
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, f"waited {PATIENCE_S} s for {condition}"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def running(
    database_url: str,
    environment: dict[str, str] | None = None,
    *,
    own_users: bool = True,
    on_line: LineSink = log_line,
    key: Path | None = None,
) -> AsyncIterator[World]:
    """A world on a fresh database, made with this run's key file or (`key`) another; `on_line` gets what is written."""
    stack = local_stack(database_url, key or key_file(), environment=environment, own_users=own_users, on_line=on_line)
    receiver = Receiver()
    listener = Listener("127.0.0.1")
    await listener.start(receiver)
    await stack.start()
    try:
        async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
            yield World(stack, client, receiver, f"http://{listener.authority}")
    finally:
        await stack.stop()
        listener.stop_accepting()
        await listener.stop(1.0)
