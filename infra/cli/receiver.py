"""A receiver as it should be: verifies, deduplicates on `webhook-id`, and answers. For trying things, on loopback.

Owns what is answered and what is told of each request; how that is printed is `listen`'s.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from infra.cli.errors import UsageError
from infra.cli.verifying import Check
from infra.local.serving import Listener, PortTaken

_HOST = "127.0.0.1"
_LAST_ANSWERS_S = 1.0


@dataclass(frozen=True, slots=True)
class Received:
    """A request, and what was made of it.

    Attributes:
        method: The method.
        target: Path and query as they came.
        headers: Names in lower case.
        body: The body.
        checked: Whether there was a secret to verify with.
        refused: Why it does not verify; None if it does, or was not checked.
        seen_before: Whether a request with this `webhook-id` was taken already.
        status: What it was answered with.
    """

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    checked: bool
    refused: str | None
    seen_before: bool
    status: int


class Receiver:
    """The receiver as an ASGI application."""

    def __init__(self, check: Check | None, status: int, failures: int, tell: Callable[[Received], None]) -> None:
        """Begin.

        Args:
            check: Verifies a request; None lets everything pass.
            status: What a request that verifies is answered with; one that does not gets 401.
            failures: How many requests are answered with 500 first.
            tell: Gets each request once it is judged.
        """
        self._check = check
        self._status = status
        self._failures = failures
        self._tell = tell
        self._taken: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        received = self._judge(request, await request.body())
        self._tell(received)
        await Response(status_code=received.status)(scope, receive, send)

    def _judge(self, request: Request, body: bytes) -> Received:
        headers = dict(request.headers)
        refused = self._check(headers, body) if self._check else None
        event_id = headers.get("webhook-id", "")
        seen_before = refused is None and event_id in self._taken
        if self._failures > 0:
            self._failures -= 1
            status = 500
        else:
            status = self._status if refused is None else 401
        # What is not answered with success comes again, and is new then.
        if refused is None and event_id and 200 <= status < 300:
            self._taken.add(event_id)
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return Received(request.method, target, headers, body, self._check is not None, refused, seen_before, status)


def serve(receiver: Receiver, port: int, ready: Callable[[str], None]) -> None:
    """Serve on loopback until the process is interrupted or terminated.

    Args:
        receiver: What answers.
        port: The port; 0 is any free one.
        ready: Gets the URL once requests are taken.

    Raises:
        UsageError: The port cannot be had.
    """
    asyncio.run(_serve(receiver, port, ready))


async def _serve(receiver: Receiver, port: int, ready: Callable[[str], None]) -> None:
    try:
        listener = Listener(_HOST, port)
    except PortTaken as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"port {port} cannot be had: {error.strerror}") from error
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await listener.start(receiver)
    ready(f"http://{listener.authority}/")
    await stop.wait()
    await listener.stop(_LAST_ANSWERS_S)
