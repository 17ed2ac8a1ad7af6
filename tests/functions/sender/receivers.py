"""Raw receivers on loopback that do exactly what a test scripts, byte for byte, and remember what they got."""

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

type Script = Callable[[Conversation], Awaitable[None]]
"""What a receiver does with each connection; the connection is closed when it returns."""


@dataclass(frozen=True)
class Received:
    """A request as it came."""

    connection: int
    line: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes

    def header(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.headers if key.lower() == name]


@dataclass
class Receiver:
    """A listening receiver and its memory."""

    port: int
    connections: int = 0
    hung_up: int = 0
    """Connections that the sender ended."""
    received: list[Received] = field(default_factory=list)
    server_names: list[str | None] = field(default_factory=list)
    """What TLS clients asked for (SNI)."""
    failures: list[BaseException] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Waits until the receiver's memory fulfils a condition."""
        async with asyncio.timeout(5):
            while not condition():
                self.changed.clear()
                await self.changed.wait()


class Conversation:
    """One connection, seen from the receiver."""

    def __init__(self, receiver: Receiver, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        receiver.connections += 1
        self.number = receiver.connections
        self.reader = reader
        self.writer = writer
        self._receiver = receiver
        receiver.changed.set()

    async def request(self) -> Received:
        """Reads one request. The script ends here when the sender hangs up."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        line, *lines = head[:-4].split(b"\r\n")
        headers = tuple((name, value.strip()) for name, _, value in (item.partition(b":") for item in lines))
        length = next(int(value) for name, value in headers if name.lower() == b"content-length")
        body = await self.reader.readexactly(length)
        received = Received(self.number, line, headers, body)
        self._receiver.received.append(received)
        self._receiver.changed.set()
        return received

    async def send(self, data: bytes) -> None:
        """Sends bytes. The script ends here, too, when the sender has hung up."""
        if self.writer.transport.is_closing():
            raise ConnectionResetError
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Ends the connection with RST."""
        sock = self.writer.get_extra_info("socket")
        if sock is not None:  # None once the connection has ended
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def until_hung_up(self) -> None:
        """Reads until the sender ends the connection."""
        while await self.reader.read(65536):
            pass
        raise asyncio.IncompleteReadError(b"", 0)


def answering(answer: bytes) -> Script:
    """The same answer to every request."""

    async def script(peer: Conversation) -> None:
        while True:
            await peer.request()
            await peer.send(answer)

    return script


def answering_once(answer: bytes) -> Script:
    """On each connection, one answer; then the receiver closes."""

    async def script(peer: Conversation) -> None:
        await peer.request()
        await peer.send(answer)

    return script


async def silent(peer: Conversation) -> None:
    """Takes the connection and nothing else, until the sender hangs up."""
    await peer.until_hung_up()


@asynccontextmanager
async def receiving(
    script: Script, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[Receiver]:
    """Listens on a port of loopback, a free one by default, and runs the script for each connection."""
    running: set[asyncio.Task[None]] = set()

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await script(Conversation(receiver, reader, writer))
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            receiver.hung_up += 1
        except Exception as error:  # noqa: BLE001 - reported when the receiver ends
            receiver.failures.append(error)
        finally:
            running.discard(task)
            receiver.changed.set()
            if reader.at_eof():
                writer.transport.abort()
            else:
                writer.close()

    receiver = Receiver(0)
    if tls is not None:
        tls.sni_callback = lambda _sock, name, _context: receiver.server_names.append(name)
    server = await asyncio.start_server(converse, host, port, ssl=tls, backlog=256)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await asyncio.sleep(0)
    assert not receiver.failures


def lookup_of(*addresses: str) -> Callable[[str], Awaitable[Sequence[str]]]:
    """A resolver that gives every name these addresses."""

    async def lookup(_host: str) -> Sequence[str]:
        return addresses

    return lookup
