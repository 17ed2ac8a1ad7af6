"""One connection through the proxy, and the steps at which it can be hit.

Owns passing requests and answers on in order, and holding an answer back until it is whole where a step waits for it.
What is to be done at which step is the proxy's to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from infra.torture.wire import (
    CANCEL_REQUEST,
    DATA_ROW,
    GSS_REQUEST,
    READY,
    SSL_REQUEST,
    Messages,
    Request,
    Requests,
    user_of,
)

if TYPE_CHECKING:
    from infra.torture.proxy import PostgresProxy

type Where = Literal["before", "half", "first byte", "answered"]
type Called = Callable[["Link"], Awaitable[None]]

# Closing a socket that lingers for no time at all sends RST (socket(7), SO_LINGER).
_RESET = struct.pack("ii", 1, 0)


@dataclass(slots=True, eq=False)
class Step:
    """Where to call back.

    Attributes:
        role: whose connections; None: anybody's.
        containing: what one of the request's SQL texts must contain.
        where: at which point of the request or its answer.
        call: what is called; the connection stands still meanwhile (other ones do not).
        times: how often it still fires.
        least_rows: only at an answer with so many rows; for `first byte` and `answered`.
        least_bytes: only at a request of so many bytes.
        fired: set when it is called for the first time.
        done: set when the first call has returned.
    """

    role: str | None
    containing: str
    where: Where
    call: Called
    times: int = 1
    least_rows: int = 0
    least_bytes: int = 0
    fired: asyncio.Event = field(default_factory=asyncio.Event)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    def concerns(self, link: Link, request: Request) -> bool:
        """Whether it is at this request or its answer, if that has the rows."""
        return (
            self.times > 0
            and self.role in {None, link.role}
            and len(request.messages) >= self.least_bytes
            and any(self.containing in text for text in request.statements)
        )


class Link:
    """One connection through the proxy.

    Attributes:
        role: the user that it signed in as.
        client_port: the client's port, by which its process can be found.
    """

    def __init__(self, proxy: PostgresProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.role = ""
        self.client_port: int = writer.get_extra_info("peername")[1]
        self.is_cut = False
        self._proxy = proxy
        self._client_reader, self._client = reader, writer
        self._server: asyncio.StreamWriter | None = None
        # Requests whose answers have not ended, sign-in (None) first; and what is held back of the first one's answer.
        self._asked: deque[Request | None] = deque([None])
        self._held: list[bytes] = []

    def cut(self) -> None:
        """Reset both sides, now; nothing more is passed on."""
        self.is_cut = True
        for writer in (self._client, self._server):
            if writer is not None:
                _reset(writer)

    async def serve(self) -> None:
        """Pass on until one side has gone."""
        try:
            startup = await self._meet()
            if startup is None:
                return
            await self._proxy.passable(self)
            server_reader, self._server = await asyncio.open_connection(*self._proxy.upstream)
            self._server.write(startup)
            pumps = [
                asyncio.create_task(self._pump_requests(self._client_reader)),
                asyncio.create_task(self._pump_answers(server_reader)),
            ]
            try:
                done, _ = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
                for pump in done:
                    pump.result()
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.IncompleteReadError):
            pass  # one of them left, or PostgreSQL is not there: the client sees its connection end
        finally:
            for writer in (self._client, self._server):
                if writer is not None:
                    writer.transport.abort()

    async def _meet(self) -> bytes | None:
        """The startup message, after refusals of encryption; None: it is no session (a cancel request, passed on)."""
        while True:
            head = await self._client_reader.readexactly(8)
            code = int.from_bytes(head[4:])
            if code in {SSL_REQUEST, GSS_REQUEST}:
                self._client.write(b"N")
                continue
            message = head + await self._client_reader.readexactly(int.from_bytes(head[:4]) - 8)
            if code == CANCEL_REQUEST:
                _, server = await asyncio.open_connection(*self._proxy.upstream)
                server.write(message)
                server.close()
                return None
            self.role = user_of(message)
            return message

    async def _pump_requests(self, reader: asyncio.StreamReader) -> None:
        gathering = Requests()
        while received := await self._read(reader):
            for request in gathering.feed(received):
                await self._request(request)

    async def _pump_answers(self, reader: asyncio.StreamReader) -> None:
        gathering = Messages()
        while received := await self._read(reader):
            await self._answers(gathering.feed(received))

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        received = b"" if self.is_cut else await reader.read(1 << 16)
        await self._proxy.passable(self)
        return b"" if self.is_cut else received

    async def _request(self, request: Request) -> None:
        for text in request.statements:
            self._proxy.statements[self.role, text] += 1
        await self._fire(self._proxy.step("before", self, request))
        half = self._proxy.step("half", self, request)
        middle = len(request.messages) // 2 if half else 0
        if half:
            await self._send(self._server, request.messages[:middle])
            await self._fire(half)
        if request.answered:
            self._asked.append(request)
        await self._send(self._server, request.messages[middle:])

    async def _answers(self, messages: list[bytes]) -> None:
        """Pass answers on; one that a step waits for is held back until it is whole."""
        through: list[bytes] = []
        for message in messages:
            asked = self._asked[0] if self._asked else None
            if asked is None or not self._proxy.awaits_answer(self, asked):
                through.append(message)
                if message[:1] == READY and self._asked:
                    self._asked.popleft()
                continue
            await self._send(self._client, b"".join(through))
            through = []
            self._held.append(message)
            if message[:1] == READY:
                self._asked.popleft()
                answer, self._held = self._held, []
                await self._answer(asked, answer)
        await self._send(self._client, b"".join(through))

    async def _answer(self, asked: Request, messages: list[bytes]) -> None:
        rows = sum(message[:1] == DATA_ROW for message in messages)
        answer = b"".join(messages)
        await self._fire(self._proxy.step("answered", self, asked, rows))
        step = self._proxy.step("first byte", self, asked, rows)
        if step is not None:
            await self._send(self._client, answer[:1])
            answer = answer[1:]
            await self._fire(step)
        await self._send(self._client, answer)

    async def _fire(self, step: Step | None) -> None:
        """Call back. When the connection ends meanwhile (it may be cut by the callback), that goes on to its end."""
        if step is not None and not self.is_cut:
            step.times -= 1
            step.fired.set()
            await asyncio.shield(self._proxy.start_call(step, self))

    async def _send(self, writer: asyncio.StreamWriter | None, content: bytes) -> None:
        if writer is not None and content and not self.is_cut:
            writer.write(content)
            await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
