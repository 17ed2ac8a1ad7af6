"""The whole attempt ends in time, whatever the receiver does, and its socket is closed then."""

import asyncio

import pytest

from forbear.policy.verdict import ErrorClass
from forbear.sender import Sender
from tests.functions.sender.building import Start, post
from tests.functions.sender.receivers import OK, Conversation, Script, answering, silent


async def no_answer(peer: Conversation) -> None:
    await peer.request()
    await peer.until_hung_up()


async def dripping(peer: Conversation, data: bytes) -> None:
    """Sends the data, then a byte at a time for ever."""
    await peer.request()
    await peer.send(data)
    while True:
        await peer.send(b"x")
        await asyncio.sleep(0.01)


async def dripping_head(peer: Conversation) -> None:
    await dripping(peer, b"HTTP/1.1 200 OK\r\nx: ")


async def interim_only(peer: Conversation) -> None:
    await peer.request()
    await peer.send(b"HTTP/1.1 102 Processing\r\n\r\n")
    await peer.until_hung_up()


@pytest.mark.parametrize("script", [no_answer, dripping_head, interim_only])
async def test_an_answer_that_does_not_come_in_time_is_a_timeout(sender: Sender, start: Start, script: Script) -> None:
    receiver = await start(script)
    response = await post(sender, receiver, timeout_s=0.3)
    assert (response.status, response.error) == (None, ErrorClass.TIMEOUT)
    assert response.reason
    assert 0.2 < response.latency_s < 3
    await receiver.until(lambda: receiver.hung_up == 1)
    assert len(receiver.received) == 1


async def test_a_request_that_nobody_reads_is_a_timeout(sender: Sender, start: Start) -> None:
    hang_up = asyncio.Event()

    async def script(_peer: Conversation) -> None:
        await hang_up.wait()

    receiver = await start(script)
    response = await post(sender, receiver, body=bytes(32 << 20), timeout_s=0.3)
    hang_up.set()
    assert (response.status, response.error) == (None, ErrorClass.TIMEOUT)
    assert response.latency_s < 3


@pytest.mark.parametrize("framing", [b"Content-Length: 100000", b"x: y"])
async def test_a_body_that_drips_leaves_the_status_at_the_deadline(
    sender: Sender, start: Start, framing: bytes
) -> None:
    async def script(peer: Conversation) -> None:
        await dripping(peer, b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n\r\n")

    receiver = await start(script)
    response = await post(sender, receiver, timeout_s=0.3)
    assert (response.status, response.error) == (200, None)
    assert "body" in response.reason
    assert response.body.strip(b"x") == b""
    assert 0.2 < response.latency_s < 3
    await receiver.until(lambda: receiver.hung_up == 1)


async def test_an_answer_just_in_time_is_an_answer(sender: Sender, start: Start) -> None:
    async def script(peer: Conversation) -> None:
        await peer.request()
        await asyncio.sleep(0.1)
        await peer.send(OK)

    response = await post(sender, await start(script), timeout_s=5)
    assert (response.status, response.error) == (200, None)
    assert response.latency_s > 0.09


async def test_a_cancelled_request_closes_its_connection(sender: Sender, start: Start) -> None:
    receiver = await start(no_answer)
    task = asyncio.create_task(post(sender, receiver))
    await receiver.until(lambda: bool(receiver.received))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await receiver.until(lambda: receiver.hung_up == 1)


async def test_a_request_cancelled_while_connecting_closes_its_connection(sender: Sender, start: Start) -> None:
    receiver = await start(silent)
    task = asyncio.create_task(post(sender, receiver, scheme="https"))
    await receiver.until(lambda: receiver.connections == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await receiver.until(lambda: receiver.hung_up == 1)


async def test_other_requests_go_on_when_one_is_cancelled(sender: Sender, start: Start) -> None:
    slow, quick = await start(no_answer), await start(answering(OK))
    task = asyncio.create_task(post(sender, slow))
    await slow.until(lambda: bool(slow.received))
    pending = asyncio.gather(*(post(sender, quick) for _ in range(20)))
    task.cancel()
    assert {response.status for response in await pending} == {200}


async def test_closing_the_sender_closes_idle_connections(sender: Sender, start: Start) -> None:
    receiver = await start(answering(OK))
    await post(sender, receiver)
    assert receiver.hung_up == 0
    await sender.aclose()
    await receiver.until(lambda: receiver.hung_up == 1)
