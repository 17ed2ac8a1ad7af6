"""How responses are read: statuses, framings, bounds."""

import asyncio
import gzip
import itertools

import pytest

from forbear.policy.verdict import ErrorClass
from forbear.sender import Sender
from tests.functions.sender.building import Start, post
from tests.functions.sender.receivers import OK, Conversation, answering, answering_once

KEPT = 16 * 1024


@pytest.mark.parametrize("status", [200, 201, 202, 299, 400, 404, 410, 429, 500, 503, 599])
async def test_the_status_is_the_result(sender: Sender, start: Start, status: int) -> None:
    receiver = await start(answering(b"HTTP/1.1 %d Whatever\r\nContent-Length: 3\r\n\r\nabc" % status))
    response = await post(sender, receiver)
    assert (response.status, response.error, response.reason, response.body) == (status, None, "", b"abc")


@pytest.mark.parametrize("reason", [b" ", b" Very  Fine (indeed) \xc3\xa9\xff", b""])
async def test_any_reason_phrase_will_do(sender: Sender, start: Start, reason: bytes) -> None:
    receiver = await start(answering(b"HTTP/1.1 200%b\r\nContent-Length: 0\r\n\r\n" % reason))
    assert (await post(sender, receiver)).status == 200


async def test_headers_are_kept_as_received(sender: Sender, start: Start) -> None:
    block = b"Content-Length: 0\r\nX-Case: MiXed\r\nx-empty: \r\nx-a: 1\r\nx-a: 2\r\nx-latin: caf\xe9 \xff\r\n"
    receiver = await start(answering(b"HTTP/1.1 200 OK\r\n" + block + b"\r\n"))
    assert (await post(sender, receiver)).headers == block


async def test_at_most_8_kib_of_headers_are_kept(sender: Sender, start: Start) -> None:
    block = b"".join(b"x-%04d: %b\r\n" % (number, b"v" * 90) for number in range(300))
    late = b"Retry-After: 7\r\nContent-Length: 0\r\n\r\n"
    receiver = await start(answering(b"HTTP/1.1 503 Busy\r\n" + block + late))
    response = await post(sender, receiver)
    assert (response.status, response.retry_after) == (503, ("7",))
    assert response.headers == block[:8192]


async def test_every_retry_after_is_collected_in_order(sender: Sender, start: Start) -> None:
    first = b"retry-after: 120\r\nX-Retry-After: 5\r\nRETRY-AFTER:\t Fri, 31 Dec 1999 23:59:59 GMT \r\n"
    last = b"Retry-After: \xe9\r\nContent-Length: 0\r\n\r\n"
    receiver = await start(answering(b"HTTP/1.1 429 Slow\r\n" + first + last))
    assert (await post(sender, receiver)).retry_after == ("120", "Fri, 31 Dec 1999 23:59:59 GMT", "é")


async def test_retry_after_counts_only_in_the_final_head(sender: Sender, start: Start) -> None:
    receiver = await start(
        answering(
            b"HTTP/1.1 103 Early Hints\r\nRetry-After: 1\r\n\r\n"
            b"HTTP/1.1 503 Busy\r\nRetry-After: 2\r\nTransfer-Encoding: chunked\r\nTrailer: Retry-After\r\n\r\n"
            b"1\r\nx\r\n0\r\nRetry-After: 3\r\n\r\n"
        )
    )
    response = await post(sender, receiver)
    assert (response.retry_after, response.body) == (("2",), b"x")


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\nhello\0world",
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n006;x="y"\r\n\0world\r\n0\r\n\r\n',
        b"HTTP/1.1 200 OK\r\n\r\nhello\0world",
        b"HTTP/1.0 200 OK\r\n\r\nhello\0world",
    ],
    ids=["length", "chunked", "until close", "HTTP/1.0"],
)
@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_each_framing_gives_the_same_body_however_it_arrives(
    sender: Sender, start: Start, answer: bytes, step: int
) -> None:
    async def script(peer: Conversation) -> None:
        await peer.request()
        for piece in itertools.batched(answer, step, strict=False):
            await peer.send(bytes(piece))
            await asyncio.sleep(0)

    response = await post(sender, await start(script))
    assert (response.status, response.error, response.reason, response.body) == (200, None, "", b"hello\0world")


@pytest.mark.parametrize("head", [b"204 No Content\r\n", b"204 No Content\r\nContent-Length: 5\r\n", b"304 Same\r\n"])
async def test_statuses_without_a_body_end_with_their_head(sender: Sender, start: Start, head: bytes) -> None:
    receiver = await start(answering(b"HTTP/1.1 " + head + b"\r\n"))
    response = await post(sender, receiver)
    assert (response.status, response.reason, response.body) == (int(head[:3]), "", b"")
    assert response.latency_s < 10


async def test_interim_responses_are_skipped(sender: Sender, start: Start) -> None:
    interim = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    )
    receiver = await start(answering(interim + OK))
    response = await post(sender, receiver)
    assert (response.status, response.body, response.headers) == (200, b"ok", b"Content-Length: 2\r\n")


