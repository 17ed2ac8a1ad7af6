"""Receivers that behave well: they count what comes, and answer at once, when they are told to, or as they are told to.

Their own count is one side of the ledger. A receiver is a path below `url`; what it does is set per path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from infra.local.serving import Listener
from infra.torture.ledger import Receipt

type Answer = Callable[[Receipt], Awaitable[int] | int]

OK = 204


class Receivers:
    """The receivers.

    Attributes:
        receipts: all requests that came, in order; other receivers may add theirs (`note`).
        url, port: where they are.
    """

    def __init__(self) -> None:
        self.receipts: list[Receipt] = []
        self._open: dict[int, Receipt] = {}
        self._hung_up: set[int] = set()
        self._answers: dict[str, Answer] = {}
        self._held: dict[str, asyncio.Event] = {}
        self._listener = Listener("127.0.0.1")
        self.port = self._listener.port
        self.url = f"http://{self._listener.authority}"

    async def start(self) -> None:
        """Accept connections."""
        await self._listener.start(self)

    async def stop(self) -> None:
        """Hang up on everybody."""
        for path in list(self._held):
            self.release(path)
        self._listener.stop_accepting()
        await self._listener.stop(0.5)

    def behave(self, path: str, answer: Answer) -> None:
        """Have requests below a path answered by what this gives: a status, at once or later."""
        self._answers[path] = answer

    def hold(self, path: str) -> None:
        """Answer nothing below a path until `release`."""
        self._held.setdefault(path, asyncio.Event())

    def release(self, path: str) -> None:
        """Answer what is held, and all that comes."""
        held = self._held.pop(path, None)
        if held is not None:
            held.set()

    def hang_up(self) -> None:
        """Close every connection, whatever goes over it; what is open now is never answered."""
        self._hung_up |= self._open.keys()
        self._listener.hang_up()

    def got(self, path: str) -> list[Receipt]:
        """What came below a path, in order."""
        return [receipt for receipt in self.receipts if _below(receipt.path, path)]

    def open(self, path: str) -> list[Receipt]:
        """The requests below a path that are not answered and whose sender is still there."""
        return [receipt for receipt in self._open.values() if _below(receipt.path, path)]

    @contextmanager
    def receiving(self, path: str, headers: dict[str, str], body: bytes) -> Iterator[Receipt]:
        """Count a request that came, and hold it to be open as long as the block lasts.

        Args:
            path: where it came.
            headers: its headers, names in lower case.
            body: its body.

        Yields:
            The receipt; its `status` is to be set when it has been answered.
        """
        receipt = self.note(path, headers, body)
        self._open[id(receipt)] = receipt
        try:
            yield receipt
        finally:
            del self._open[id(receipt)]
            self._hung_up.discard(id(receipt))

    def note(self, path: str, headers: dict[str, str], body: bytes) -> Receipt:
        """Count a request that came; its `status` is to be set when it has been answered."""
        receipt = Receipt(
            delivery=headers["idempotency-key"],
            event=headers["webhook-id"],
            number=int(headers["forbear-attempt"]),
            path=path,
            body=body,
        )
        self.receipts.append(receipt)
        return receipt

    def forget(self, path: str) -> None:
        """Throw away what is known of a path: its round is over."""
        self.release(path)
        self.receipts = [receipt for receipt in self.receipts if not _below(receipt.path, path)]
        self._answers = {one: answer for one, answer in self._answers.items() if not _below(one, path)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        request = Request(scope, receive)
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        with self.receiving(request.url.path, dict(request.headers), body) as receipt:
            answering = asyncio.create_task(self._answer(receipt))
            leaving = asyncio.create_task(_gone(receive))
            await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
            if id(receipt) in self._hung_up:
                await leaving  # the server does not know yet
            if leaving.done():
                answering.cancel()
                return
            leaving.cancel()
            receipt.status = answering.result()
            await Response(status_code=answering.result())(scope, receive, send)

    async def _answer(self, receipt: Receipt) -> int:
        for path in list(self._held):
            if _below(receipt.path, path):
                await self._held[path].wait()
        for path, answer in self._answers.items():
            if _below(receipt.path, path):
                status = answer(receipt)
                return status if isinstance(status, int) else await status
        return OK


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _below(path: str, parent: str) -> bool:
    return path == parent or path.startswith(f"{parent.rstrip('/')}/")
