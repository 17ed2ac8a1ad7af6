"""A stand-in for an API Gateway HTTP API with Lambda proxy integrations, payload format 2.0.

Owns routing and the API's limits and error answers; event and response shapes are `http_event`'s. Sources: "Quotas for
configuring and running an HTTP API" and "Create routes for HTTP APIs", API Gateway Developer Guide.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import unquote

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from infra.local.errors import AwsError, RequestTooLarge
from infra.local.functions import Functions, new_trace_root
from infra.local.http_event import InvalidResponse, event, http_response
from infra.local.http_request import BodyTooLarge, ClientGone, HttpRequest, read_request

MAX_BODY_BYTES = 10 * 1024 * 1024
MAX_HEAD_BYTES = 10_240
INTEGRATION_TIMEOUT_S = 30.0

_API_ID = "local"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Route:
    """A method and path that a function answers.

    Attributes:
        method: The method, upper case.
        path: The path template; a segment in braces is a variable: `/v1/endpoints/{id}/pause`.
        function: The function's name.
    """

    method: str
    path: str
    function: str

    @property
    def key(self) -> str:
        """The route key as it stands in events."""
        return f"{self.method} {self.path}"

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """The decoded path variables if the (still encoded) segments of a path fit this route, else None."""
        template = self.path.split("/")
        if len(template) != len(segments):
            return None
        parameters = {}
        for wanted, segment in zip(template, segments, strict=True):
            if wanted.startswith("{"):
                parameters[wanted[1:-1]] = unquote(segment)
            elif wanted != unquote(segment):
                return None
        return parameters


class Gateway:
    """The API as an ASGI application."""

    def __init__(
        self, routes: Iterable[Route], functions: Functions, *, integration_timeout_s: float = INTEGRATION_TIMEOUT_S
    ) -> None:
        """Declare the API.

        Args:
            routes: The routes; where several match, the one whose text runs on longest before a variable wins.
            functions: Where the functions are.
            integration_timeout_s: How long a function may take before the client is answered without it, in seconds.
        """
        # Sorting a template's segments by "is a variable" puts /deliveries/cancel before /deliveries/{id}.
        self._routes = sorted(routes, key=lambda route: [part.startswith("{") for part in route.path.split("/")])
        self._functions = functions
        self._integration_timeout_s = integration_timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            request = await read_request(scope, receive, MAX_BODY_BYTES)
        except ClientGone:
            return
        except BodyTooLarge:
            response = _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Request Entity Too Large")
        else:
            response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: HttpRequest) -> Response:
        if request.head_bytes > MAX_HEAD_BYTES:
            return _refusal(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "Request Header Fields Too Large")
        segments = request.path.split("/")
        for route in self._routes:
            if route.method == request.method:
                parameters = route.match(segments)
                if parameters is not None:
                    return await self._integrate(route, parameters, request)
        return _refusal(HTTPStatus.NOT_FOUND, "Not Found")

    async def _integrate(self, route: Route, parameters: dict[str, str], request: HttpRequest) -> Response:
        # Of the form that API Gateway's ids have; the response carries it too, as a handle for support.
        request_id = f"{secrets.token_urlsafe(11)}="
        trace_root = new_trace_root()
        document = event(
            request,
            api_id=_API_ID,
            request_id=request_id,
            trace_root=trace_root,
            route_key=route.key,
            # HTTP APIs pass the path on decoded, function URLs do not (observed on AWS: hotsock/voker pull request 8).
            path=unquote(request.path),
            path_parameters=parameters,
        )
        response = await self._invoke(route.function, json.dumps(document).encode(), trace_root)
        response.headers["apigw-requestid"] = request_id
        return response

    async def _invoke(self, function: str, payload: bytes, trace_root: str) -> Response:
        try:
            async with asyncio.timeout(self._integration_timeout_s):
                outcome = await self._functions.invoke(function, payload, trace_id=trace_root)
        except RequestTooLarge:
            return _refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "Request Entity Too Large")
        except (AwsError, TimeoutError):
            # The time-out is documented as 503. How a throttled function is answered is not; as it is to be tried
            # again like an unavailable one, it gets the same.
            return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, "Service Unavailable")
        if outcome.error is not None:
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal Server Error")
        try:
            return http_response(outcome.payload, default_content_type="text/plain; charset=utf-8")
        except InvalidResponse as error:
            logger.warning("The result of %s is no HTTP response: %s", function, error)
            return _refusal(HTTPStatus.INTERNAL_SERVER_ERROR, "Internal Server Error")


def _refusal(status: HTTPStatus, message: str) -> Response:
    return JSONResponse({"message": message}, status)
