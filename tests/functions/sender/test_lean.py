"""What is ours beyond the seam: the pool's rules, the free resend's limits, running out of descriptors, a freeze."""

import asyncio
import errno
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

from forbear.guard import Guard
from forbear.policy.verdict import ErrorClass
from forbear.sender import Request, connection, pool
from forbear.sender.dialer import tcp_connect
from forbear.sender.lean import LeanSender
from forbear.sender.reasons import bounded
from forbear.urls import Url
from tests.functions.sender.building import LOOPBACK, NAME, Authority, Start, post, request_to
from tests.functions.sender.receivers import OK, Conversation, answering, lookup_of

TO_LOOPBACK = lookup_of("127.0.0.1")


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., LeanSender]]:
    """Makes senders that end with the test."""
    async with AsyncExitStack() as stack:

        def make(**options: object) -> LeanSender:
            sender = LeanSender(LOOPBACK, lookup=TO_LOOPBACK, **options)  # type: ignore[arg-type]  # passed through
            stack.push_async_callback(sender.aclose)
            return sender

        yield make


async def test_an_idle_connection_is_closed_after_its_time(make: Callable[..., LeanSender], start: Start) -> None:
    receiver = await start(answering(OK))
    sender = make(idle_s=0.05)
    await post(sender, receiver)
    assert receiver.hung_up == 0
    await receiver.until(lambda: receiver.hung_up == 1)
    assert (await post(sender, receiver)).status == 200
    assert receiver.connections == 2


async def test_an_old_connection_is_not_kept(
    make: Callable[..., LeanSender], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "AGE_MAX_S", -1)
    receiver = await start(answering(OK))
    sender = make()
    for _ in range(2):
        await post(sender, receiver)
    assert receiver.connections == 2


async def test_idle_connections_make_room_for_those_in_use(
    make: Callable[..., LeanSender], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "OPEN_MAX", 5)
    receivers = [await start(answering(OK)) for _ in range(3)]
    sender = make()
    for receiver in receivers:
        await asyncio.gather(*(post(sender, receiver) for _ in range(3)))
    await receivers[0].until(lambda: receivers[0].hung_up == 3)  # the longest idle ones gave way
    assert sum(receiver.connections - receiver.hung_up for receiver in receivers) <= 5
    assert all(receiver.connections == 3 for receiver in receivers)


async def test_a_late_end_of_a_reused_connection_is_not_taken_for_a_stale_one(
    make: Callable[..., LeanSender], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "STALE_WITHIN_S", 0.05)

    async def script(peer: Conversation) -> None:
        await peer.request()
        await peer.send(OK)
        await peer.request()
        await asyncio.sleep(0.1)  # the receiver works on it, and dies

    receiver = await start(script)
    sender = make()
    await post(sender, receiver)
    response = await post(sender, receiver)
    assert (response.status, response.error) == (None, ErrorClass.RESET)
    assert len(receiver.received) == 2


async def test_connections_that_died_during_a_freeze_are_not_written_to(make: Callable[..., LeanSender]) -> None:
    thawed, closed = threading.Event(), threading.Event()
    heard: list[bytes] = []

    def receive(listening: socket.socket) -> None:
        first, _ = listening.accept()
        first.recv(65536)
        first.sendall(OK)
        thawed.wait(5)
        first.shutdown(socket.SHUT_WR)
        closed.set()
        second, _ = listening.accept()
        second.recv(65536)
        second.sendall(OK)
        heard.append(first.recv(65536))
        first.close()
        second.close()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=receive, args=(listening,))
        thread.start()
        request = request_to(f"http://receiver.example:{listening.getsockname()[1]}/")
        sender = make()
        assert (await sender.send(request)).status == 200
        thawed.set()
        closed.wait(5)  # the loop stands still meanwhile, as in a frozen environment
        assert (await sender.send(request)).status == 200
        await asyncio.to_thread(thread.join)
    assert heard == [b""]


async def test_bytes_that_answer_nothing_are_not_taken_for_the_next_response(
    make: Callable[..., LeanSender],
) -> None:
    """They may have come while the loop was busy with others, just before the connection is used again."""
    asked, strayed = threading.Event(), threading.Event()

    def receive(listening: socket.socket) -> None:
        first, _ = listening.accept()
        with first:
            first.recv(65536)
            first.sendall(OK)
            asked.wait(5)
            first.sendall(OK)
            strayed.set()
            second, _ = listening.accept()
            with second:
                second.recv(65536)
                second.sendall(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=receive, args=(listening,))
        thread.start()
        request = request_to(f"http://receiver.example:{listening.getsockname()[1]}/")
        sender = make()
        assert (await sender.send(request)).status == 200
        asked.set()
        strayed.wait(5)  # the loop has no pass meanwhile
        assert (await sender.send(request)).status == 500
        await asyncio.to_thread(thread.join)