async def test_switching_protocols_is_an_error(sender: Sender, start: Start) -> None:
    receiver = await start(
        answering(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\0")
    )
    response = await post(sender, receiver)
    assert (response.status, response.error) == (None, ErrorClass.PROTOCOL)
    assert response.reason


async def test_an_offer_to_upgrade_is_no_upgrade(sender: Sender, start: Start) -> None:
    receiver = await start(
        answering(b"HTTP/1.1 200 OK\r\nConnection: Upgrade\r\nUpgrade: h2,h2c\r\nContent-Length: 2\r\n\r\nok")
    )
    response = await post(sender, receiver)
    assert (response.status, response.body) == (200, b"ok")


@pytest.mark.parametrize("header", [b"Content-Encoding: gzip\r\n", b""])
async def test_bodies_are_never_decompressed(sender: Sender, start: Start, header: bytes) -> None:
    bomb = gzip.compress(bytes(32 << 20), compresslevel=1)
    receiver = await start(answering(b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (header, len(bomb), bomb)))
    response = await post(sender, receiver)
    assert (response.status, response.error, response.body) == (200, None, bomb[:KEPT])


async def test_a_body_of_exactly_16_kib_is_whole(sender: Sender, start: Start) -> None:
    receiver = await start(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 16384\r\n\r\n" + b"x" * KEPT))
    response = await post(sender, receiver)
    assert (response.reason, response.body) == ("", b"x" * KEPT)


@pytest.mark.parametrize("status", [200, 500])
async def test_a_longer_body_is_cut_and_the_connection_closed(sender: Sender, start: Start, status: int) -> None:
    receiver = await start(answering(b"HTTP/1.1 %d OK\r\nContent-Length: 200000\r\n\r\n" % status + b"x" * 200_000))
    response = await post(sender, receiver)
    assert (response.status, response.error, response.body) == (status, None, b"x" * KEPT)
    assert "body" in response.reason
    await receiver.until(lambda: receiver.hung_up == 1)


@pytest.mark.parametrize("framing", [b"Transfer-Encoding: chunked\r\n", b"Content-Length: 99999999999\r\n", b""])
async def test_a_body_without_end_ends_at_the_cap(sender: Sender, start: Start, framing: bytes) -> None:
    async def script(peer: Conversation) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 500 Oops\r\n" + framing + b"\r\n")
        while True:
            await peer.send(b"3e8\r\n" + b"x" * 1000 + b"\r\n" if b"chunked" in framing else b"x" * 1000)

    receiver = await start(script)
    response = await post(sender, receiver)
    assert (response.status, response.error, response.body) == (500, None, b"x" * KEPT)
    await receiver.until(lambda: receiver.hung_up == 1)


@pytest.mark.parametrize(
    "filler", [b"a;" + b"e" * 5000 + b"\r\n0123456789\r\n", b"0\r\n" + b"t: %b\r\n" % (b"v" * 5000) * 3]
)
async def test_framing_without_end_does_not_pile_up(sender: Sender, start: Start, filler: bytes) -> None:
    async def script(peer: Conversation) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await peer.send(filler)
            filler_of_trailers = filler.removeprefix(b"0\r\n")
            while filler_of_trailers != filler:
                await peer.send(filler_of_trailers)

    receiver = await start(script)
    response = await post(sender, receiver)
    assert (response.status, response.error) == (200, None)
    assert "body" in response.reason
    assert response.latency_s < 10
    await receiver.until(lambda: receiver.hung_up == 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ],
)
@pytest.mark.parametrize("reset", [False, True])
async def test_a_body_that_breaks_off_leaves_the_status(
    sender: Sender, start: Start, answer: bytes, *, reset: bool
) -> None:
    async def script(peer: Conversation) -> None:
        await peer.request()
        await peer.send(answer)
        if reset:
            peer.reset()

    receiver = await start(script)
    response = await post(sender, receiver)
    assert (response.status, response.error) == (200, None)
    assert "body" in response.reason
    assert len(receiver.received) == 1


async def test_a_malformed_body_leaves_the_status(sender: Sender, start: Start) -> None:
    receiver = await start(answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n"))
    response = await post(sender, receiver)
    assert (response.status, response.error, response.body) == (200, None, b"abc")
    assert "body" in response.reason
    await receiver.until(lambda: receiver.hung_up == 1)


async def test_a_response_before_the_whole_request_is_taken_and_the_connection_closed(
    sender: Sender, start: Start
) -> None:
    answered = asyncio.Event()

    async def script(peer: Conversation) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig")
        await answered.wait()  # until then, nothing more is read
        await peer.until_hung_up()

    receiver = await start(script)
    response = await post(sender, receiver, body=bytes(32 << 20), timeout_s=1)
    answered.set()
    assert (response.status, response.error, response.body) == (413, None, b"big")
    await receiver.until(lambda: receiver.hung_up == 1)


async def test_a_response_before_any_of_the_request_is_taken(sender: Sender, start: Start) -> None:
    async def script(peer: Conversation) -> None:
        await peer.send(b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbusy")
        await peer.request()

    receiver = await start(script)
    response = await post(sender, receiver)
    assert (response.status, response.error, response.body) == (503, None, b"busy")


async def test_receivers_that_close_after_each_answer_are_served(sender: Sender, start: Start) -> None:
    receiver = await start(answering_once(OK))
    for _ in range(3):
        assert (await post(sender, receiver)).status == 200
    assert len(receiver.received) == 3
