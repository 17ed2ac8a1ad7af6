"""The server side of the AWS Lambda Runtime API (version 2018-06-01), for one execution environment.

Owns the conversation with a runtime: hand out an invocation, take its response or error. Knows nothing of processes,
timeouts or who invokes. Each environment has a listener of its own, as in Lambda, so the port says who is talking.
Source: "Using the Lambda runtime API for custom runtimes", AWS Lambda Developer Guide.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from infra.local.serving import Listener

_PREFIX = "/2018-06-01/runtime"

# Lambda quotas: 6 MB a synchronous payload; responses are measured to allow 100 bytes more, and the error names them.
MAX_RESPONSE_BYTES = 6 * 1024 * 1024 + 100


@dataclass(frozen=True, slots=True)
class Invocation:
    """What a runtime is asked to do once.

    Attributes:
        request_id: The id of the invocation; the same on every retry of an asynchronous event.
        function_arn: The ARN that was invoked.
        trace_id: The X-Ray header (`Root=…;Parent=…;Sampled=…`).
        timeout_s: How long the handler may run, in seconds, from the moment the runtime takes the invocation.
        payload: The event as JSON.
    """

    request_id: str
    function_arn: str
    trace_id: str
    timeout_s: float
    payload: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an invocation ended.

    Attributes:
        payload: The handler's result as JSON, or the error document.
        error: The value of `X-Amz-Function-Error` ("Unhandled"); None when the handler returned.
    """

    payload: bytes
    error: str | None = None


class _Slot:
    """The one invocation that an environment carries."""

    def __init__(self, invocation: Invocation) -> None:
        self.invocation = invocation
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.taken = False


class RuntimeApi:
    """What one runtime talks to; an ASGI application with its own listener.

    Attributes:
        ready: Resolved when the runtime first asks for work; with an `Outcome` when its initialisation failed instead.
        address: `host:port`, the value of `AWS_LAMBDA_RUNTIME_API`.
    """

    def __init__(self, host: str, on_taken: Callable[[Invocation], None]) -> None:
        """Bind a free port.

        Args:
            host: The loopback address to listen on.
            on_taken: Called when the runtime takes an invocation, which is when its time starts to run.
        """
        self.ready: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        self._on_taken = on_taken
        self._slot: _Slot | None = None
        self._poll: asyncio.Future[_Slot | None] | None = None
        self._listener = Listener(host)
        self.address = self._listener.authority

    async def start(self) -> None:
        """Serve."""
        await self._listener.start(self)

    async def stop(self) -> None:
        """Stop serving; a runtime that waits for work is sent away."""
        self._answer_poll(None)
        await self._listener.stop(grace_s=0.2)

    def offer(self, invocation: Invocation) -> asyncio.Future[Outcome]:
        """Give the runtime its next work; it may not have any.

        Args:
            invocation: What to do.

        Returns:
            The outcome, resolved by the runtime's answer or by `settle`.
        """
        self._slot = _Slot(invocation)
        self._answer_poll(self._slot)
        return self._slot.outcome

    @property
    def taken(self) -> bool:
        """Whether the runtime has taken the invocation that it was offered and not answered it yet."""
        return self._slot is not None and self._slot.taken

    def settle(self, outcome: Outcome) -> None:
        """End the invocation that is under way, if any, without the runtime's word (it died or ran out of time).

        Args:
            outcome: How it ended.
        """
        slot, self._slot = self._slot, None
        if slot is not None and not slot.outcome.done():
            slot.outcome.set_result(outcome)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of the runtime."""
        with suppress(ClientDisconnect):  # it died while it spoke; whoever watches the process says so
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = scope["path"].removeprefix(_PREFIX)
        match request.method, path.strip("/").split("/"):
            case "GET", ["invocation", "next"]:
                response = await self._next()
            case "POST", ["invocation", request_id, "response"]:
                response = self._finish(request_id, await _read(request), error=None)
            case "POST", ["invocation", request_id, "error"]:
                response = self._finish(request_id, await _read(request), error="Unhandled")
            case "POST", ["init", "error"]:
                response = self._init_error(await _read(request))
            case _:
                response = Response(status_code=HTTPStatus.NOT_FOUND)
        await response(scope, receive, send)

    async def _next(self) -> Response:
        if self.taken:
            return _refusal(HTTPStatus.FORBIDDEN, "InvalidStateTransition", "The last invocation has no response yet.")
        if not self.ready.done():
            self.ready.set_result(None)
        slot = self._slot
        if slot is None:
            self._answer_poll(None)  # a runtime that asks again has given up its earlier request
            self._poll = asyncio.get_running_loop().create_future()
            slot = await self._poll
        if slot is None:
            return Response(status_code=HTTPStatus.GONE)
        slot.taken = True
        invocation = slot.invocation
        self._on_taken(invocation)
        return Response(
            invocation.payload,
            media_type="application/json",
            headers={
                "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
                "Lambda-Runtime-Deadline-Ms": str(int((time.time() + invocation.timeout_s) * 1_000)),
                "Lambda-Runtime-Invoked-Function-Arn": invocation.function_arn,
                "Lambda-Runtime-Trace-Id": invocation.trace_id,
            },
        )

    def _finish(self, request_id: str, payload: bytes | None, *, error: str | None) -> Response:
        slot = self._slot
        if slot is None or not slot.taken or slot.invocation.request_id != request_id:
            return _refusal(HTTPStatus.BAD_REQUEST, "InvalidRequestID", "Invalid request ID")
        if payload is None:
            message = f"Response payload size exceeded maximum allowed payload size ({MAX_RESPONSE_BYTES} bytes)."
            self.settle(error_outcome("Function.ResponseSizeTooLarge", message))
            return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "RequestEntityTooLarge", message)
        self.settle(Outcome(payload, error))
        return JSONResponse({"status": "OK"}, HTTPStatus.ACCEPTED)

    def _init_error(self, payload: bytes | None) -> Response:
        if not self.ready.done():
            self.ready.set_result(Outcome(payload or b"{}", "Unhandled"))
        return JSONResponse({"status": "OK"}, HTTPStatus.ACCEPTED)

    def _answer_poll(self, slot: _Slot | None) -> None:
        poll, self._poll = self._poll, None
        if poll is not None and not poll.done():
            poll.set_result(slot)


def error_outcome(error_type: str, message: str) -> Outcome:
    """An error that Lambda itself reports, without a stack trace.

    Args:
        error_type: Lambda's name of the error, such as `Runtime.ExitError`.
        message: What happened.

    Returns:
        The outcome with the error document.
    """
    document = JSONResponse({"errorType": error_type, "errorMessage": message})
    return Outcome(bytes(document.body), "Unhandled")


def _refusal(status: HTTPStatus, error_type: str, message: str) -> Response:
    return JSONResponse({"errorType": error_type, "errorMessage": message}, status)


async def _read(request: Request) -> bytes | None:
    """The body, or None if it is over the response limit (the rest is read and thrown away)."""
    body = bytearray()
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size <= MAX_RESPONSE_BYTES:
            body += chunk
    return bytes(body) if size <= MAX_RESPONSE_BYTES else None
