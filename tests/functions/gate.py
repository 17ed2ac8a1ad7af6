"""A gate in front of PostgreSQL: shut as a database is that pauses, and with the TLS that the embedded one lacks."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from urllib.parse import urlsplit, urlunsplit

# FATAL, 57P03: an ErrorResponse as a server sends it that is not ready yet.
STARTING_UP = b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0"
SSL_REQUEST = bytes.fromhex("0000000804d2162f")  # "SSLRequest" in "Message Formats" of PostgreSQL's manual


class Shut(Enum):
    """What a shut gate does to who comes: sends them away, says why, lets them stand for ever, or until it opens."""

    REFUSES = "refuses"
    STARTING = "starting"
    SILENT = "silent"
    LATE = "late"


class Gate:
    """A proxy on loopback, used from other threads than the one that it runs in.

    Attributes:
        url: the database's URL through it.
        came: how many connections there were.
    """

    def __init__(self, database_url: str, shut: Shut | None, tls: ssl.SSLContext | None, host: str) -> None:
        parts = urlsplit(database_url)
        self._server = str(parts.hostname), int(parts.port or 0)
        self._shut = shut
        self._tls = tls
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        # Bound, it has its port; that it does not listen is what refuses.
        netloc = f"{parts.netloc.rpartition('@')[0]}@{host}:{self._socket.getsockname()[1]}"
        self.url = urlunsplit(parts._replace(netloc=netloc, query="gssencmode=disable"))
        self.came = 0
        self._opened = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        if shut is not Shut.REFUSES:
            self._call(self._listen())
        if shut is None:
            self.open()

    def open(self) -> None:
        """Let everybody through from now on, and those who wait for it."""
        self._call(self._open())

    def open_after(self, seconds: float) -> None:
        """Do that in so many seconds."""
        self._loop.call_soon_threadsafe(self._loop.call_later, seconds, lambda: self._loop.create_task(self._open()))

    def close(self) -> None:
        """Hang up, and end the thread."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._socket.close()

    def _call(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]  # our coroutines

    async def _listen(self) -> None:
        self._listening = await asyncio.start_server(self._admit, sock=self._socket)

    async def _open(self) -> None:
        if self._shut is Shut.REFUSES:
            await self._listen()
        self._opened.set()

    async def _close(self) -> None:
        if self._shut is not Shut.REFUSES or self._opened.is_set():
            self._listening.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if not self._opened.is_set():
                if self._shut is Shut.SILENT:
                    await asyncio.Event().wait()
                elif self._shut is Shut.STARTING:
                    await _send_away(reader, writer)
                    return
            await self._opened.wait()
            if self._tls is not None:
                assert await reader.readexactly(8) == SSL_REQUEST
                writer.write(b"S")
                await writer.start_tls(self._tls)
            server_reader, server_writer = await asyncio.open_connection(*self._server)
            try:
                await asyncio.wait(
                    [
                        asyncio.ensure_future(_pump(reader, server_writer)),
                        asyncio.ensure_future(_pump(server_reader, writer)),
                    ],
                    return_when=asyncio.FIRST_COMPLETED,
                )
            finally:
                server_writer.transport.abort()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client left, or did not like our certificate
        finally:
            writer.transport.abort()


async def _send_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if await reader.readexactly(8) == SSL_REQUEST:
        writer.write(b"N")
        await reader.readexactly(8)
    writer.write(b"E" + (len(STARTING_UP) + 4).to_bytes(4) + STARTING_UP)
    await writer.drain()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while received := await reader.read(1 << 16):
            writer.write(received)
            await writer.drain()


@contextmanager
def gate(
    database_url: str, shut: Shut | None = None, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> Iterator[Gate]:
    """Put a gate in front of a database.

    Args:
        database_url: the database behind it.
        shut: what it does until it is opened; None: it is open.
        tls: what it meets its clients with; None: plain text.
        host: what `url` calls it.
    """
    opened = Gate(database_url, shut, tls, host)
    try:
        yield opened
    finally:
        opened.close()