@pytest.mark.filterwarnings("ignore:Exception ignored")  # asyncio's TLS server forgets sockets, not this sender
@pytest.mark.parametrize("secure", [False, True])
async def test_a_request_may_be_cancelled_at_any_moment(
    make: Callable[..., LeanSender], start: Start, authority: Authority, *, secure: bool
) -> None:
    sockets: list[socket.socket] = []

    async def connect(address: str, port: int) -> socket.socket:
        sockets.append(await tcp_connect(address, port))
        return sockets[-1]

    receiver = await start(answering(OK), tls=authority.server(NAME) if secure else None)
    sender = make(connect=connect, tls=authority.client)
    finished = 0
    for steps in range(200):
        task = asyncio.create_task(post(sender, receiver, scheme="https" if secure else "http"))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        finished += not isinstance(result, asyncio.CancelledError)
    assert 0 < finished < 200
    await sender.aclose()
    await asyncio.sleep(0)
    assert [sock for sock in sockets if sock.fileno() != -1] == []


async def test_running_out_of_descriptors_is_our_error_and_frees_the_idle_ones(
    make: Callable[..., LeanSender], start: Start
) -> None:
    exhausted = False

    async def connect(address: str, port: int) -> socket.socket:
        if exhausted:
            raise OSError(errno.EMFILE, "Too many open files")
        return await tcp_connect(address, port)

    first, second = await start(answering(OK)), await start(answering(OK))
    sender = make(connect=connect)
    await post(sender, first)
    exhausted = True
    response = await post(sender, second)
    assert (response.status, response.error) == (None, ErrorClass.INTERNAL)
    assert "Too many open files" in response.reason
    assert response.unsent
    await first.until(lambda: first.hung_up == 1)


async def test_what_was_frozen_until_its_time_was_over_is_not_sent_any_more(
    make: Callable[..., LeanSender], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    clock = loop.time

    async def connect(address: str, port: int) -> socket.socket:
        sock = await tcp_connect(address, port)
        monkeypatch.setattr(loop, "time", lambda: clock() + 60)
        return sock

    receiver = await start(answering(OK))
    response = await post(make(connect=connect), receiver)
    assert (response.status, response.error) == (None, ErrorClass.TIMEOUT)
    await receiver.until(lambda: receiver.hung_up == 1)
    assert receiver.received == []


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ENETUNREACH])
async def test_what_may_be_said_of_the_address_is_an_attempt(
    make: Callable[..., LeanSender], start: Start, number: int
) -> None:
    """It may be said of it for ever, so that the delivery must come to its end."""

    async def connect(_address: str, _port: int) -> socket.socket:
        raise OSError(number, "no")

    assert not (await post(make(connect=connect), await start(answering(OK)))).unsent


async def test_only_the_checked_address_reaches_the_connection() -> None:
    asked: list[tuple[str, int]] = []

    async def connect(address: str, port: int) -> socket.socket:
        asked.append((address, port))
        raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")

    addresses = ("2606:4700:4700::1111", "2606:4700:4700::1001", "100.63.255.254", "223.255.255.255", "1.1.1.1")
    sender = LeanSender(Guard(), lookup=lookup_of(*addresses), connect=connect)
    response = await sender.send(request_to("https://receiver.example/"))
    assert response.error is ErrorClass.CONNECT
    first_four_in_turn = [addresses[index] for index in (0, 2, 1, 3)]
    assert asked == [(address, 443) for address in first_four_in_turn]
    await sender.aclose()


async def test_a_request_that_cannot_be_written_is_unsendable(make: Callable[..., LeanSender], start: Start) -> None:
    receiver = await start(answering(OK))
    response = await post(make(), receiver, headers=((b"x", b"a\r\nb: c"),))
    assert (response.status, response.error) == (None, ErrorClass.UNSENDABLE)
    url = Url("http", "receiver.example", receiver.port, b"/", "b\xfccher.example")
    response = await make().send(Request(url, (), b"", 1, 1))
    assert (response.status, response.error) == (None, ErrorClass.UNSENDABLE)
    assert receiver.connections == 0


async def test_an_unforeseen_error_is_internal_logged_and_stays_inside(
    make: Callable[..., LeanSender], start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    async def connect(_address: str, _port: int) -> socket.socket:
        raise ZeroDivisionError("secret")

    response = await post(make(connect=connect), await start(answering(OK)))
    assert (response.status, response.error) == (None, ErrorClass.INTERNAL)
    assert "ZeroDivisionError" in response.reason
    assert "secret" not in response.reason
    assert "ZeroDivisionError" in caplog.text


def test_reasons_are_short_and_printable() -> None:
    assert bounded("plain") == "plain"
    assert bounded("a\0b\r\n\ud800é") == "a?b???é"
    assert len(bounded("x" * 300)) == 300
    assert bounded("x" * 301) == "x" * 299 + "…"
