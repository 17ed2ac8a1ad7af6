"""PostgreSQL's frontend/backend protocol 3.0, as much of it as a proxy must know to tell requests and answers apart.

Pure: bytes in, messages out. A request is what a client sends up to the message that ends it (Sync or Query); its
answer ends with ReadyForQuery. Source: "Message Formats" and "Message Flow" in PostgreSQL's manual.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80_877_103, 80_877_104, 80_877_102
READY = b"Z"
DATA_ROW = b"D"
# What a client sends without waiting for an answer to each: a request goes on after these.
_GOES_ON = frozenset(b"PBDEC")
# What the server answers with a ReadyForQuery.
_ENDS = frozenset(b"SQ")


@dataclass(slots=True)
class Messages:
    """Cuts a stream into whole messages; what is not whole yet waits."""

    _rest: bytearray = field(default_factory=bytearray)

    def feed(self, received: bytes) -> list[bytes]:
        """Take bytes in; gives the messages that are whole now, each with its type and length."""
        self._rest += received
        whole = []
        start = 0
        while len(self._rest) - start >= 5:
            end = start + 1 + int.from_bytes(self._rest[start + 1 : start + 5])
            if end > len(self._rest):
                break
            whole.append(bytes(self._rest[start:end]))
            start = end
        del self._rest[:start]
        return whole


@dataclass(frozen=True, slots=True)
class Request:
    """What a client sends in one go.

    Attributes:
        messages: the bytes.
        statements: the SQL texts in it, in order.
        answered: whether the server ends its answer with ReadyForQuery.
    """

    messages: bytes
    statements: tuple[str, ...]
    answered: bool


@dataclass(slots=True)
class Requests:
    """Gathers a client's messages into requests."""

    _messages: Messages = field(default_factory=Messages)
    _gathered: list[bytes] = field(default_factory=list)
    # the texts of prepared statements, which come once, by their names, which come each time
    _prepared: dict[bytes, bytes] = field(default_factory=dict)

    def feed(self, received: bytes) -> list[Request]:
        """Take bytes in; gives the requests that are whole now."""
        whole = []
        for message in self._messages.feed(received):
            self._gathered.append(message)
            if message[0] not in _GOES_ON:
                statements = tuple(text for text in map(self._statement, self._gathered) if text)
                whole.append(Request(b"".join(self._gathered), statements, message[0] in _ENDS))
                self._gathered = []
        return whole

    def _statement(self, message: bytes) -> str:
        """The SQL text of a Query, a Parse without a name, or a Bind of a prepared statement; empty for all else."""
        text = b""
        match message[:1]:
            case b"Q":
                text = message[5:-1]
            case b"P":
                name, text = message[5:].split(b"\0", 2)[:2]
                if name:
                    self._prepared[name], text = text, b""
            case b"B":
                text = self._prepared.get(message[5:].split(b"\0", 2)[1], b"")
        return text.decode(errors="replace")


def user_of(startup: bytes) -> str:
    """The user that a StartupMessage (length and version included) names."""
    words = startup[8:].split(b"\0")
    return dict(zip(words[::2], words[1::2], strict=False)).get(b"user", b"").decode(errors="replace")
