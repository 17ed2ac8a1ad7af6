"""A stand-in for a Lambda function URL, payload format 2.0, buffered.

Owns the URL's limits and error answers; event and response shapes are `http_event`'s. There is no timeout but the
function's own. Source: "Invoking Lambda function URLs", AWS Lambda Developer Guide. With IAM authorization AWS refuses
unsigned requests; here they are accepted, as by a URL without authorization.
"""

import json
import logging
import uuid
from http import HTTPStatus

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from infra.local.errors import AwsError
from infra.local.functions import MAX_REQUEST_BYTES, Functions, new_trace_root
from infra.local.http_event import InvalidResponse, event, http_response
from infra.local.http_request import BodyTooLarge, ClientGone, HttpRequest, read_request

_URL_ID = "local"

logger = logging.getLogger(__name__)


class FunctionUrl:
    """The URL of one function as an ASGI application; every method and path goes to the function."""

    def __init__(self, function: str, functions: Functions) -> None:
        """Declare the URL.

        Args:
            function: The function's name.
            functions: Where it is.
        """
        self._function = function
        self._functions = functions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            request = await read_request(scope, receive, MAX_REQUEST_BYTES)
        except ClientGone:
            return
        except BodyTooLarge:
            response: Response = JSONResponse({"message": "Request Too Long"}, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: HttpRequest) -> Response:
        request_id = str(uuid.uuid4())
        trace_root = new_trace_root()
        document = event(
            request,
            api_id=_URL_ID,
            request_id=request_id,
            trace_root=trace_root,
            route_key="$default",
            path=request.path,
            path_parameters={},
            anonymous_account="anonymous",
        )
        response = await self._invoke(json.dumps(document).encode(), trace_root)
        response.headers["x-amzn-requestid"] = request_id
        return response

    async def _invoke(self, payload: bytes, trace_root: str) -> Response:
        try:
            outcome = await self._functions.invoke(self._function, payload, trace_id=trace_root)
        except AwsError as error:
            return JSONResponse({"message": str(error), **error.fields}, error.status)
        if outcome.error is not None:
            return _bad_gateway()
        try:
            return http_response(outcome.payload, default_content_type="application/json")
        except InvalidResponse as error:
            logger.warning("The result of %s is no HTTP response: %s", self._function, error)
            return _bad_gateway()


def _bad_gateway() -> Response:
    # The body is the text alone, although AWS labels it as JSON.
    return Response("Internal Server Error", HTTPStatus.BAD_GATEWAY, media_type="application/json")
