"""Names and addresses: what is resolved is checked, and what was checked is connected to."""

import asyncio
import errno
import socket
import sys
from collections.abc import Iterator, Sequence

import pytest

from forbear.guard import Guard
from forbear.policy.verdict import ErrorClass
from tests.functions.sender.building import NAME, MakeSender, Start, post, request_to
from tests.functions.sender.receivers import OK, Receiver, answering, answering_once, lookup_of

ONLY_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="only there is all of 127.0.0.0/8 loopback")


def has_ipv6() -> bool:
    with socket.socket(socket.AF_INET6) as probe:
        return probe.connect_ex(("::1", 9)) != errno.EADDRNOTAVAIL


HAS_IPV6 = socket.has_ipv6 and has_ipv6()


async def test_the_looked_up_address_is_connected_to(make_sender: MakeSender, start: Start) -> None:
    asked = []

    async def lookup(host: str) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"]

    receiver = await start(answering(OK))
    response = await post(make_sender(lookup=lookup), receiver)
    assert (response.status, response.address) == (200, f"127.0.0.1:{receiver.port}")
    assert asked == [NAME]


@pytest.mark.skipif(not HAS_IPV6, reason="no IPv6 on this machine's loopback")
@pytest.mark.parametrize("host", ["[::1]", NAME])
async def test_ipv6_is_connected_to_and_bracketed(make_sender: MakeSender, start: Start, host: str) -> None:
    receiver = await start(answering(OK), host="::1")
    response = await post(make_sender(lookup=lookup_of("::1")), receiver, host=host)
    assert (response.status, response.address) == (200, f"[::1]:{receiver.port}")
    assert receiver.received[0].header(b"host") == [f"{host}:{receiver.port}".encode()]


async def test_an_address_needs_no_lookup(make_sender: MakeSender, start: Start) -> None:
    async def lookup(host: str) -> Sequence[str]:
        raise AssertionError(host)

    receiver = await start(answering(OK))
    assert (await post(make_sender(lookup=lookup), receiver, host="127.0.0.1")).status == 200


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["10.0.0.1"], ["169.254.169.254"], ["::1"], ["fd00:ec2::254"], ["::ffff:127.0.0.1"], ["not one"]],
)
async def test_a_name_with_a_forbidden_address_is_blocked_without_a_connection(
    make_sender: MakeSender, start: Start, addresses: list[str]
) -> None:
    receiver = await start(answering(OK))
    response = await post(make_sender(guard=Guard(allow_http=True), lookup=lookup_of(*addresses)), receiver)
    assert (response.status, response.error, response.address) == (None, ErrorClass.BLOCKED, None)
    assert addresses[0] in response.reason
    assert receiver.connections == 0


async def test_one_forbidden_address_among_others_blocks_the_name(make_sender: MakeSender, start: Start) -> None:
    receiver = await start(answering(OK))
    response = await post(make_sender(lookup=lookup_of("127.0.0.1", "127.0.0.2", "10.0.0.1")), receiver)
    assert (response.status, response.error) == (None, ErrorClass.BLOCKED)
    assert "10.0.0.1" in response.reason
    assert receiver.connections == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "169.254.169.254", "[::ffff:7f00:1]", "[64:ff9b::7f00:1]"])
async def test_a_forbidden_address_in_the_url_is_blocked(make_sender: MakeSender, start: Start, host: str) -> None:
    receiver = await start(answering(OK))
    response = await post(make_sender(guard=Guard(allow_http=True)), receiver, host=host)
    assert (response.status, response.error) == (None, ErrorClass.BLOCKED)
    assert receiver.connections == 0


@pytest.mark.parametrize("problem", [socket.gaierror(-2, "Name or service not known"), UnicodeError("idna")])
async def test_a_name_that_does_not_resolve_is_a_dns_error(
    make_sender: MakeSender, start: Start, problem: Exception
) -> None:
    async def lookup(_host: str) -> Sequence[str]:
        raise problem

    response = await post(make_sender(lookup=lookup), await start(answering(OK)))
    assert (response.status, response.error) == (None, ErrorClass.DNS)
    assert NAME in response.reason


async def test_a_name_without_an_address_is_a_dns_error(make_sender: MakeSender, start: Start) -> None:
    response = await post(make_sender(lookup=lookup_of()), await start(answering(OK)))
    assert (response.status, response.error) == (None, ErrorClass.DNS)


async def test_a_lookup_that_hangs_ends_at_the_connect_timeout(make_sender: MakeSender, start: Start) -> None:
    async def lookup(_host: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    response = await post(make_sender(lookup=lookup), await start(answering(OK)), connect_timeout_s=0.1)
    assert (response.status, response.error) == (None, ErrorClass.TIMEOUT)
    assert "resolving" in response.reason
    assert response.latency_s < 5


@ONLY_LINUX
async def test_the_next_address_is_tried_when_one_refuses(make_sender: MakeSender, start: Start) -> None:
    receiver = await start(answering(OK))
    response = await post(make_sender(lookup=lookup_of("127.0.0.2", "127.0.0.3", "127.0.0.1")), receiver)
    assert (response.status, response.address) == (200, f"127.0.0.1:{receiver.port}")


@pytest.fixture
def full_backlog() -> Iterator[tuple[str, int]]:
    """An address that swallows connection requests: its queue is full, and Linux drops what comes then."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.2", 0))
        listening.listen(0)
        port: int = listening.getsockname()[1]
        waiting = []
        for _ in range(8):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.2", port))
            waiting.append(sock)
        yield "127.0.0.2", port
        for sock in waiting:
            sock.close()


@ONLY_LINUX
async def test_a_connection_that_hangs_ends_at_the_connect_timeout(
    make_sender: MakeSender, full_backlog: tuple[str, int]
) -> None:
    address, port = full_backlog
    response = await post(make_sender(lookup=lookup_of(address)), Receiver(port), connect_timeout_s=0.2)
    assert (response.status, response.error) == (None, ErrorClass.TIMEOUT)
    assert 0.1 < response.latency_s < 5


@ONLY_LINUX
async def test_an_address_that_hangs_leaves_time_for_the_next(
    make_sender: MakeSender, start: Start, full_backlog: tuple[str, int]
) -> None:
    address, port = full_backlog
    await start(answering(OK), port=port)
    response = await post(make_sender(lookup=lookup_of(address, "127.0.0.1")), Receiver(port), connect_timeout_s=0.4)
    assert (response.status, response.address) == (200, f"127.0.0.1:{port}")


@ONLY_LINUX
async def test_nobody_listening_is_a_connect_error(make_sender: MakeSender, start: Start) -> None:
    receiver = await start(answering(OK))
    response = await post(make_sender(lookup=lookup_of("127.0.0.2", "127.0.0.3")), receiver)
    assert (response.status, response.error, response.address) == (None, ErrorClass.CONNECT, None)
    assert response.reason


async def test_the_reason_shows_nothing_of_the_url_but_its_host(make_sender: MakeSender) -> None:
    response = await make_sender().send(request_to(f"http://{NAME}:1/path-secret?token=query-secret"))
    assert response.error is ErrorClass.CONNECT
    assert "secret" not in response.reason


async def test_an_answer_that_changes_is_checked_again(make_sender: MakeSender, start: Start) -> None:
    receiver = await start(answering_once(OK))
    sender = make_sender(guard=Guard(allow_http=True), lookup=lookup_of("127.0.0.1"))
    for _ in range(2):
        assert (await post(sender, receiver)).error is ErrorClass.BLOCKED
    assert receiver.connections == 0
