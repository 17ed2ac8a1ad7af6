"""What is no HTTP response: every kind is an error with a class, none escapes, and the sender goes on."""

import pytest

from forbear.policy.verdict import ErrorClass
from forbear.sender import Sender
from tests.functions.sender.building import Start, post
from tests.functions.sender.receivers import OK, Conversation, answering

LENGTH = b"Content-Length: 2\r\n\r\nok"
HEAD = b"HTTP/1.1 200 OK\r\n"

MALFORMED = {
    "TLS alert": b"\x15\x03\x01\x00\x02\x02\x0a",
    "HTTP/2": b"\x00\x00\x12\x04\x00\x00\x00\x00\x00",
    "lower case": b"http/1.1 200 OK\r\n" + LENGTH,
    "RTSP": b"RTSP/1.0 200 OK\r\n" + LENGTH,
    "no status": b"HTTP/1.1\r\n" + LENGTH,
    "two digits": b"HTTP/1.1 42 OK\r\n" + LENGTH,
    "four digits": b"HTTP/1.1 2000 OK\r\n" + LENGTH,
    "letters": b"HTTP/1.1 20x OK\r\n" + LENGTH,
    "negative": b"HTTP/1.1 -20 OK\r\n" + LENGTH,
    "000": b"HTTP/1.1 000 OK\r\n" + LENGTH,
    "099": b"HTTP/1.1 099 OK\r\n" + LENGTH,
    "600": b"HTTP/1.1 600 OK\r\n" + LENGTH,
    "999": b"HTTP/1.1 999 OK\r\n" + LENGTH,
    "no colon": HEAD + b"HeaderInjection Injected-Header\r\n" + LENGTH,
    "spaces in name": HEAD + b"Spaces In Name: v\r\n" + LENGTH,
    "no name": HEAD + b": v\r\n" + LENGTH,
    "name not ASCII": HEAD + b"\xc3\xa9: v\r\n" + LENGTH,
    "NUL in value": HEAD + b"x: a\0b\r\n" + LENGTH,
    "length not a number": HEAD + b"Content-Length: two\r\n\r\nok",
    "length negative": HEAD + b"Content-Length: -2\r\n\r\nok",
    "length signed": HEAD + b"Content-Length: +2\r\n\r\nok",
    "length huge": HEAD + b"Content-Length: 99999999999999999999999999\r\n\r\nok",
    "space before colon": HEAD + b"x : v\r\n" + LENGTH,
    "bare CR": HEAD + b"x: a\rb\r\n" + LENGTH,
    "lengths differ": HEAD + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
}
"""What every HTTP library refuses."""

STRICTLY_MALFORMED = {
    "not HTTP, incomplete": b"220 mail.example ESMTP\r\n",
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\n" + LENGTH,
    "HTTP/0.9": b"HTTP/0.9 200 OK\r\n" + LENGTH,
    "control in value": HEAD + b"X: \xff\x01\r\n" + LENGTH,
    "folded": HEAD + b"x: a\r\n b\r\n" + LENGTH,
    "length and chunked": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nok\r\n0\r\n\r\n",
}
"""What RFC 9112 (sections 2.3, 5.2, 6.3) or RFC 9110 (5.5) call invalid or a danger, and lenient parsers read."""


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
async def test_what_is_no_response_is_a_protocol_error(sender: Sender, start: Start, answer: bytes) -> None:
    await check_refused(sender, start, answer)


@pytest.mark.parametrize("answer", STRICTLY_MALFORMED.values(), ids=STRICTLY_MALFORMED)
async def test_what_could_be_read_in_two_ways_is_a_protocol_error(sender: Sender, start: Start, answer: bytes) -> None:
    await check_refused(sender, start, answer)


async def check_refused(sender: Sender, start: Start, answer: bytes) -> None:
    receiver = await start(answering(answer))
    response = await post(sender, receiver, timeout_s=1)
    assert (response.status, response.error) == (None, ErrorClass.PROTOCOL)
    assert response.reason.isprintable()
    assert 0 < len(response.reason) <= 300
    assert len(receiver.received) == 1
    await receiver.until(lambda: receiver.hung_up == 1)
    assert (await post(sender, await start(answering(OK)))).status == 200


@pytest.mark.parametrize("value", [b"", b"\t", b"\xff\xfe", b"caf\xc3\xa9", b"a" * 4000, b"a: b: c", b"\x80"], ids=repr)
async def test_odd_but_legal_values_are_taken(sender: Sender, start: Start, value: bytes) -> None:
    receiver = await start(answering(HEAD + b"X: " + value + b"\r\n" + LENGTH))
    response = await post(sender, receiver)
    assert (response.status, response.error, response.body) == (200, None, b"ok")


@pytest.mark.parametrize(
    "filler",
    [b"x", b"x: y\r\n", b"x-%b: y\r\n" % (b"n" * 900), b"x: %b\r\n" % (b"v" * 9000)],
    ids=["one line", "short lines", "long names", "long values"],
)
async def test_a_head_without_end_is_too_large(sender: Sender, start: Start, filler: bytes) -> None:
    async def script(peer: Conversation) -> None:
        await peer.request()
        await peer.send(HEAD)
        while True:
            await peer.send(filler * (1 + 1000 // len(filler)))

    receiver = await start(script)
    response = await post(sender, receiver)
    assert response.status is None
    assert response.error in {ErrorClass.TOO_LARGE, ErrorClass.PROTOCOL}
    assert response.latency_s < 10
    await receiver.until(lambda: receiver.hung_up == 1)


async def test_a_whole_head_over_64_kib_is_too_large(sender: Sender, start: Start) -> None:
    receiver = await start(answering(HEAD + b"".join(b"x-%d: y\r\n" % number for number in range(7000)) + LENGTH))
    response = await post(sender, receiver)
    assert response.status is None
    assert response.error in {ErrorClass.TOO_LARGE, ErrorClass.PROTOCOL}


async def test_interim_responses_without_end_are_too_large(sender: Sender, start: Start) -> None:
    async def script(peer: Conversation) -> None:
        await peer.request()
        while True:
            await peer.send(b"HTTP/1.1 102 Processing\r\n\r\n" * 10)

    receiver = await start(script)
    response = await post(sender, receiver, timeout_s=1)
    assert (response.status, response.error) == (None, ErrorClass.TOO_LARGE)
    await receiver.until(lambda: receiver.hung_up == 1)
