"""HTTP/1.1 messages as bytes: writing a request's head, reading a response within bounds.

Pure: no sockets, no clock. It must not know connections, pools or what a status means for a delivery. The grammar is
llhttp's in strict mode (through httptools); what llhttp lets through and RFC 9112 or Forbear does not is refused here.
"""

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from forbear.policy.verdict import ErrorClass
from forbear.sender import Request

HEAD_MAX = 64 * 1024
"""Bytes of a response before its body, interim responses included."""
HEADERS_KEPT = 8 * 1024
"""Bytes of the header block that are kept."""
BODY_KEPT = 16 * 1024
"""Bytes of the body that are kept; a longer one is not read to its end."""
FRAMING_MAX = 256 * 1024
"""Bytes that the chunks of a body may take on the wire: one-byte chunks cost six times their content."""


class UnsendableError(ValueError):
    """The request cannot be written as one HTTP/1.1 message."""


def request_head(request: Request) -> bytes:
    """The request line and header section, the final empty line included (RFC 9112 sections 3 and 5).

    Raises:
        UnsendableError: A part holds CR, LF or NUL, so that it would change the message's shape, or the authority is
            not ASCII. Input is validated long before; this is the last lock.
    """
    url = request.url
    try:
        authority = url.authority.encode("ascii")
    except UnicodeEncodeError:
        raise UnsendableError("the URL's authority is not ASCII") from None
    parts = [b"POST ", url.target, b" HTTP/1.1\r\nHost: ", authority]
    for name, value in request.headers:
        parts += (b"\r\n", name, b": ", value)
    parts.append(b"\r\nAccept-Encoding: identity\r\nContent-Length: %d\r\n\r\n" % len(request.body))
    head = b"".join(parts)
    line_ends = len(request.headers) + 5
    if head.count(b"\n") != line_ends or head.count(b"\r") != line_ends or b"\0" in head:
        raise UnsendableError("the URL or a header holds a line break or NUL")
    return head


