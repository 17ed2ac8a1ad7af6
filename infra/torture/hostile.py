"""Receivers that behave badly: raw sockets on loopback, each with a script, byte for byte, and a count of its own.

Owns listening, reading requests, and counting what came. What a script does, and what must come of it, is its
behaviour's (see `behaviours`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from forbear.policy.verdict import ErrorClass, Verdict
from infra.torture.authority import Certificate
from infra.torture.ledger import Receipt
from infra.torture.names import Name

type Script = Callable[[Peer], Awaitable[None]]
"""What a receiver does with a connection, which is closed when it returns."""
type Note = Callable[[str, dict[str, str], bytes], Receipt]
"""Takes a request's path, headers (names in lower case) and body into the books; gives what stands there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """A way to behave badly, and what must come of an attempt that meets it.

    Attributes:
        name: in kebab case.
        script: what the receiver does; None: nobody listens at its port.
        verdict: the attempt's.
        status: its status.
        errors: its error is one of these; empty: there is none.
        reason: what stands in its evidence about it.
        asked: whether it comes to a whole request at all.
        certificate: what it shows, if it is spoken to by TLS.
        host: its name's addresses; None: it is spoken to by address, or by a name of its own for TLS.
        address: how the address begins that its attempts went to; None: that does not matter.
        concurrency: how many requests may be in flight to it; one after the other finds the kept connection.
    """

    name: str
    script: Script | None
    verdict: Verdict
    status: int | None = None
    errors: frozenset[ErrorClass] = frozenset()
    reason: str = ""
    asked: bool = True
    certificate: Certificate | None = None
    host: Name | None = None
    address: str | None = None
    concurrency: int | None = 100


@dataclass(slots=True, kw_only=True)
class Hostile:
    """A receiver, and what it saw.

    Attributes:
        behaviour: what it does.
        port: where, on loopback.
        connections: that were made.
        requests: that came whole, the dropped ones, too.
        dropped: requests that it hung up on without a byte, as a server does whose idle connection's time is over.
        in_flight: requests that are not answered whole.
        gate: what requests wait behind before anything is answered.
    """

    behaviour: Behaviour
    note: Note
    gate: asyncio.Event
    port: int = 0
    connections: int = 0
    requests: int = 0
    dropped: int = 0
    in_flight: int = 0
    failures: list[BaseException] = field(default_factory=list)
    _server: asyncio.Server | None = None
    _idle: socket.socket | None = None
    _running: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen, or see to it that nobody does."""
        if self.behaviour.script is None:
            self._idle = socket.socket()
            self._idle.bind(("127.0.0.1", 0))
            self.port = self._idle.getsockname()[1]
            return
        self._server = await asyncio.start_server(self._converse, "127.0.0.1", 0, ssl=tls, backlog=256)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Hang up on everybody."""
        if self._idle is not None:
            self._idle.close()
        if self._server is not None:
            self._server.close()
            for task in list(self._running):
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or self.behaviour.script is None:
            return
        self._running.add(task)
        self.connections += 1
        peer = Peer(self, reader, writer)
        try:
            await self.behaviour.script(peer)
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass  # the sender has hung up
        except Exception as error:  # noqa: BLE001 - told when the round ends: the script is wrong
            self.failures.append(error)
        finally:
            self._running.discard(task)
            peer.end()


class Peer:
    """A connection, seen from the receiver."""

    def __init__(self, receiver: Hostile, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._receiver = receiver
        self._reader = reader
        self._writer = writer
        self._open: Receipt | None = None
        self.answered = 0
        """Requests of this connection that were answered whole."""

    async def request(self) -> None:
        """Read a request whole, count it, and wait for the gate."""
        path, headers, body = await self._read()
        receiver = self._receiver
        self._open = receiver.note(path, headers, body)
        receiver.requests += 1
        receiver.in_flight += 1
        await receiver.gate.wait()

    async def drop(self) -> None:
        """Read a request whole and hang up on it: the sender must take it for one that was never read."""
        await self._read()
        self._receiver.requests += 1
        self._receiver.dropped += 1

    async def some(self) -> None:
        """Read the beginning of a request, and wait for the gate."""
        await self._reader.readexactly(20)
        await self._receiver.gate.wait()

    async def send(self, data: bytes, *, status: int | None = None) -> None:
        """Send bytes. The script ends here when the sender has hung up.

        Args:
            data: the bytes.
            status: with them a head is whole, and this is the status in it.
        """
        if self._writer.transport.is_closing():
            raise ConnectionResetError
        if status is not None and self._open is not None:
            self._open.status = status
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self, data: bytes, status: int) -> None:
        """Send a whole response."""
        await self.send(data, status=status)
        self.answered += 1
        self._done()

    def shut(self) -> None:
        """Send no more, but read on."""
        self._writer.write_eof()

    def reset(self) -> None:
        """End the connection with RST."""
        sock = self._writer.get_extra_info("socket")
        if sock is not None:  # None once it has ended
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()

    async def until_hung_up(self) -> None:
        """Read until the sender ends the connection."""
        while await self._reader.read(65536):
            pass

    def end(self) -> None:
        """The script is over: close the connection, and count no request of it as open."""
        self._done()
        if self._reader.at_eof():
            self._writer.transport.abort()
        else:
            with contextlib.suppress(OSError):
                self._writer.close()

    def _done(self) -> None:
        if self._open is not None:
            self._open = None
            self._receiver.in_flight -= 1

    async def _read(self) -> tuple[str, dict[str, str], bytes]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *lines = head[:-4].split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
        return line.split(" ")[1], headers, await self._reader.readexactly(int(headers["content-length"]))
