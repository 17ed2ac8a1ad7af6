"""When connections are used again, and the one resend that is free."""

import asyncio
from collections.abc import Callable

import pytest

from forbear.policy.verdict import ErrorClass
from forbear.sender import Sender
from tests.functions.sender.building import Start, post
from tests.functions.sender.receivers import OK, Conversation, Script, answering, answering_once

SERVICE_UNAVAILABLE = b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nbusy"


@pytest.mark.parametrize(
    "answer",
    [
        OK,
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
    ],
)
async def test_a_connection_is_used_again(sender: Sender, start: Start, answer: bytes) -> None:
    receiver = await start(answering(answer))
    for _ in range(3):
        assert (await post(sender, receiver)).error is None
    assert [received.connection for received in receiver.received] == [1, 1, 1]


async def test_receivers_do_not_share_connections(sender: Sender, start: Start) -> None:
    receivers = [await start(answering(OK)) for _ in range(2)]
    for receiver in receivers * 2:
        assert (await post(sender, receiver)).status == 200
    assert [receiver.connections for receiver in receivers] == [1, 1]


async def test_requests_at_once_each_get_their_own_answer(sender: Sender, start: Start) -> None:
    async def echo(peer: Conversation) -> None:
        while True:
            body = (await peer.request()).body
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))

    receiver = await start(echo)
    bodies = [b"body %d" % number for number in range(20)]
    for _ in range(3):
        responses = await asyncio.gather(*(post(sender, receiver, body=body) for body in bodies))
        assert [response.body for response in responses] == bodies
    assert receiver.connections == 20


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nconnection: foo, Close\r\nContent-Length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    ],
)
async def test_a_connection_that_was_announced_to_close_is_not_used_again(
    sender: Sender, start: Start, answer: bytes
) -> None:
    receiver = await start(answering(answer))  # which does not close it
    for _ in range(2):
        assert (await post(sender, receiver)).body == b"ok"
    assert [received.connection for received in receiver.received] == [1, 2]


async def test_a_connection_that_the_receiver_closed_is_not_used_again(sender: Sender, start: Start) -> None:
    receiver = await start(answering_once(OK))
    for _ in range(3):
        assert (await post(sender, receiver)).status == 200
    assert [received.connection for received in receiver.received] == [1, 2, 3]


SURPLUS = [b"x", b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", b"HTT"]


@pytest.mark.parametrize("surplus", SURPLUS)
async def test_surplus_bytes_with_a_response_do_not_answer_the_next_request(
    sender: Sender, start: Start, surplus: bytes
) -> None:
    async def script(peer: Conversation) -> None:
        await peer.request()
        await peer.send(OK + surplus)
        await peer.until_hung_up()

    receiver = await start(script)
    for _ in range(2):
        assert (await post(sender, receiver, timeout_s=1)).status == 200
    assert [received.connection for received in receiver.received] == [1, 2]


@pytest.mark.parametrize("surplus", [*SURPLUS, b"\r\n"])
async def test_surplus_bytes_between_responses_do_not_answer_the_next_request(
    sender: Sender, start: Start, surplus: bytes
) -> None:
    answered = asyncio.Event()

    async def script(peer: Conversation) -> None:
        await peer.request()
        await peer.send(OK)
        await answered.wait()
        await peer.send(surplus)
        await peer.until_hung_up()

    receiver = await start(script)
    assert (await post(sender, receiver)).status == 200
    answered.set()
    await asyncio.sleep(0.02)  # nothing tells when the surplus has arrived
    assert (await post(sender, receiver, timeout_s=1)).status == 200
    assert [received.connection for received in receiver.received] == [1, 2]


def closing_the_second(how: Callable[[Conversation], None], rest: bytes = OK) -> Script:
    """The first connection answers one request and ends at the second, without an answer; the others answer `rest`."""

    async def script(peer: Conversation) -> None:
        await peer.request()
        await peer.send(OK if peer.number == 1 else rest)
        await peer.request()
        if peer.number == 1:
            how(peer)

    return script


def close(_peer: Conversation) -> None:
    """Returning from the script closes."""


def reset(peer: Conversation) -> None:
    peer.reset()


def half_answer_and_close(peer: Conversation) -> None:
    peer.writer.write(b"HTTP/1.1 2")


def interim_answer_and_close(peer: Conversation) -> None:
    peer.writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")


@pytest.mark.parametrize("how", [close, reset])
async def test_a_stale_connection_costs_one_free_resend(
    sender: Sender, start: Start, how: Callable[[Conversation], None]
) -> None:
    receiver = await start(closing_the_second(how, SERVICE_UNAVAILABLE))
    await post(sender, receiver, body=b"first")
    response = await post(sender, receiver, body=b"second")
    assert (response.status, response.error, response.body) == (503, None, b"busy")
    bodies = [(received.connection, received.body) for received in receiver.received]
    assert bodies == [(1, b"first"), (1, b"second"), (2, b"second")]


async def test_the_resend_is_not_repeated(sender: Sender, start: Start) -> None:
    async def script(peer: Conversation) -> None:
        await peer.request()
        if peer.number == 1:
            await peer.send(OK)
            await peer.request()

    receiver = await start(script)
    await post(sender, receiver, body=b"first")
    response = await post(sender, receiver, body=b"second")
    assert (response.status, response.error) == (None, ErrorClass.RESET)
    assert [received.body for received in receiver.received] == [b"first", b"second", b"second"]


@pytest.mark.parametrize("how", [half_answer_and_close, interim_answer_and_close])
async def test_nothing_is_resent_once_a_byte_of_an_answer_came(
    sender: Sender, start: Start, how: Callable[[Conversation], None]
) -> None:
    receiver = await start(closing_the_second(how))
    await post(sender, receiver)
    response = await post(sender, receiver)
    assert (response.status, response.error) == (None, ErrorClass.RESET)
    assert len(receiver.received) == 2


@pytest.mark.parametrize("how", [close, reset, half_answer_and_close])
async def test_nothing_is_resent_on_a_fresh_connection(
    sender: Sender, start: Start, how: Callable[[Conversation], None]
) -> None:
    async def script(peer: Conversation) -> None:
        await peer.request()
        how(peer)

    receiver = await start(script)
    response = await post(sender, receiver)
    assert (response.status, response.error) == (None, ErrorClass.RESET)
    assert response.reason
    assert len(receiver.received) == 1


async def test_a_receiver_that_closes_at_once_is_a_reset(sender: Sender, start: Start) -> None:
    async def script(peer: Conversation) -> None:
        peer.reset()

    response = await post(sender, await start(script), body=bytes(1 << 20))
    assert (response.status, response.error) == (None, ErrorClass.RESET)
