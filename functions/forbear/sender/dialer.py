"""New connections: resolve the name, check every address, connect to the checked one, verify the certificate.

Owns the way from a URL to a connection, and that no address is connected to which the guard did not see. It must not
know requests or what happens on the connection.
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from itertools import chain, zip_longest

from forbear.guard import Guard
from forbear.policy.verdict import ErrorClass
from forbear.sender.connection import Connection
from forbear.sender.reasons import is_short, os_error_class, os_reason, tls_reason
from forbear.sender.resolver import Resolver
from forbear.urls import Url

type Connect = Callable[[str, int], Awaitable[socket.socket]]
"""IP address and port in, a connected non-blocking TCP socket out; raises `OSError`."""

ADDRESSES_TRIED = 4
"""Addresses of a name that one attempt tries: each needs a fair share of the time."""


class UnreachableError(Exception):
    """There is no connection, with the class of the error and the reason; `address` if one was connected to.

    `short`: for want of something of our own; see `forbear.sender.reasons.is_short`.
    """

    def __init__(self, error: ErrorClass, reason: str, address: str | None = None, *, short: bool = False) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason
        self.address = address
        self.short = short


def tls_context(cafile: str | None = None) -> ssl.SSLContext:
    """The context for every connection: certificate and name verified, TLS 1.2 or later, HTTP/1.1 only.

    Args:
        cafile: Trusted certificates in PEM; None for the system's.
    """
    context = ssl.create_default_context(cafile=cafile)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


async def tcp_connect(address: str, port: int) -> socket.socket:
    """A TCP connection to an IP address.

    Raises:
        OSError: It cannot be reached.
    """
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, (address, port))
    except BaseException:
        sock.close()
        raise
    return sock


class Dialer:
    """Makes connections to receivers."""

    def __init__(self, guard: Guard, resolver: Resolver, tls: ssl.SSLContext, connect: Connect = tcp_connect) -> None:
        self._guard = guard
        self._resolver = resolver
        self._tls = tls
        self._connect = connect

    async def dial(self, url: Url, deadline: float) -> Connection:
        """Connects to the URL's host: to an address that was checked, and verified for the host's name.

        Args:
            url: Where to.
            deadline: When the connection must be ready, in the loop's time.

        Raises:
            UnreachableError: With `DNS`, `BLOCKED`, `CONNECT`, `TLS`, `TIMEOUT` or, when this machine has run out of
                descriptors, ports or memory, `INTERNAL`.
        """
        refusal = self._guard.refusal_of_service(url) or self._guard.refusal_of_host(url.host)
        if refusal is not None:
            raise UnreachableError(ErrorClass.BLOCKED, refusal)
        addresses = await self.addresses(url.host, deadline)
        sock, address = await self._connected(addresses, url.port, deadline)
        return await self._ready(url, sock, address, deadline)

    async def addresses(self, host: str, deadline: float) -> Sequence[str]:
        """The addresses to try for a host, in order. One that the guard refuses refuses the host.

        Raises:
            UnreachableError: With `DNS`, `BLOCKED` or `TIMEOUT`.
        """
        addresses: Sequence[str]
        if _is_literal(host):
            addresses = (host,)
        else:
            try:
                async with asyncio.timeout_at(deadline):
                    addresses = await self._resolver.resolve(host)
            except TimeoutError:
                raise UnreachableError(ErrorClass.TIMEOUT, "timed out resolving the name") from None
            except OSError as error:
                short = is_short(error)
                kind = ErrorClass.INTERNAL if short else ErrorClass.DNS
                raise UnreachableError(kind, f"{host}: {os_reason(error)}", short=short) from None
            except UnicodeError:
                raise UnreachableError(ErrorClass.DNS, f"{host}: not a name that can resolve") from None
        if not addresses:
            raise UnreachableError(ErrorClass.DNS, f"{host}: the name has no address")
        for address in addresses:
            refusal = self._guard.refusal(address)
            if refusal is not None:
                raise UnreachableError(ErrorClass.BLOCKED, f"{address}: {refusal}")
        return _interleaved(addresses)[:ADDRESSES_TRIED]

    async def _connected(self, addresses: Sequence[str], port: int, deadline: float) -> tuple[socket.socket, str]:
        loop = asyncio.get_running_loop()
        reasons = []
        short = False
        for tried, address in enumerate(addresses):
            shown = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            now = loop.time()
            try:
                # An address that swallows packets must not use up the time of the next one.
                async with asyncio.timeout_at(now + (deadline - now) / (len(addresses) - tried)):
                    return await self._connect(address, port), shown
            except TimeoutError:
                error, short = ErrorClass.TIMEOUT, False
                reasons.append(f"timed out connecting to {shown}")
            except OSError as problem:
                error, short = os_error_class(problem), is_short(problem)
                reasons.append(f"{shown}: {os_reason(problem)}")
        raise UnreachableError(error, "; ".join(reasons), short=short)

    async def _ready(self, url: Url, sock: socket.socket, address: str, deadline: float) -> Connection:
        loop = asyncio.get_running_loop()
        connection = Connection(loop, sock, address)
        if url.scheme == "http":
            try:
                await loop.create_connection(lambda: connection, sock=sock)
            except OSError as error:
                reason = f"{address}: {os_reason(error)}"
                raise UnreachableError(os_error_class(error), reason, address, short=is_short(error)) from None
            return connection
        try:
            async with asyncio.timeout_at(deadline):
                await self._secure(url.host, sock, connection)
        except TimeoutError:
            raise UnreachableError(ErrorClass.TIMEOUT, "timed out in the TLS handshake", address) from None
        except ssl.SSLError as error:
            raise UnreachableError(ErrorClass.TLS, tls_reason(error), address) from None
        except OSError:
            raise UnreachableError(ErrorClass.TLS, "the connection ended in the TLS handshake", address) from None
        return connection

    async def _secure(self, name: str, sock: socket.socket, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        # In two steps, to have the plain transport at hand: a TLS transport that is given up right after its handshake
        # says good-bye and keeps the socket for half a minute if nobody answers. The protocol of the first step ignores
        # what comes, so that nothing sent in the clear can pass for what was not.
        plain, _ = await loop.create_connection(asyncio.Protocol, sock=sock)
        try:
            transport = await loop.start_tls(plain, connection, self._tls, server_hostname=name)
        except BaseException:
            plain.abort()
            raise
        if transport is None:  # the connection ended in the very moment
            raise ConnectionResetError
        connection.connection_made(transport)


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _interleaved(addresses: Sequence[str]) -> Sequence[str]:
    """In order, but the families in turn, so that one that does not work costs one try (RFC 8305 section 4)."""
    first_is_v6 = ":" in addresses[0]
    first = [address for address in addresses if (":" in address) == first_is_v6]
    second = [address for address in addresses if (":" in address) != first_is_v6]
    return [address for address in chain.from_iterable(zip_longest(first, second)) if address is not None]
