"""A stream of PostgreSQL's protocol is told apart into the same requests and answers however it arrives in pieces."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from infra.torture.wire import Messages, Requests, user_of


def message(kind: bytes, content: bytes = b"") -> bytes:
    return kind + (len(content) + 4).to_bytes(4) + content


PARSE = message(b"P", b"\0SELECT 1\0\0\0")
PIPELINE = (
    message(b"P", b"\0BEGIN\0\0\0")
    + message(b"B", b"\0" * 8)
    + message(b"E", b"\0" * 5)
    + PARSE
    + message(b"B", b"\0" * 20)
    + message(b"E", b"\0" * 5)
    + message(b"S")
)
STREAM = message(b"p", b"secret\0") + PIPELINE + message(b"Q", b"SELECT 2\0") + message(b"X")


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    return [stream[start:end] for start, end in pairwise(ends)]


def test_a_prepared_statement_is_told_whenever_it_is_run() -> None:
    gathering = Requests()
    prepare = message(b"P", b"one\0SELECT 1\0\0\0")
    run = message(b"B", b"\0one\0" + b"\0" * 6) + message(b"E", b"\0" * 5)
    other = message(b"P", b"\0SELECT 2\0\0\0") + message(b"B", b"\0" * 8) + message(b"E", b"\0" * 5)
    (first, second) = gathering.feed(prepare + run + message(b"S") + run + other + run + message(b"S"))
    assert first.statements == ("SELECT 1",)
    assert second.statements == ("SELECT 1", "SELECT 2", "SELECT 1")


@given(st.lists(st.integers(0, 10_000)))
def test_requests_are_the_same_however_they_come(cuts: list[int]) -> None:
    gathering = Requests()
    requests = [request for piece in pieces(STREAM, cuts) for request in gathering.feed(piece)]
    assert [request.statements for request in requests] == [(), ("BEGIN", "SELECT 1"), ("SELECT 2",), ()]
    assert [request.answered for request in requests] == [False, True, True, False]
    assert b"".join(request.messages for request in requests) == STREAM


@given(st.lists(st.binary(max_size=20)), st.lists(st.integers(0, 10_000)))
def test_messages_are_the_same_however_they_come(contents: list[bytes], cuts: list[int]) -> None:
    sent = [message(b"D", content) for content in [*contents, b""]]
    gathering = Messages()
    assert [one for piece in pieces(b"".join(sent), cuts) for one in gathering.feed(piece)] == sent


def test_the_user_is_read_from_the_startup_message() -> None:
    assert user_of(b"\0\0\0\x20\0\x03\0\0database\0x\0user\0forbear_ingest\0\0") == "forbear_ingest"
