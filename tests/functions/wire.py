"""A proxy in front of PostgreSQL: tests see what the client sends and when, and cut the line where they like."""

from __future__ import annotations

import contextlib
import re
import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

SYNC = b"S"
# A Parse: its length, the name, the statement.
PREPARED_COMMIT = re.compile(rb"P.{4}(\w*)\0COMMIT\0", re.DOTALL)


@dataclass
class Wire:
    """One client at a time is passed on to the server, until a test steps in.

    `sent` lists the types of the client's messages ("Message Formats" in PostgreSQL's manual) since `watch()`, and how
    many bytes the server's answers had when each left the client: 0 means that it waited for none.

    `hold_answers`: keep the server's bytes until the client's Sync has come. `cut_at_once`: close the line and pass
    nothing on. `cut_at_answer`: given the bytes of an answer, says how many to let through before closing. `stall`: do
    not close there, but pass nothing on any more. `pause`: before the client's COMMIT, say so by `paused` and wait for
    `resume`.
    """

    server: tuple[str, int]
    port: int = 0
    sent: list[tuple[bytes, int]] = field(default_factory=list)
    hold_answers: bool = False
    stall: bool = False
    cut_at_once: bool = False
    pause: bool = False
    paused: threading.Event = field(default_factory=threading.Event)
    resume: threading.Event = field(default_factory=threading.Event)
    cut_at_answer: Callable[[bytes], int | None] | None = None
    _watching: bool = False
    _answered: int = 0
    _held: bytes = b""
    _unparsed: bytes = b""
    _commit: bytes = b""  # its name, once it is prepared

    def watch(self) -> None:
        """Look at what comes from now on: the client is connected, and idle."""
        self.sent.clear()
        self._answered, self._held, self._unparsed, self._watching = 0, b"", b"", True

    def serve(self, client: socket.socket) -> None:
        """Pass bytes both ways until somebody hangs up."""
        self._watching, self._commit = False, b""
        with client, socket.create_connection(self.server) as server, selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ)
            ready.register(server, selectors.EVENT_READ)
            with contextlib.suppress(ConnectionError):
                while all(self._pass_on(key.fileobj is client, client, server) for key, _ in ready.select()):
                    pass

    def _pass_on(self, from_client: bool, client: socket.socket, server: socket.socket) -> bool:
        received = (client if from_client else server).recv(1 << 16)
        if not received:
            return False
        found = PREPARED_COMMIT.search(received) if from_client else None
        if found:
            self._commit = found[1]
        if not self._watching:
            (server if from_client else client).sendall(received)
        elif from_client:
            if self.cut_at_once:
                return False
            synced = self._parse(received)
            # A Bind: its length, no portal, the name.
            run = self._commit and re.search(rb"B.{4}\0%b\0" % self._commit, received, re.DOTALL)
            if self.pause and run:
                server.sendall(received[: run.start()])
                self.paused.set()
                self.resume.wait(60)
                received = received[run.start() :]
            server.sendall(received)
            if synced and self._held:
                self._answered += len(self._held)
                client.sendall(self._held)
        elif self.hold_answers and SYNC not in {kind for kind, _ in self.sent}:
            self._held += received
        elif self.cut_at_answer is not None and (through := self.cut_at_answer(received)) is not None:
            client.sendall(received[:through])
            if self.stall:
                self.cut_at_answer = lambda _: 0
            return self.stall
        else:
            self._answered += len(received)
            client.sendall(received)
        return True

    def _parse(self, received: bytes) -> bool:
        """Note the whole messages; says whether a Sync was among them."""
        self._unparsed += received
        before = len(self.sent)
        while len(self._unparsed) >= 5 and len(self._unparsed) > (size := int.from_bytes(self._unparsed[1:5])):
            self.sent.append((self._unparsed[:1], self._answered))
            self._unparsed = self._unparsed[size + 1 :]
        return SYNC in {kind for kind, _ in self.sent[before:]}


@contextmanager
def wire(database_url: str) -> Iterator[tuple[Wire, str]]:
    """Open a proxy. Gives it, and the database's URL through it."""
    parts = urlsplit(database_url)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        opened = Wire((str(parts.hostname), int(parts.port or 0)), listener.getsockname()[1])

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    opened.serve(listener.accept()[0])

        thread = threading.Thread(target=accept)
        thread.start()
        netloc = f"{parts.netloc.rpartition(':')[0]}:{opened.port}"
        yield opened, urlunsplit(parts._replace(netloc=netloc, query="sslmode=disable&gssencmode=disable"))
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
