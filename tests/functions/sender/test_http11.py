"""Messages as bytes: what the reader makes of any bytes, in any pieces."""

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forbear.policy.verdict import ErrorClass
from forbear.sender.http11 import BODY_KEPT, FRAMING_MAX, HEAD_MAX, ResponseReader, UnsendableError, request_head
from tests.functions.sender.building import request_to

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
PIECES = [
    *(b"HTTP/1.1 ", b"HTTP/1.0 ", b"200", b"100", b"101", b"204", b"999", b" OK", b"\r\n", b"\r\n\r\n", b"\n", b"\r"),
    *(b"\0", b"\xff", b"Content-Length: ", b"Transfer-Encoding: ", b"chunked", b"Connection: close", b"Retry-After: 1"),
    *(b"0", b"2", b"ok", b"a: b", b": ", b";x=y", OK, b"HTTP/1.1 100 Continue\r\n\r\n", b"2\r\nok\r\n0\r\n\r\n"),
    b"ffffffffffffffff\r\n",
]
nearly_http = st.lists(st.sampled_from(PIECES) | st.binary(max_size=8), max_size=20).map(b"".join)
responses = st.sampled_from(
    [
        OK,
        b"\r\n\r\n" + OK,
        b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.0 503\r\nRetry-After: 1\r\nretry-after:2 \r\n\r\nuntil close",
        b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: gzip, chunked\r\n\r\n3;x\r\nabc\r\n01\r\nd\r\n0\r\nt: 1\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
    ]
)


def read(reader: ResponseReader, *pieces: bytes) -> bool:
    """Feeds until the response has ended, then the end of the connection; returns whether there is a result."""
    return any(reader.feed(piece) for piece in pieces if piece) or reader.end(clean=True)


def seen(reader: ResponseReader) -> tuple[object, ...]:
    body = bytes(reader.body)
    return reader.status, reader.headers, reader.retry_after, body, reader.error, reader.reason, reader.keep_alive


@given(responses, st.lists(st.integers(0, 200), max_size=8))
def test_a_response_is_the_same_in_any_pieces(response: bytes, cuts: list[int]) -> None:
    whole, pieced = ResponseReader(), ResponseReader()
    places = [0, *sorted(cuts), len(response)]
    assert read(whole, response)
    assert read(pieced, *(response[begin:end] for begin, end in pairwise(places)))
    assert seen(pieced) == seen(whole)
    assert whole.status is not None


@given(nearly_http, st.integers(0, 100), st.booleans())
@example(b"", 0, True)
def test_no_bytes_make_the_reader_raise_or_contradict_itself(data: bytes, cut: int, clean: bool) -> None:
    reader = ResponseReader()
    ended = reader.feed(data[:cut]) or reader.feed(data[cut:]) or reader.end(clean=clean)
    if reader.error is not None:
        assert ended
        assert (reader.status, reader.keep_alive) == (None, False)
        assert reader.reason
    elif ended:
        assert reader.status is not None
        assert 200 <= reader.status <= 599
    if not reader.reason and reader.status == 200 and reader.keep_alive:
        assert len(reader.body) <= len(data)


@given(st.lists(responses.filter(lambda data: data.endswith((b"ok", b"0\r\n\r\n"))), min_size=1, max_size=5))
def test_one_reader_reads_many_responses(several: list[bytes]) -> None:
    reader = ResponseReader()
    for response in several:
        alone = ResponseReader()
        reader.reset()
        assert reader.feed(response)
        assert alone.feed(response)
        if b"gzip" not in response:
            assert reader.keep_alive
        assert seen(reader) == seen(alone)
        assert reader.received == len(response)


@pytest.mark.parametrize(
    ("response", "keep_alive"),
    [
        (OK, True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False),
        (OK + b"x", False),
        (OK + OK, False),
    ],
)
def test_a_connection_persists_as_rfc_9112_says(response: bytes, *, keep_alive: bool) -> None:
    reader = ResponseReader()
    assert reader.feed(response)
    assert (reader.keep_alive, reader.reason) == (keep_alive, "")


def test_a_head_of_64_kib_is_the_longest() -> None:
    def head(length: int) -> bytes:
        start = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nx: "
        return start + b"v" * (length - len(start)) + b"\r\n\r\n"

    fits, over, endless = ResponseReader(), ResponseReader(), ResponseReader()
    assert fits.feed(head(HEAD_MAX))
    assert (fits.status, len(fits.headers)) == (200, 8192)
    assert over.feed(head(HEAD_MAX + 1))
    assert over.error is ErrorClass.TOO_LARGE
    assert endless.feed(head(HEAD_MAX + 1)[:-4])
    assert endless.error is ErrorClass.TOO_LARGE


def test_only_the_first_16_kib_of_a_body_are_kept_and_the_rest_not_awaited() -> None:
    reader = ResponseReader()
    assert not reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + b"x" * BODY_KEPT)
    assert reader.feed(b"y")
    assert (bytes(reader.body), reader.keep_alive) == (b"x" * BODY_KEPT, False)
    assert reader.reason


def test_one_byte_chunks_are_read_up_to_the_cap() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert not reader.feed(b"1\r\nx\r\n" * BODY_KEPT)
    assert reader.feed(b"0\r\n\r\n")
    assert (len(reader.body), reader.reason, reader.keep_alive) == (BODY_KEPT, "", True)


def test_framing_is_bounded() -> None:
    reader = ResponseReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
    fed = 0
    while not reader.feed(b"t: " + b"v" * 1000 + b"\r\n"):
        fed += 1005
    assert fed < HEAD_MAX + FRAMING_MAX
    assert (reader.status, reader.error, reader.keep_alive) == (200, None, False)


@pytest.mark.parametrize("transfer", [b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b""])
def test_a_reset_or_an_early_end_is_told_from_a_whole_body(transfer: bytes) -> None:
    for clean in (True, False):
        reader = ResponseReader()
        assert not reader.feed(b"HTTP/1.1 200 OK\r\n" + transfer + b"\r\n")
        assert reader.end(clean=clean)
        assert bool(reader.reason) == (bool(transfer) or not clean)


def test_a_request_head_is_what_rfc_9112_says() -> None:
    request = request_to("https://[2606:4700::1111]/a?b=c%2Fd", headers=((b"X-A", b"1"), (b"x-b", b"")), body=b"12345")
    assert request_head(request) == (
        b"POST /a?b=c%2Fd HTTP/1.1\r\nHost: [2606:4700::1111]\r\nX-A: 1\r\nx-b: \r\n"
        b"Accept-Encoding: identity\r\nContent-Length: 5\r\n\r\n"
    )


@pytest.mark.parametrize("evil", [b"a\r\nX-Injected: 1", b"a\nb", b"a\rb", b"a\0b", b"\r\n\r\nPOST / HTTP/1.1"])
def test_a_header_cannot_change_the_shape_of_the_message(evil: bytes) -> None:
    for headers in (((b"x", evil),), ((evil, b"x"),)):
        with pytest.raises(UnsendableError):
            request_head(request_to("https://receiver.example/", headers=headers))
