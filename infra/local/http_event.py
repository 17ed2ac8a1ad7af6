"""HTTP to Lambda event and back, in payload format 2.0, which HTTP APIs and function URLs share.

Owns the shapes and the rules for bodies and headers. Knows nothing of routes, limits of a service or invoking.
Sources: "Create AWS Lambda proxy integrations for HTTP APIs", API Gateway Developer Guide; "Invoking Lambda function
URLs", Lambda Developer Guide; what these leave open is marked below with where it was observed.
"""

import base64
import json
import re
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from starlette.responses import Response

from infra.local.http_request import HttpRequest
from infra.local.pool import ACCOUNT_ID

# The documentation says "binary" without saying which types are. Observed on AWS for HTTP APIs (ministackorg/ministack
# pull request 766): these are passed on as text; everything else is base64, types with a +json suffix, forms and bodies
# without a type among them.
_TEXT_TYPES = frozenset({"application/json", "application/javascript", "application/xml"})

_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# The connection's own, or the server's to set.
_NOT_FROM_A_FUNCTION = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"})
_CREDENTIAL = re.compile(r"AWS4-HMAC-SHA256\b.*\bCredential=([^/,\s]+)/")


class InvalidResponse(Exception):
    """What a function returned is no HTTP response; the message says why."""


def event(
    request: HttpRequest,
    *,
    api_id: str,
    request_id: str,
    trace_root: str,
    route_key: str,
    path: str,
    path_parameters: Mapping[str, str],
    anonymous_account: str = ACCOUNT_ID,
) -> dict[str, Any]:
    """The event of a request. Members without a value are left out, as AWS does.

    Args:
        request: The request.
        api_id: What to name the API.
        request_id: The id of the request in the context.
        trace_root: The X-Ray trace header.
        route_key: The route that matched (`GET /v1/events`), or `$default`.
        path: The path as the service passes it on (decoded or not).
        path_parameters: The route's variables, decoded.
        anonymous_account: The account in the context of a request that is not signed.

    Returns:
        The event. Of a request that carries a SigV4 signature, the context names the access key as IAM authorization
        would; the signature itself is not verified, and unsigned requests are accepted: this is a local stack.
    """
    now = time.time()
    host = request.header("host")
    signed = _CREDENTIAL.match(request.header("authorization"))
    context: dict[str, Any] = {
        "accountId": ACCOUNT_ID if signed else anonymous_account,
        "apiId": api_id,
        "domainName": host,
        "domainPrefix": host.partition(".")[0],
        "http": {
            "method": request.method,
            "path": path,
            "protocol": request.protocol,
            "sourceIp": request.source_ip,
            "userAgent": request.header("user-agent"),
        },
        "requestId": request_id,
        "routeKey": route_key,
        "stage": "$default",
        "time": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now)),
        "timeEpoch": int(now * 1_000),
    }
    if signed:
        context["authorizer"] = {"iam": _iam_identity(signed[1])}
    document: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route_key,
        "rawPath": path,
        "rawQueryString": request.query,
        "headers": _headers(request, trace_root),
        "requestContext": context,
        "isBase64Encoded": False,
    }
    cookies = [part.strip() for name, value in request.headers if name == "cookie" for part in value.split(";")]
    if cookies:
        document["cookies"] = cookies
    if request.query:
        document["queryStringParameters"] = _joined(parse_qsl(request.query, keep_blank_values=True))
    if path_parameters:
        document["pathParameters"] = dict(path_parameters)
    if request.body:
        document["body"], document["isBase64Encoded"] = _body(request)
    return document


def http_response(result: bytes, *, default_content_type: str) -> Response:
    """The response that a function's result stands for.

    Args:
        result: The result as JSON: an object with `statusCode`, or anything else, which then is the body itself.
        default_content_type: The type of a body whose result has a status but no content type.

    Returns:
        The response.

    Raises:
        InvalidResponse: If it is none.
    """
    try:
        document = json.loads(result)
    except ValueError as error:
        raise InvalidResponse(f"The result is no JSON: {error}") from error
    if not isinstance(document, dict) or "statusCode" not in document:
        return Response(result, HTTPStatus.OK, media_type="application/json")
    headers = _response_headers(document)
    status = _status(document["statusCode"])
    body = _response_body(document)
    if status in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}:
        body = b""  # HTTP forbids one
    elif not any(name == "content-type" for name, _ in headers):
        headers.append(("content-type", default_content_type))
    response = Response(body, status)
    response.raw_headers += [(name.encode(), value.encode("latin-1")) for name, value in headers]
    return response


def _headers(request: HttpRequest, trace_root: str) -> dict[str, str]:
    joined = _joined([(name, value) for name, value in request.headers if name != "cookie"])
    forwarded = joined.get("x-forwarded-for")
    return {
        **joined,
        "x-amzn-trace-id": trace_root,
        "x-forwarded-for": f"{forwarded}, {request.source_ip}" if forwarded else request.source_ip,
        "x-forwarded-port": str(request.port),
        "x-forwarded-proto": "http",
    }


def _joined(pairs: list[tuple[str, str]]) -> dict[str, str]:
    joined: dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def _body(request: HttpRequest) -> tuple[str, bool]:
    media_type = request.header("content-type").partition(";")[0].strip().lower()
    if media_type.startswith("text/") or media_type in _TEXT_TYPES:
        try:
            return request.body.decode(), False
        except UnicodeDecodeError:
            pass  # no text after all: only base64 keeps its bytes
    return base64.b64encode(request.body).decode(), True


def _iam_identity(access_key: str) -> dict[str, Any]:
    return {
        "accessKey": access_key,
        "accountId": ACCOUNT_ID,
        "callerId": "AIDALOCAL00000000000",
        "cognitoIdentity": None,
        "principalOrgId": None,
        "userArn": f"arn:aws:iam::{ACCOUNT_ID}:user/local",
        "userId": "AIDALOCAL00000000000",
    }


def _status(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not HTTPStatus.OK <= value <= 599:
        raise InvalidResponse(f"statusCode is {value!r}")
    return value


def _response_body(document: dict[str, Any]) -> bytes:
    body = document.get("body")
    if body is None:
        return b""
    if not isinstance(body, str):
        raise InvalidResponse(f"body is a {type(body).__name__}, not a string")
    try:
        return base64.b64decode(body, validate=True) if document.get("isBase64Encoded") else body.encode()
    except ValueError as error:  # no base64; or a lone surrogate, which no bytes stand for
        raise InvalidResponse(f"body cannot be sent: {error}") from error


def _response_headers(document: dict[str, Any]) -> list[tuple[str, str]]:
    headers, cookies = document.get("headers") or {}, document.get("cookies") or []
    if not isinstance(headers, dict) or not isinstance(cookies, list):
        raise InvalidResponse("headers is no object, or cookies no array")
    pairs = [(name, _text(value)) for name, value in headers.items()]
    pairs += [("set-cookie", _text(cookie)) for cookie in cookies]
    for name, value in pairs:
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise InvalidResponse(f"header {name!r} cannot be sent")
    return [(name.lower(), value) for name, value in pairs if name.lower() not in _NOT_FROM_A_FUNCTION]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise InvalidResponse(f"a header's value is a {type(value).__name__}")
