"""A sender over httpx, for the tests only: it shows that the suite is about the seam and not about our code."""

import asyncio
import socket
import ssl
import time
from ipaddress import ip_address

import httpx

from forbear.guard import Guard
from forbear.policy.verdict import ErrorClass
from forbear.sender import Request, Response
from forbear.sender.resolver import Lookup, system_lookup

BODY_KEPT = 16 * 1024
_NO_RESEND = "httpx does not tell whether the connection was a fresh one and whether any byte came back"

CANNOT = {
    "test_what_could_be_read_in_two_ways_is_a_protocol_error": "h11 reads these",
    "test_a_whole_head_over_64_kib_is_too_large": "h11 bounds only what it waits for, not a head that is whole",
    "test_interim_responses_without_end_are_too_large": "h11 bounds each head, not all of a response's",
    "test_a_response_before_the_whole_request_is_taken_and_the_connection_closed": (
        "httpcore reads only once it has written everything, or failed to"
    ),
    "test_surplus_bytes_with_a_response_do_not_answer_the_next_request": (
        "h11 keeps them in its buffer, where httpcore's check of the socket does not see them"
    ),
    "test_a_stale_connection_costs_one_free_resend": _NO_RESEND,
    "test_the_resend_is_not_repeated": _NO_RESEND,
    "test_a_stale_tls_connection_costs_one_free_resend": _NO_RESEND,
}
"""Promises that this sender breaks, by the test's name, with the reason."""

CANNOT_ALWAYS = {
    "test_a_thousand_requests_leave_no_descriptor_and_no_task": (
        "a request cancelled in the TLS handshake now and then leaves its transport to the garbage collector"
    ),
}
"""Promises that it keeps only by luck."""


class HttpxSender:
    """Follows `forbear.sender.Sender` as far as httpx and h11 allow."""

    def __init__(self, guard: Guard, *, tls: ssl.SSLContext, lookup: Lookup = system_lookup) -> None:
        self._guard = guard
        self._lookup = lookup
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=4.0)
        self._client = httpx.AsyncClient(verify=tls, trust_env=False, limits=limits, timeout=httpx.Timeout(None))
        self._client.headers.clear()

    async def send(self, request: Request) -> Response:
        began = time.monotonic()
        seen: dict[str, object] = {"status": None, "headers": b"", "retry_after": (), "body": b"", "address": None}
        error: ErrorClass | None = None
        reason = ""
        try:
            async with asyncio.timeout(request.timeout_s):
                await self._attempt(request, seen)
        except TimeoutError:
            error, reason = ErrorClass.TIMEOUT, "timed out"
        except httpx.TimeoutException as problem:
            error, reason = ErrorClass.TIMEOUT, f"timed out: {type(problem).__name__}"
        except _RefusedError as problem:
            error, reason = problem.error, str(problem)
        except httpx.TransportError as problem:
            error, reason = _classified(problem)
        if seen["status"] is not None and error is not ErrorClass.PROTOCOL:
            error, reason = None, f"the response's body was cut: {reason}" if reason else ""
        return Response(error=error, reason=reason[:300], latency_s=time.monotonic() - began, **seen)  # type: ignore[arg-type]  # fields gathered one by one

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _attempt(self, request: Request, seen: dict[str, object]) -> None:
        url = request.url
        addresses = await self._addresses(url.host, request.connect_timeout_s)
        failure: httpx.TransportError = httpx.ConnectError("no address")
        for address in addresses:
            host = f"[{address}]" if ":" in address else address
            pinned = httpx.URL(scheme=url.scheme, host=host, port=url.port, raw_path=url.target)
            headers = [(b"Host", url.authority.encode()), *request.headers, (b"Accept-Encoding", b"identity")]
            headers.append((b"Content-Length", b"%d" % len(request.body)))
            timeout = {"connect": request.connect_timeout_s / len(addresses)}
            message = httpx.Request(
                "POST",
                pinned,
                headers=headers,
                content=request.body,
                extensions={"sni_hostname": url.host, "timeout": timeout, "target": url.target},
            )
            try:
                response = await self._client.send(message, stream=True)
            except (httpx.ConnectError, httpx.ConnectTimeout) as problem:
                failure = problem
                continue
            try:
                seen["address"] = f"{host}:{url.port}"
                await self._take(response, seen)
            finally:
                await response.aclose()
            return
        raise failure

    async def _addresses(self, host: str, timeout_s: float) -> list[str]:
        try:
            addresses = [str(ip_address(host))]
        except ValueError:
            try:
                async with asyncio.timeout(timeout_s):
                    addresses = list(await self._lookup(host))
            except TimeoutError:
                raise _RefusedError(ErrorClass.TIMEOUT, "timed out resolving the name") from None
            except (OSError, UnicodeError) as problem:
                raise _RefusedError(ErrorClass.DNS, f"{host}: {problem}") from None
        if not addresses:
            raise _RefusedError(ErrorClass.DNS, f"{host}: no address")
        for address in addresses:
            refusal = self._guard.refusal(address)
            if refusal is not None:
                raise _RefusedError(ErrorClass.BLOCKED, f"{address}: {refusal}")
        return addresses

    async def _take(self, response: httpx.Response, seen: dict[str, object]) -> None:
        if not 200 <= response.status_code <= 599:
            raise _RefusedError(ErrorClass.PROTOCOL, f"status {response.status_code}")
        raw = response.headers.raw
        seen["headers"] = b"".join(b"%b: %b\r\n" % pair for pair in raw)[:8192]
        seen["retry_after"] = tuple(value.decode("latin-1") for name, value in raw if name.lower() == b"retry-after")
        seen["status"] = response.status_code
        body = b""
        try:
            async for piece in response.aiter_raw():
                body += piece
                if len(body) > BODY_KEPT:
                    raise _RefusedError(ErrorClass.TOO_LARGE, "longer than kept")
        except httpx.TransportError as problem:
            raise _RefusedError(ErrorClass.RESET, type(problem).__name__) from None
        finally:
            seen["body"] = body[:BODY_KEPT]


class _RefusedError(Exception):
    def __init__(self, error: ErrorClass, reason: str) -> None:
        super().__init__(reason)
        self.error = error


def _classified(problem: httpx.TransportError) -> tuple[ErrorClass, str]:
    cause: BaseException | None = problem
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return ErrorClass.TLS, cause.verify_message
        if isinstance(cause, ssl.SSLError):
            return ErrorClass.TLS, cause.reason or ""
        if isinstance(cause, socket.gaierror):
            return ErrorClass.DNS, str(cause)
        cause = cause.__cause__ or cause.__context__
    if isinstance(problem, httpx.ConnectError):
        return ErrorClass.CONNECT, str(problem)
    if isinstance(problem, httpx.RemoteProtocolError) and "disconnected" not in str(problem):
        return ErrorClass.PROTOCOL, str(problem)
    return ErrorClass.RESET, str(problem) or type(problem).__name__
