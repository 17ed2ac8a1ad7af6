"""What arrives at the receiver."""

import pytest

from forbear.sender import Sender
from tests.functions.sender.building import NAME, Start, post
from tests.functions.sender.receivers import OK, answering


async def test_a_request_arrives_as_it_was_given(sender: Sender, start: Start) -> None:
    receiver = await start(answering(OK))
    headers = ((b"content-type", b"application/json"), (b"Webhook-Id", b"evt_1"), (b"x-a", b"1"), (b"x-a", b"2"))
    body = b'{"z":1,"a": 2, "n":1.0, "s":"\\ud800"}\n\0\xff'
    response = await post(sender, receiver, headers=headers, body=body)
    assert (response.status, response.error, response.reason) == (200, None, "")
    [received] = receiver.received
    assert received.line == b"POST /hook HTTP/1.1"
    assert received.body == body
    assert [pair for pair in received.headers if pair[0] in dict(headers)] == list(headers)


async def test_the_sender_sets_host_length_and_identity_encoding_and_nothing_twice(
    sender: Sender, start: Start
) -> None:
    receiver = await start(answering(OK))
    await post(sender, receiver, body=b"12345")
    [received] = receiver.received
    assert received.header(b"host") == [f"{NAME}:{receiver.port}".encode()]
    assert received.header(b"content-length") == [b"5"]
    assert received.header(b"accept-encoding") == [b"identity"]
    assert not received.header(b"transfer-encoding")


@pytest.mark.parametrize(
    "target", ["/", "/?", "/x?sig=a%2Fb%3D&&c", "/%7Euser/a%2fb/../c//d?q=1?2", "/hook;v=1?a[]=1&b='x'|y"]
)
async def test_the_target_goes_out_byte_for_byte(sender: Sender, start: Start, target: str) -> None:
    receiver = await start(answering(OK))
    await post(sender, receiver, target=target)
    assert receiver.received[0].line == b"POST %b HTTP/1.1" % target.encode()


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 1 << 20])
async def test_a_body_of_any_size_arrives_whole(sender: Sender, start: Start, size: int) -> None:
    receiver = await start(answering(OK))
    body = bytes(range(256)) * (size // 256 + 1)
    response = await post(sender, receiver, body=body[:size])
    assert response.status == 200
    assert receiver.received[0].body == body[:size]
    assert receiver.received[0].header(b"content-length") == [b"%d" % size]


async def test_the_response_says_where_it_came_from_and_how_long_it_took(sender: Sender, start: Start) -> None:
    receiver = await start(answering(OK))
    response = await post(sender, receiver)
    assert response.address == f"127.0.0.1:{receiver.port}"
    assert 0 < response.latency_s < 5


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 307, 308])
async def test_redirects_are_not_followed(sender: Sender, start: Start, status: int) -> None:
    elsewhere = await start(answering(OK))
    location = f"http://127.0.0.1:{elsewhere.port}/latest/meta-data/"
    head = f"HTTP/1.1 {status} Elsewhere\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"
    receiver = await start(answering(head.encode()))
    response = await post(sender, receiver)
    assert response.status == status
    assert location.encode() in response.headers
    assert (len(receiver.received), elsewhere.connections) == (1, 0)


async def test_proxy_variables_of_the_environment_are_ignored(
    sender: Sender, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = await start(answering(OK))
    receiver = await start(answering(OK))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert (await post(sender, receiver)).status == 200
    assert (len(receiver.received), proxy.connections) == (1, 0)
