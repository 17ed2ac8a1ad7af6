"""The receiver that notes: what came, when, and what it does about it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from infra.bench.recording import ANSWER, Recorder, recorder

PATIENCE_S = 20.0


@pytest.fixture(scope="module")
def receiver() -> Iterator[Recorder]:
    with recorder() as running:
        yield running


def post(receiver: Recorder, path: str, body: bytes = b"{}") -> socket.socket:
    """Send a request; its answer is still to be read."""
    parts = urlsplit(receiver.url)
    connection = socket.create_connection((parts.hostname, parts.port), timeout=PATIENCE_S)
    head = f"POST {path} HTTP/1.1\r\nWebhook-Id: evt_1\r\nIdempotency-Key: dlv_1\r\nContent-Length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode())
    connection.sendall(body)
    return connection


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_it_notes_what_came_and_when(receiver: Recorder) -> None:
    before = time.monotonic()
    with post(receiver, "/now/7", b"x" * 1_000_000) as connection:
        assert connection.recv(1000) == ANSWER
    ((path, event, delivery, at),) = receiver.take()
    assert (path, event, delivery) == ("/now/7", "evt_1", "dlv_1")
    assert before < at < time.monotonic()
    assert receiver.take() == []


def test_a_connection_carries_one_request_after_the_other(receiver: Recorder) -> None:
    with post(receiver, "/now/1") as connection:
        assert connection.recv(1000) == ANSWER
        connection.sendall(b"POST /now/2 HTTP/1.1\r\ncontent-length: 0\r\n\r\n")
        assert connection.recv(1000) == ANSWER
    assert [each.path for each in receiver.take()] == ["/now/1", "/now/2"]


def test_what_is_held_is_answered_on_release(receiver: Recorder) -> None:
    with post(receiver, "/held/1") as connection:
        until(lambda: receiver.unanswered() == 1)
        receiver.release()
        assert connection.recv(1000) == ANSWER
    with post(receiver, "/held/2") as connection:
        assert connection.recv(1000) == ANSWER
    receiver.hold()
    with post(receiver, "/held/3"):
        until(lambda: receiver.unanswered() == 1)
    until(lambda: receiver.unanswered() == 0)  # who hangs up waits no more
    assert len(receiver.take()) == 3


def test_what_is_late_is_answered_after_its_time(receiver: Recorder) -> None:
    with post(receiver, "/late/0.2/1") as connection:
        assert connection.recv(1000) == ANSWER
    (receipt,) = receiver.take()
    assert time.monotonic() - receipt.at >= 0.2


def test_a_long_list_comes_whole_to_who_asks_late(receiver: Recorder) -> None:
    """Longer than a pipe holds."""
    path = "/now/" + "x" * 8_000
    with post(receiver, path) as connection:
        assert connection.recv(1000) == ANSWER
        for _ in range(300):
            connection.sendall(f"POST {path} HTTP/1.1\r\ncontent-length: 0\r\n\r\n".encode())
            assert connection.recv(1000) == ANSWER
    assert len(receiver.take()) == 301