class ResponseReader:
    """Reads one response after the other from the bytes of a connection.

    Feed it until it says that the response has ended, take the attributes, `reset` it for the next one. After an error
    or without `keep_alive` it is of no further use. Interim responses (1xx) are skipped, but for 101, which nobody
    asked for.

    Attributes:
        received: Bytes fed since the last reset.
        status: The final response's status, once its whole head is there and accepted.
        headers: Its header block, the first 8 KiB.
        retry_after: The values of its `Retry-After` headers.
        body: The first 16 KiB of its body.
        error: `PROTOCOL` or `TOO_LARGE` if the head was refused.
        reason: Why the head was refused, or what became of the body if it is not whole.
        keep_alive: Whether the connection may carry another exchange (RFC 9112 section 9.3).
    """

    __slots__ = (
        "_block",
        "_complete",
        "_extra",
        "_final_status",
        "_interim",
        "_over",
        "_parser",
        "_raw",
        "body",
        "error",
        "headers",
        "keep_alive",
        "reason",
        "received",
        "retry_after",
        "status",
    )

    def __init__(self) -> None:
        self._parser = HttpResponseParser(self)
        self.reset()

    def reset(self) -> None:
        """Gets ready for the next response."""
        self.received = 0
        self.status: int | None = None
        self.headers = b""
        self.retry_after: tuple[str, ...] = ()
        self.body = bytearray()
        self.error: ErrorClass | None = None
        self.reason = ""
        self.keep_alive = False
        self._raw = bytearray()  # everything until the final head is whole
        self._block = b""
        self._interim = 0
        self._final_status: int | None = None  # as parsed; `status` once it is accepted
        self._complete = False
        self._extra = False
        self._over = False

    def feed(self, data: bytes) -> bool:
        """Takes bytes as they arrive; returns whether the response has ended: whole, cut or refused. Never raises."""
        self.received += len(data)
        if self.status is None:
            self._raw += data
        broken = ""
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            broken = str(error) or "malformed"
        if self.status is None:
            if self._final_status is None:
                return self._head_goes_on(broken)
            self._take_head(self._final_status)
            if self.error is not None:
                return True
        return self._body_ended(broken)

    def end(self, *, clean: bool) -> bool:
        """The connection has ended; returns whether there is a response. A body without a framing ends by it.

        Args:
            clean: Whether the peer closed the connection in order, rather than reset it.
        """
        if self.status is None:
            return False
        if not clean or _is_framed(self._block):
            self.cut("the connection ended before the response's body did")
        return True

    def cut(self, reason: str) -> None:
        """No more of the body will be read, for this reason; the status stands."""
        self.reason = reason
        self.keep_alive = False

    def _head_goes_on(self, broken: str) -> bool:
        if broken:
            self._refuse(ErrorClass.PROTOCOL, f"malformed response: {broken}")
        elif len(self._raw) > HEAD_MAX:
            self._refuse(ErrorClass.TOO_LARGE, f"the response's head is longer than {HEAD_MAX} bytes")
        return self.error is not None

    def _take_head(self, status: int) -> None:
        # llhttp has accepted every line by now, so a head ends at the first empty line after its start.
        raw = self._raw
        end = -4
        for _ in range(self._interim + 1):
            start = end + 4
            while raw[start] in b"\r\n":  # empty lines before a status line, which llhttp skips (RFC 9112 section 2.2)
                start += 1
            end = raw.find(b"\r\n\r\n", start)
        if end > HEAD_MAX:
            self._refuse(ErrorClass.TOO_LARGE, f"the response's head is longer than {HEAD_MAX} bytes")
        elif not raw.startswith(b"HTTP/1.", start):
            self._refuse(ErrorClass.PROTOCOL, "malformed response: not HTTP/1.0 or HTTP/1.1")
        elif status == 101:
            self._refuse(ErrorClass.PROTOCOL, "the receiver switched protocols (101) without being asked")
        elif not 200 <= status <= 599:
            self._refuse(ErrorClass.PROTOCOL, f"the status {status:03} is outside of 100 to 599")
        else:
            self.status = status
            self._block = bytes(raw[raw.find(b"\r\n", start) + 2 : end + 2])
            self.headers = self._block[:HEADERS_KEPT]
            if b"retry-after:" in self._block.lower():
                self.retry_after = tuple(value.decode("latin-1") for value in _values(self._block, b"retry-after"))
        self._raw = bytearray()

    def _refuse(self, error: ErrorClass, reason: str) -> None:
        self.error = error
        self.reason = reason
        self.keep_alive = False

    def _body_ended(self, broken: str) -> bool:
        if self._over:
            self.cut(f"only the first {BODY_KEPT} bytes of the response's body were read")
        elif self._complete:
            if broken or self._extra:  # bytes that belong to no response: whatever came next could not be trusted
                self.keep_alive = False
        elif broken:
            self.cut(f"malformed response body: {broken}")
        elif self.received > HEAD_MAX + FRAMING_MAX:
            self.cut("the response's body was not read to its end: its chunks take too many bytes")
        else:
            return False
        return True

    # Called by the parser. There is no `on_header`: the block is kept as received anyway, and a trailer without end
    # would be gathered in memory for that callback.

    def on_message_begin(self) -> None:
        """Another message starts; after the final response there must be none."""
        if self._complete:
            self._extra = True

    def on_headers_complete(self) -> None:
        """A head is whole, of an interim response or of the final one."""
        if self._complete:
            return
        status = self._parser.get_status_code()
        if 100 <= status < 200 and status != 101:
            self._interim += 1
        else:
            self._final_status = status

    def on_body(self, data: bytes) -> None:
        """A piece of the body, transfer-decoded."""
        if self._complete:
            return
        room = BODY_KEPT - len(self.body)
        self.body += data[:room]
        if len(data) > room:
            self._over = True

    def on_message_complete(self) -> None:
        """A message is whole. Only now does the parser know whether the connection persists."""
        if self._final_status is not None and not self._complete:
            self._complete = True
            self.keep_alive = self._parser.should_keep_alive()


def _values(block: bytes, wanted: bytes) -> list[bytes]:
    lines = (line.partition(b":") for line in block.split(b"\r\n"))
    return [value.strip(b" \t") for name, _, value in lines if name.lower() == wanted]


def _is_framed(block: bytes) -> bool:
    """Whether the body's end is marked in the message itself (RFC 9112 section 6.3)."""
    codings = _values(block, b"transfer-encoding")
    if codings:
        return codings[-1].lower().endswith(b"chunked")
    return bool(_values(block, b"content-length"))
