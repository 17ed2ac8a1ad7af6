"""The edge of the HTTP functions: AWS's event in, AWS's result out, and every error a problem document (RFC 9457).

Owns the shapes of API Gateway's payload 2.0 (which function URLs share), and that no operation runs for a caller who
may not (`access`). Knows no operation.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.logging import Logger

from forbear.access import Caller, Refused, admit, held_query
from forbear.db import Database, Unavailable
from forbear.deadline import within
from forbear.faults import Fault, faults
from forbear.routes import FUNCTION_URL, RULES

if TYPE_CHECKING:  # ingest does without pydantic: it would take a third of a cold start
    from pydantic import BaseModel, ValidationError

PROBLEM = "application/problem+json"
JSON = "application/json"
TITLES = {
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    409: "Conflict", 413: "Content Too Large", 415: "Unsupported Media Type", 422: "Unprocessable Content",
    500: "Internal Server Error", 503: "Service Unavailable",
}  # fmt: skip

# A database that wakes from a pause has been at it since this request came, and will be there soon.
RETRY_AFTER_S = 5
# What is left of a function's time when its database must have answered: for the call that wakes a claimer, two seconds
# at most, and the answer. (boto3 is imported while the database is waited for.) API Gateway's 30 seconds have run since
# before a cold start.
MARGIN_S = 2.5
# What is asked by the HTTP API ends in this time, before that gives up; by replay's own URL it may take longer.
HTTP_API_S = 29.0
# How long the database may take when nobody says how much time there is.
DEFAULT_S = 10.0

logger = Logger(service="forbear")


class Problem(Exception):
    """An answer other than success.

    Args:
        status: HTTP status.
        detail: what is wrong and what to do about it, for the caller's eyes.
        headers: further headers, such as Retry-After.
        members: further members of the problem document (RFC 9457 3.2).
    """

    def __init__(self, status: int, detail: str, *, headers: Mapping[str, str] | None = None, **members: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self.members = members

    def document(self) -> dict[str, Any]:
        """The problem document."""
        return {"type": "about:blank", "title": TITLES[self.status], "status": self.status, "detail": self.detail,
                **self.members}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request as an operation sees it.

    `headers` are lower-case; `path` holds the decoded path parameters; `body` the bytes as they came in. `caller` is
    who makes it: the query names that one's tenant where the route's rule says so.
    """

    method: str
    route: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    caller: Caller = field(default_factory=Caller)


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """An answer: `body` is an object for JSON, a pydantic model, or None for no content."""

    status: int
    body: dict[str, Any] | BaseModel | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


_compact = json.JSONEncoder(separators=(",", ":")).encode

type Operation = Callable[[ApiRequest], ApiResponse]


def read_request(event: Mapping[str, Any]) -> ApiRequest:
    """Read an event of payload format 2.0.

    Raises:
        Problem: 400, the body claims to be base64 and is not.
    """
    body = event.get("body") or ""
    try:
        raw = base64.b64decode(body, validate=True) if event.get("isBase64Encoded") else body.encode()
    except (binascii.Error, UnicodeEncodeError, ValueError) as error:
        raise Problem(400, "the body cannot be decoded: send its bytes as they are") from error
    return ApiRequest(
        method=event["requestContext"]["http"]["method"],
        route=event.get("routeKey", "$default"),
        path=event.get("pathParameters") or {},
        query=event.get("queryStringParameters") or {},
        headers=event.get("headers") or {},
        body=raw,
    )


def invalid(error: ValidationError) -> Problem:
    """The problem that a validation error is: 400 for broken JSON, else 422 with an `errors` member."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return Problem(400, f"the body is not JSON: {first['msg']}")
    return at_fault(faults(error))


def at_fault(found: Sequence[Fault]) -> Problem:
    """The problem that some fields are: 422, told by the first, with all of them in an `errors` member."""
    return Problem(422, str(found[0]), errors=[asdict(fault) for fault in found])


def respond(
    event: Mapping[str, Any], operations: Mapping[str, Operation], context: Any, database: Callable[[], Database]
) -> dict[str, Any]:
    """Answer an event by the operation for its route key (for a function URL: for its method), in time.

    The operation runs only for a caller who may call the route. Nothing escapes: a Problem becomes its document, a
    database or key that cannot be used 503, and what nobody foresaw is logged and becomes 500.

    Args:
        event: AWS's.
        operations: by route key or method.
        context: AWS's, for the time left; None: nobody waits but a test.
        database: where API keys are checked.
    """
    try:
        request = read_request(event)
        by_url = request.route == "$default"
        key = request.method if by_url else request.route
        if key not in operations:
            raise _nothing_there(key, [one for one in operations if (" " in one) != by_url], by_url=by_url)
        rule = FUNCTION_URL if by_url else RULES[key]
        with within(_time_s(context, by_url=by_url)):
            caller = admit(event, rule, database)
            query = held_query(caller, rule, request.path, request.query)
            return _result(operations[key](replace(request, query=query, caller=caller)))
    except Problem as problem:
        return _problem(problem)
    except Refused as refused:
        headers = {"www-authenticate": refused.challenge} if refused.challenge else None
        return _problem(Problem(refused.status, refused.detail, headers=headers))
    except Unavailable as error:
        logger.warning("%s unavailable", error.what, exc_info=error)
        done = "nothing was done" if error.nothing_done else "whether this was done is not known"
        detail = f"the {error.what} cannot be used now; {done}: try again"
        return _problem(Problem(503, detail, headers={"retry-after": str(RETRY_AFTER_S)}))
    except Exception as error:
        from pydantic import ValidationError  # noqa: PLC0415 - few get here, and who has raised one has imported it

        if isinstance(error, ValidationError):  # a row or an answer that no model takes; its message would show values
            found = error.errors(include_url=False, include_context=False, include_input=False)
            logger.error("unforeseen error: %s", error.title, extra={"faults": found})  # noqa: TRY400 - so would a traceback
        else:
            logger.exception("unforeseen error")
        return _problem(Problem(500, "something went wrong here; it has been logged"))


def _time_s(context: Any, *, by_url: bool) -> float:
    """How long the database may take, in seconds."""
    if context is None:
        return DEFAULT_S
    left_s: float = context.get_remaining_time_in_millis() / 1000
    return (left_s if by_url else min(left_s, HTTP_API_S)) - MARGIN_S


def _nothing_there(key: str, there: Sequence[str], *, by_url: bool) -> Problem:
    allowed = ", ".join(sorted(there))
    return Problem(
        405 if by_url else 404,
        f"there is no {key} here; there is: {allowed}",
        headers={"allow": allowed} if by_url else None,
    )


def _result(response: ApiResponse) -> dict[str, Any]:
    if response.body is None:
        return {"statusCode": response.status, "headers": dict(response.headers), "body": ""}
    body = _compact(response.body) if isinstance(response.body, dict) else response.body.model_dump_json()
    return {"statusCode": response.status, "headers": {"content-type": JSON, **response.headers}, "body": body}


def _problem(problem: Problem) -> dict[str, Any]:
    return {
        "statusCode": problem.status,
        "headers": {"content-type": PROBLEM, "cache-control": "no-store", **problem.headers},
        "body": _compact(problem.document()),
    }
