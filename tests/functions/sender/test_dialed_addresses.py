"""Where a request may go, asked when it is sent: a dialer in the test's hand stands for the connection.

What is stored need not have been allowed when it was: settings and names change. So nothing here was asked before.
"""

from __future__ import annotations

import errno
import json
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from uuid import uuid4

import pytest

from forbear.guard import Guard
from forbear.leases import Endpoint, parse_endpoint
from forbear.policy.verdict import ErrorClass
from forbear.sealed import seal_secret
from forbear.sender import Request, Response
from forbear.sender.lean import LeanSender
from forbear.signing import generate_secret
from forbear.urls import Url, parse
from forbear.vault import KEY_BYTES, Keyring, Purpose
from tests.functions.addresses.ranges import ALLOWED, REFUSED
from tests.functions.addresses.spellings import ALLOWED_HOSTS, CREDENTIALS, HOSTS, URLS
from tests.functions.sender.building import request_to

GOOD = "1.1.1.1"
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # no handshake is ever begun
NAME = "receiver.example"


@dataclass
class Network:
    """Every name means `addresses`; whatever is dialled is noted and refused."""

    addresses: Sequence[str] = ()
    looked_up: list[str] = field(default_factory=list)
    dialled: list[tuple[str, int]] = field(default_factory=list)

    async def lookup(self, host: str) -> Sequence[str]:
        self.looked_up.append(host)
        if not self.addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.addresses

    async def connect(self, address: str, port: int) -> socket.socket:
        self.dialled.append((address, port))
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")


async def sent(network: Network, request: Request, guard: Guard) -> Response:
    sender = LeanSender(guard, tls=TLS, lookup=network.lookup, connect=network.connect)
    try:
        return await sender.send(request)
    finally:
        await sender.aclose()


async def sent_to(network: Network, host: str, guard: Guard | None = None) -> Response:
    """Send to a host as it is spelled, past everything that reads URLs."""
    url = Url("https", host, 443, b"/", "receiver.example")
    return await sent(network, Request(url, (), b"{}", 15, 15), guard or Guard())


def stored(url: str) -> Url | str:
    """An endpoint's URL as the claimer reads it from the database; the reason if it cannot be used."""
    keyring, endpoint_id = Keyring(Purpose.SECRETS, {1: bytes(KEY_BYTES)}), uuid4()
    row: dict[str, object] = {
        "url": url,
        "headers": None,
        "policy": {},
        "secrets": [seal_secret(keyring, endpoint_id, generate_secret())],
    }
    endpoint, _ = parse_endpoint(json.dumps(row), endpoint_id, keyring)
    return endpoint.url if isinstance(endpoint, Endpoint) else str(endpoint)


def in_brackets(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


SPELLINGS = {
    **dict.fromkeys(URLS, GOOD),
    **dict.fromkeys(CREDENTIALS, GOOD),
    **{f"https://{in_brackets(host)}/": address for host, (address, _) in HOSTS.items()},
    **{f"https://{in_brackets(address)}/": address for address in REFUSED},
}
"""URL -> the address that its host resolves to, where it is a name."""


async def test_a_url_that_must_not_be_is_refused_when_it_is_sent_to() -> None:
    """With a reason, whether the URL itself is refused or what it leads to, and nothing is looked up or dialled."""
    for url, address in SPELLINGS.items():
        network = Network([address] if address else [])
        read = stored(url)
        if isinstance(read, str):
            assert read, url
            continue
        response = await sent(network, Request(read, (), b"{}", 15, 15), Guard())
        assert (response.status, response.error) == (None, ErrorClass.BLOCKED), url
        assert response.reason, url
        assert (network.looked_up, network.dialled) == ([], []), url


async def test_a_spelling_that_no_parser_read_is_refused_all_the_same() -> None:
    for host, (address, _) in HOSTS.items():
        network = Network([address] if address else [])
        response = await sent_to(network, host)
        assert (response.status, response.error) == (None, ErrorClass.BLOCKED), host
        assert response.reason, host
        assert network.dialled == [], host


async def test_a_name_with_a_refused_address_is_refused_as_a_whole() -> None:
    for address, reason in REFUSED.items():
        for addresses in ([address], [GOOD, address], [address, GOOD], [GOOD, "2606:4700:4700::1111", address]):
            network = Network(addresses)
            response = await sent_to(network, NAME)
            assert (response.status, response.error) == (None, ErrorClass.BLOCKED), addresses
            assert reason in response.reason, addresses
            assert (network.looked_up, network.dialled) == ([NAME], []), addresses


async def test_a_neighbour_is_dialled_at_the_address_that_was_checked() -> None:
    for address in ALLOWED:
        by_name, by_address = Network([address]), Network()
        await sent_to(by_name, NAME)
        await sent_to(by_address, address)
        assert by_name.dialled == by_address.dialled == [(address, 443)]
        assert (by_name.looked_up, by_address.looked_up) == ([NAME], [])


async def test_a_name_is_looked_up_once_and_its_address_dialled() -> None:
    for host, (kept, _) in ALLOWED_HOSTS.items():
        network = Network([GOOD])
        url = stored(f"https://{host}:8443/")
        assert isinstance(url, Url), host
        await sent(network, Request(url, (), b"{}", 15, 15), Guard())
        is_address = kept[0].isdigit() and kept[-1].isdigit()
        assert network.looked_up == ([] if is_address else [kept])
        assert network.dialled == [(kept if is_address else GOOD, 8443)]


@pytest.mark.parametrize(
    ("url", "guard", "reason"),
    [
        ("http://receiver.example/", Guard(), "http is not allowed here: use https"),
        ("http://receiver.example:443/", Guard(), "http is not allowed here: use https"),
        (
            "https://receiver.example:8443/",
            Guard(ports=frozenset({443})),
            "port 8443 is not allowed here; allowed: 443",
        ),
        ("http://receiver.example/", Guard(allow_http=True, ports=frozenset({443, 8080})), "allowed: 443, 8080"),
    ],
)
async def test_an_endpoint_from_before_the_settings_were_tightened_is_not_sent_to(
    url: str, guard: Guard, reason: str
) -> None:
    network = Network([GOOD])
    response = await sent(network, request_to(url), guard)
    assert (response.status, response.error) == (None, ErrorClass.BLOCKED)
    assert reason in response.reason
    assert (network.looked_up, network.dialled) == ([], [])


@pytest.mark.parametrize(
    ("url", "guard"),
    [
        ("https://receiver.example/", Guard(ports=frozenset({443}))),
        ("https://receiver.example:8443/", Guard()),
        ("http://receiver.example/", Guard(allow_http=True)),
        ("http://receiver.example:8080/", Guard(allow_http=True, ports=frozenset({443, 8080}))),
    ],
)
async def test_what_the_settings_allow_is_dialled(url: str, guard: Guard) -> None:
    network = Network([GOOD])
    await sent(network, request_to(url), guard)
    assert network.dialled == [(GOOD, parse(url, allow_http=True).port)]
