"""Builds what AWS hands to the HTTP functions, and reads what they give back."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

# What API Gateway passes on as text, besides text/*; everything else comes as base64.
TEXT_TYPES = {"application/json", "application/javascript", "application/xml"}

# Whom the gateway names when it has verified a signature.
IAM = {
    "accessKey": "AKIAIOSFODNN7EXAMPLE",
    "accountId": "123456789012",
    "callerId": "AIDACKCEVSQ6C2EXAMPLE",
    "cognitoIdentity": None,
    "principalOrgId": None,
    "userArn": "arn:aws:iam::123456789012:user/producer",
    "userId": "AIDACKCEVSQ6C2EXAMPLE",
}


def http_event(
    method: str,
    path_template: str,
    *,
    path: Mapping[str, str] | None = None,
    query: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    as_base64: bool | None = None,
    signed: bool = True,
) -> dict[str, Any]:
    """Build an event of an HTTP API (payload format 2.0).

    Args:
        method: HTTP method.
        path_template: the route's path, `/v1/endpoints/{id}`.
        path: values of the template's parameters, decoded.
        query: query parameters, decoded.
        headers: headers; their names are lower-cased here, as API Gateway does.
        body: the body's bytes.
        as_base64: whether the body comes as base64; None decides by its content type, as API Gateway does.
        signed: whether the gateway has admitted it, by IAM.
    """
    lower = {name.lower(): value for name, value in (headers or {}).items()}
    raw_path = path_template
    for name, value in (path or {}).items():
        raw_path = raw_path.replace(f"{{{name}}}", quote(value, safe=""))
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": f"{method} {path_template}",
        "rawPath": raw_path,
        "rawQueryString": urlencode(query or {}),
        "headers": {"host": "api.example", "content-length": str(len(body)), **lower},
        "requestContext": {
            "http": {"method": method, "path": raw_path, "protocol": "HTTP/1.1", "sourceIp": "192.0.2.1"},
            "routeKey": f"{method} {path_template}",
            "stage": "$default",
        },
        "isBase64Encoded": False,
    }
    if signed:
        event["requestContext"]["authorizer"] = {"iam": IAM}
    event |= {"queryStringParameters": dict(query)} if query else {}
    event |= {"pathParameters": dict(path)} if path else {}
    if body:
        media_type = lower.get("content-type", "").partition(";")[0].strip()
        text = media_type.startswith("text/") or media_type in TEXT_TYPES
        event["isBase64Encoded"] = not text if as_base64 is None else as_base64
        event["body"] = base64.b64encode(body).decode() if event["isBase64Encoded"] else body.decode()
    return event


def body_of(result: Mapping[str, Any]) -> Any:
    """The JSON that an HTTP function's result holds; None if it has no body."""
    return json.loads(result["body"]) if result["body"] else None


class Context:
    """What Lambda tells a handler about its time: so many seconds, from when this is made."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self._end - time.monotonic()) * 1000))
