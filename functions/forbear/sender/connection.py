"""One connection to a receiver: writes a request, reads its response, one exchange at a time.

Owns the transport, the deadline of the running exchange and the classes of what can go wrong in it. It must not know
how the connection was made, who keeps it between exchanges or what the answer means.

An exchange costs one future and one timer, no task of its own.
"""

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import cast

from forbear.policy.verdict import ErrorClass
from forbear.sender.http11 import ResponseReader
from forbear.sender.reasons import tls_reason

STALE_WITHIN_S = 1.0
"""A reused connection that ends this soon without a byte was closed while idle; later, its request had been read."""
_COPY_MAX = 64 * 1024  # bytes of a body that are cheaper copied behind the head than handed over as a second buffer


@dataclass(slots=True)
class Outcome:
    """What came of an exchange; the fields of `forbear.sender.Response`, and whether the connection was stale."""

    status: int | None
    headers: bytes
    retry_after: tuple[str, ...]
    body: bytes
    error: ErrorClass | None
    reason: str
    stale: bool = False


def failure(error: ErrorClass, reason: str, *, stale: bool = False) -> Outcome:
    """The outcome when there is no response."""
    return Outcome(None, b"", (), b"", error, reason, stale)


class Connection(asyncio.Protocol):
    """A connected transport that carries exchanges.

    After each exchange it is either open and clean, or closed. Bytes that arrive between exchanges close it.

    Attributes:
        address: `ip:port` of the peer.
        opened_at: When it was made, in the loop's time.
        idle_since: When its last exchange ended, in the loop's time; the pool's to set.
    """

    __slots__ = (
        "_early",
        "_future",
        "_loop",
        "_loss",
        "_reader",
        "_reused",
        "_sock",
        "_started",
        "_timer",
        "_transport",
        "_used",
        "address",
        "idle_since",
        "opened_at",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: socket.socket, address: str) -> None:
        self.address = address
        self.opened_at = self.idle_since = self._started = loop.time()
        self._loop = loop
        self._sock = sock
        self._reader = ResponseReader()
        self._transport: asyncio.Transport | None = None
        self._future: asyncio.Future[Outcome] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._early = b""  # what a hasty receiver sends before the first request
        self._used = False
        self._reused = False
        self._loss: Exception | None = None

    @property
    def is_open(self) -> bool:
        """Whether it can carry an exchange, as far as the loop has noticed."""
        return self._transport is not None and not self._transport.is_closing()

    def is_quiet(self) -> bool:
        """Whether the socket itself shows neither an end nor bytes. The loop may not have looked since a freeze."""
        try:
            self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def exchange(self, head: bytes, body: bytes, deadline: float) -> asyncio.Future[Outcome]:
        """Sends a request and reads its response.

        Args:
            head: Request line and header section.
            body: What follows it.
            deadline: When to give up, in the loop's time.

        Returns:
            A future that gets the outcome and no exception. Whoever cancels it has to `abort` the connection.
        """
        self._reader.reset()
        self._reused, self._used = self._used, True
        self._started = self._loop.time()
        future = self._future = self._loop.create_future()
        self._timer = self._loop.call_at(deadline, self._expire)
        transport = self._transport
        if transport is None or transport.is_closing():
            self._take_early()
            self._lose(self._loss)
            return future
        if len(body) > _COPY_MAX:
            transport.writelines((head, body))
        else:
            transport.write(head + body)
        self._take_early()
        return future

    def abort(self) -> None:
        """Closes the socket at once, without a good-bye, and forgets the exchange."""
        self._future = None
        self._close()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The transport is ready."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes of the response; between exchanges, a reason to close."""
        if self._future is not None:
            if self._reader.feed(data):
                self._finish()
        elif self._used:
            self.abort()
        else:
            self._early += data

    def eof_received(self) -> None:
        """The peer will send no more; asyncio closes the transport."""
        self._lose(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self._transport = None
        self._loss = exc
        self._lose(exc)

    def _take_early(self) -> None:
        if self._early:
            early, self._early = self._early, b""
            self.data_received(early)

    def _finish(self) -> None:
        """The reader has a result."""
        reader = self._reader
        transport = self._transport
        # A response to a request that is still being written: take it, and spare both sides the rest.
        if not reader.keep_alive or (transport is not None and transport.get_write_buffer_size() > 0):
            self._close()
        self._settle(
            Outcome(reader.status, reader.headers, reader.retry_after, bytes(reader.body), reader.error, reader.reason)
        )

    def _lose(self, exc: Exception | None) -> None:
        """The connection ended, in order or not."""
        if self._future is None:
            return
        if self._reader.end(clean=exc is None):
            self._finish()
            return
        received = self._reader.received
        stale = self._reused and not received and self._loop.time() - self._started < STALE_WITHIN_S
        self._close()
        if isinstance(exc, ssl.SSLError):
            self._settle(failure(ErrorClass.TLS, tls_reason(exc), stale=stale))
            return
        how = "reset" if exc is not None else "closed"
        when = f"after {received} bytes of the response's head" if received else "before any response"
        self._settle(failure(ErrorClass.RESET, f"the connection was {how} {when}", stale=stale))

    def _expire(self) -> None:
        """The deadline has come."""
        reader = self._reader
        transport = self._transport
        if reader.status is not None:
            reader.cut("the response's body was not complete in time")
            self._finish()
            return
        if reader.received:
            phase = "reading the response's head"
        elif transport is not None and transport.get_write_buffer_size() > 0:
            phase = "writing the request"
        else:
            phase = "waiting for the response"
        self._close()
        self._settle(failure(ErrorClass.TIMEOUT, f"timed out {phase}"))

    def _settle(self, outcome: Outcome) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        future, self._future = self._future, None
        if future is not None and not future.done():
            future.set_result(outcome)

    def _close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
