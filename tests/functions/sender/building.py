"""Builders that the tests of the sender share."""

import ssl
from collections.abc import Awaitable
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Protocol

import trustme

from forbear.guard import Guard
from forbear.sender import Request, Response, Sender
from forbear.sender.resolver import Lookup
from forbear.urls import parse
from tests.functions.sender.receivers import Receiver, Script

LOOPBACK = Guard(allow=(ip_network("127.0.0.0/8"), ip_network("::1/128")), allow_http=True)
NAME = "receiver.example"


class Start(Protocol):
    """Starts a receiver."""

    def __call__(
        self, script: Script, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1", port: int = 0
    ) -> Awaitable[Receiver]: ...


class MakeSender(Protocol):
    """Makes a sender; by default one for which every name is 127.0.0.1, which may be connected to."""

    def __call__(self, *, guard: Guard = ..., lookup: Lookup = ..., tls: ssl.SSLContext | None = None) -> Sender: ...


@dataclass(frozen=True)
class Authority:
    """A certificate authority, and the context of clients that trust it."""

    ca: trustme.CA
    client: ssl.SSLContext

    def server(self, *names: str) -> ssl.SSLContext:
        """The context of a server with a certificate for these names."""
        return server_context(self.ca.issue_cert(*names))


def server_context(certificate: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    return context


def request_to(
    url: str,
    *,
    body: bytes = b"{}",
    headers: tuple[tuple[bytes, bytes], ...] = (),
    timeout_s: float = 15.0,
    connect_timeout_s: float | None = None,
) -> Request:
    """A request as the claimer would build it."""
    connect_s = timeout_s if connect_timeout_s is None else connect_timeout_s
    return Request(parse(url, allow_http=True), headers, body, timeout_s, connect_s)


async def post(
    sender: Sender,
    receiver: Receiver,
    *,
    scheme: str = "http",
    host: str = NAME,
    target: str = "/hook",
    body: bytes = b"{}",
    headers: tuple[tuple[bytes, bytes], ...] = (),
    timeout_s: float = 15.0,
    connect_timeout_s: float | None = None,
) -> Response:
    """Sends one request to a receiver."""
    url = f"{scheme}://{host}:{receiver.port}{target}"
    return await sender.send(
        request_to(url, body=body, headers=headers, timeout_s=timeout_s, connect_timeout_s=connect_timeout_s)
    )
