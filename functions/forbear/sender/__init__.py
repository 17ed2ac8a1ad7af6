"""The seam between deciding to send and sending: one request in, one response out.

Owns the values that cross the seam and the one-method protocol that every sender follows. It knows nothing of
deliveries, policies, signatures or the database. `forbear.sender.lean` is the implementation that Forbear sends with.

What any sender promises:

- It returns a `Response` for whatever the network or the receiver does, and raises nothing but `CancelledError`. Once a
  whole response head has arrived, the status is the result: `error` is None however the body goes on, and `reason` says
  so if the body was cut, malformed or unfinished. Before that, `error` has a class and `status` is None.
- The whole attempt ends within `timeout_s`. A connection whose exchange did not end cleanly is closed, not reused.
- Redirects are never followed, bodies never decompressed, proxy variables of the environment never read.
- A kept-alive connection that turns out to have been closed before any byte of the response came costs one resend on a
  fresh connection, at once and not reported; nothing else is ever sent twice.
"""

from dataclasses import dataclass
from typing import Protocol

from forbear.policy.verdict import ErrorClass
from forbear.urls import Url


@dataclass(slots=True)  # not frozen: see forbear.leases
class Request:
    """One POST to one receiver.

    Attributes:
        url: Where it goes; its target is sent byte for byte.
        headers: Names and values in sending order, without `Host`, `Content-Length`, `Connection` and
            `Accept-Encoding`, which are the sender's.
        body: Sent as it is.
        timeout_s: Seconds for the whole attempt: resolving, connecting, TLS, writing, reading head and kept body.
        connect_timeout_s: Seconds within those until the connection is ready: resolving, connecting, TLS.
    """

    url: Url
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes
    timeout_s: float
    connect_timeout_s: float


@dataclass(slots=True)  # not frozen: see forbear.leases
class Response:
    """What came of a request.

    Attributes:
        status: The HTTP status, 100 to 599; None when no whole response head came.
        headers: The header block as received, without the status line and the final empty line, its first 8 KiB.
        retry_after: The value of every `Retry-After` header, in order, decoded as latin-1.
        body: Its first 16 KiB, transfer-decoded, never content-decoded.
        error: Why there is no status; None when there is one.
        reason: Text for people, at most 300 printable characters, with no part of the URL other than its host; empty
            when a whole response came.
        latency_s: Seconds from the call of `send` to its end.
        address: `ip:port` of the connection, an IPv6 address in brackets; None when there was none.
        unsent: Nothing was sent for want of something of our own, such as descriptors: it says nothing about the
            receiver, passes, and goes for whatever is sent now. `error` is `INTERNAL` then.
    """

    status: int | None
    headers: bytes
    retry_after: tuple[str, ...]
    body: bytes
    error: ErrorClass | None
    reason: str
    latency_s: float
    address: str | None
    unsent: bool = False


class Sender(Protocol):
    """Sends requests. It belongs to one event loop and lives as long."""

    async def send(self, request: Request) -> Response:
        """Sends one request; see the module for what every sender promises.

        Raises:
            asyncio.CancelledError: The caller was cancelled; the connection is closed then.
        """
        ...

    async def aclose(self) -> None:
        """Closes the connections that are kept. Requests in flight end first, if the caller waits for them."""
        ...
