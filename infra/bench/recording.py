"""A receiver in a process of its own that notes every request, and answers at once, late, or when it is told to.

What it does is told by the first part of a request's path: `/now/…` is answered at once, `/late/2.5/…` after so many
seconds, `/held/…` on `release`. Its times are the machine's monotonic clock, which all processes share (Linux, macOS).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
START_S = 20.0


class Receipt(NamedTuple):
    """A request that came: its path, the event's id, the delivery's, and when it was whole (`time.monotonic`)."""

    path: str
    event: str
    delivery: str
    at: float


class Recorder:
    """The receiver, as seen from outside.

    Attributes:
        url: where it is, without a slash at the end.
    """

    def __init__(self, url: str, pipe: Connection) -> None:
        self.url = url
        self._pipe = pipe

    def take(self) -> list[Receipt]:
        """What came since the last time, in order."""
        return [Receipt(*each) for each in self._ask("take")]

    def came(self) -> int:
        """How many requests `take` would give."""
        return int(self._ask("came"))

    def unanswered(self) -> int:
        """How many requests wait for their answers."""
        return int(self._ask("unanswered"))

    def release(self) -> None:
        """Answer what is held, and from now on whatever comes."""
        self._ask("release")

    def hold(self) -> None:
        """Hold again what comes below /held."""
        self._ask("hold")

    def _ask(self, what: str) -> Any:
        self._pipe.send(what)
        return self._pipe.recv()


@contextmanager
def recorder() -> Iterator[Recorder]:
    """A receiver, for as long as the block lasts.

    Raises:
        RuntimeError: it did not come up.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_S):
            raise RuntimeError("the receiver did not come up")
        yield Recorder(f"http://127.0.0.1:{ours.recv()}", ours)
    finally:
        process.terminate()
        process.join()
        ours.close()


def _run(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the command's, which ends this process
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_Book(pipe).serve())


class _Book:
    """What came, and what waits."""

    def __init__(self, pipe: Connection) -> None:
        self.receipts: list[tuple[str, str, str, float]] = []
        self.waiting: set[_Exchange] = set()
        self.holding = True
        self._pipe = pipe
        self._over = asyncio.Event()

    async def serve(self) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Exchange(self), "127.0.0.1", 0, backlog=4096)
        self._pipe.send(server.sockets[0].getsockname()[1])
        loop.add_reader(self._pipe.fileno(), self._answer)
        await self._over.wait()

    def _answer(self) -> None:
        # uvloop makes what it watches non-blocking; but a long list must go out whole.
        os.set_blocking(self._pipe.fileno(), True)
        try:
            asked = self._pipe.recv()
        except EOFError:  # whoever asks is gone
            self._over.set()
            return
        answer: object = None
        if asked == "take":
            answer, self.receipts = self.receipts, []
        elif asked == "came":
            answer = len(self.receipts)
        elif asked == "unanswered":
            answer = len(self.waiting)
        else:
            self.holding = asked == "hold"
            for exchange in () if self.holding else [each for each in self.waiting if each.held]:
                exchange.answer()
        self._pipe.send(answer)


class _Exchange(asyncio.Protocol):
    """One connection: a request at a time, its body counted and thrown away."""

    def __init__(self, book: _Book) -> None:
        self._book = book
        self._head = b""
        self._left = 0
        self._request: tuple[str, str, str] | None = None
        self.held = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self._book.waiting.discard(self)

    def data_received(self, data: bytes) -> None:
        if self._request is None:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            line, *lines = self._head[:end].decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
            self._request = (line.split(" ")[1], headers.get("webhook-id", ""), headers.get("idempotency-key", ""))
            self._left = int(headers.get("content-length", "0")) - (len(self._head) - end - 4)
            self._head = b""
        else:
            self._left -= len(data)
        if self._left <= 0:
            self._whole(*self._request)

    def answer(self) -> None:
        self._book.waiting.discard(self)
        self.held = False
        if not self._transport.is_closing():
            self._transport.write(ANSWER)  # type: ignore[attr-defined] # asyncio calls it by the base class

    def _whole(self, path: str, event: str, delivery: str) -> None:
        self._book.receipts.append((path, event, delivery, time.monotonic()))
        self._request = None
        behaviour, _, rest = path[1:].partition("/")
        if behaviour == "late":
            self._book.waiting.add(self)
            asyncio.get_running_loop().call_later(float(rest.partition("/")[0]), self.answer)
        elif behaviour == "held" and self._book.holding:
            self._book.waiting.add(self)
            self.held = True
        else:
            self.answer()
