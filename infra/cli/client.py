"""Calls to the HTTP API and the replay function.

Owns requests, paging and what an answer means. Knows no operation and no output.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Literal, Self
from urllib.parse import quote, urlencode, urlsplit
from uuid import uuid4

import httpx

from forbear import __version__
from infra.cli.errors import ApiError, Unreachable, UsageError
from infra.cli.target import Address

type Service = Literal["execute-api", "lambda"]
"""The AWS services that check signatures: of an API, and of a function URL."""

# An API Gateway gives up after 30 s, so an answer comes by then.
_TIMEOUT = httpx.Timeout(35.0, connect=5.0)
# A database that was paused wakes in half a minute: a call that may be made again is, after what Retry-After says.
_CALLS = 4
_LONGEST_PAUSE_S = 10
_NOT_JSON = object()
_API_KEY = re.compile(r"fbk_[A-Za-z0-9_-]{76}")
_PAGE = 200  # the most that the API gives at once


class Client:
    """A client of one of the two addresses; to be closed."""

    def __init__(self, address: Address, auth: httpx.Auth | None = None) -> None:
        """Connect to nothing yet.

        Args:
            address: Where to call.
            auth: What signs the requests, if anything does.
        """
        self._address = address
        self._http = httpx.Client(
            auth=auth,
            timeout=_TIMEOUT,
            headers={"user-agent": f"forbear-cli/{__version__}"},
            # Without TLS there are no certificates to load, which takes 40 ms.
            verify=True if address.url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            # Requests to this machine go through no proxy.
            trust_env=not address.is_loopback,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(
        self,
        method: str,
        path: str,
        *names: str,
        query: Mapping[str, object] | None = None,
        document: Any = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        once: bool = False,
    ) -> Any:
        """Make a request, up to four times while the answer is 503 and making it again does no harm.

        Args:
            method: HTTP method.
            path: Path below the address; `{}` stands for a name, as in `/v1/endpoints/{}/pause`.
            names: The names, each of them one segment of the path, whatever it holds.
            query: Parameters; those that are None are left out.
            document: A body to send as JSON.
            body: A body to send as it is, with `content-type` among the headers.
            headers: Headers.
            once: Whether it stores an event. It gets an idempotency key of its own, so that it may be made again.

        Returns:
            The answer's JSON document; None if it has no body.

        Raises:
            ApiError: The answer is no success.
            Unreachable: There is no answer.
            UsageError: The address cannot be called, or nothing can sign the request.
        """
        url = self._url(path.format(*(quote(name, safe="") for name in names)), query or {})
        sent = dict(headers or {})
        if document is not None:
            body = json.dumps(document).encode()
            sent["content-type"] = "application/json"
        if once:
            sent.setdefault("idempotency-key", uuid4().hex)
        again = _CALLS - 1 if once or method == "GET" else 0
        while True:
            response = self._request(method, url, body, sent)
            after = response.headers.get("retry-after", "")
            if not again or response.status_code != httpx.codes.SERVICE_UNAVAILABLE or not after.isdecimal():
                return _document(response)
            again -= 1
            time.sleep(min(int(after), _LONGEST_PAUSE_S))

    def _request(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> httpx.Response:
        try:
            return self._http.request(method, url, content=body, headers=headers)
        except httpx.TimeoutException as error:
            raise Unreachable(f"no answer from {self._address.url} in time: {_reason(error)}") from error
        except httpx.InvalidURL as error:
            raise UsageError(f"{self._address.url} is no URL that can be called: {error}") from error
        except httpx.TransportError as error:
            hint = ": does `forbear up` still run?" if self._address.from_up else ""
            raise Unreachable(f"{self._address.url} cannot be reached ({_reason(error)}){hint}") from error

    def pages(self, path: str, query: Mapping[str, object], limit: int) -> Iterator[dict[str, Any]]:
        """Read a list page by page.

        Args:
            path: The list's path.
            query: Its filters.
            limit: How many items at most.

        Yields:
            The items.

        Raises:
            ApiError, Unreachable: As `call`.
        """
        cursor = None
        while limit > 0:
            page = self.call("GET", path, query={**query, "limit": min(limit, _PAGE), "cursor": cursor})
            yield from page["items"][:limit]
            limit -= len(page["items"])
            cursor = page["next"]
            if cursor is None:
                return

    def _url(self, path: str, query: Mapping[str, object]) -> str:
        # Encoded as strictly as SigV4 wants it, so that what is signed is what is sent.
        given = {name: str(value) for name, value in query.items() if value is not None}
        text = urlencode(given, quote_via=quote, safe="")
        return f"{self._address.url}{path}?{text}" if text else f"{self._address.url}{path}"


class _Bearer(httpx.Auth):
    """Sends an API key with each request."""

    def __init__(self, key: str) -> None:
        self._key = key

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        request.headers["Authorization"] = f"Bearer {self._key}"
        yield request


def connect(address: Address, service: Service, api_key: str | None = None) -> Client:
    """A client that sends an API key, or else signs its requests, unless the stack is on this machine.

    Args:
        address: Where to call.
        service: Who checks signatures there.
        api_key: An API key; None: there is none.

    Raises:
        UsageError: There are no credentials to sign with, the key is none, or it would go out in the clear.
    """
    if api_key:
        if not _API_KEY.fullmatch(api_key):
            raise UsageError(
                "--api-key (FORBEAR_API_KEY): that is no API key; it begins with fbk_ and has 80 characters"
            )
        if not address.is_loopback and not address.url.startswith("https:"):
            raise UsageError(f"{address.url} is not https: an API key would go there for everybody to read")
        return Client(address, _Bearer(api_key))
    if address.is_loopback:
        return Client(address)
    from infra.cli.sigv4 import SigV4  # noqa: PLC0415 - botocore takes 0.3 s that a local stack need not cost

    return Client(address, SigV4.from_environment(service, urlsplit(address.url).hostname or ""))


def _document(response: httpx.Response) -> Any:
    try:
        document = json.loads(response.content) if response.content else None
    except ValueError:
        document = _NOT_JSON
    if response.is_success and document is not _NOT_JSON:
        return document
    if isinstance(document, dict) and document.get("status") == response.status_code:
        raise ApiError(response.status_code, document)
    raise ApiError(response.status_code, _made_up(response, document))


def _made_up(response: httpx.Response, document: object) -> dict[str, Any]:
    """The problem of an answer that is none of Forbear's: of the gateway before it, or of somebody else."""
    message = document.get("message") or document.get("Message") if isinstance(document, dict) else None
    detail = f"{response.url.host} answered {response.status_code} {message or response.reason_phrase}".rstrip()
    if response.status_code == httpx.codes.FORBIDDEN:
        keyed = response.request.headers.get("authorization", "").startswith("Bearer ")
        detail += ": does it take API keys?" if keyed else ": may these AWS credentials call it?"
    elif message is None:
        detail += ": is this the address of a Forbear stack?"
    return {"type": "about:blank", "title": response.reason_phrase, "status": response.status_code, "detail": detail}


def _reason(error: httpx.TransportError) -> str:
    return re.sub(r"\[Errno -?[0-9]+\] ", "", str(error)) or type(error).__name__
