"""A whole HTTP request, read from ASGI.

Owns reading within a limit; knows nothing of what becomes of the request.
"""

from dataclasses import dataclass

from starlette.types import Receive, Scope


class BodyTooLarge(Exception):
    """A request body over the service's limit."""


class ClientGone(Exception):
    """The client hung up before its request was complete, so there is nothing to invoke and nobody to answer."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as it came in.

    Attributes:
        method: The method, upper case.
        path: The path, percent-encoded as sent.
        query: The query string as sent, without the question mark.
        headers: Names in lower case and values, in order.
        body: The body.
        source_ip: The client's address.
        port: The port it came in on.
        protocol: Such as `HTTP/1.1`.
    """

    method: str
    path: str
    query: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    source_ip: str
    port: int
    protocol: str

    def header(self, name: str) -> str:
        """The value of a header given in lower case: all values joined by commas, empty if there is none."""
        return ",".join(value for key, value in self.headers if key == name)

    @property
    def head_bytes(self) -> int:
        """The size that API Gateway limits: request line and header values, in bytes."""
        target = len(self.path) + (len(self.query) + 1 if self.query else 0)
        line = len(self.method) + target + len(self.protocol) + 2
        return line + sum(len(value) for _, value in self.headers)


async def read_request(scope: Scope, receive: Receive, max_body_bytes: int) -> HttpRequest:
    """Read a request from ASGI.

    Args:
        scope: The ASGI scope.
        receive: Its channel.
        max_body_bytes: The largest body to accept.

    Returns:
        The request.

    Raises:
        BodyTooLarge: If the body is larger.
        ClientGone: If the body does not come to its end.
    """
    body = bytearray()
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > max_body_bytes:
            raise BodyTooLarge
    return HttpRequest(
        method=scope["method"],
        path=scope["raw_path"].decode("latin-1"),
        query=scope["query_string"].decode("latin-1"),
        headers=tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]),
        body=bytes(body),
        source_ip=scope["client"][0],
        port=scope["server"][1],
        protocol=f"HTTP/{scope['http_version']}",
    )
