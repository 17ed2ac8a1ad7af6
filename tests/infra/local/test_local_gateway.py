"""The HTTP API: what a function sees of a request, and what a client gets of a result."""

import asyncio
import base64
import json
from datetime import datetime
from typing import Any

import httpx
import pytest

from infra.local.gateway import MAX_BODY_BYTES, Route
from infra.local.stack import LocalStack, Timing
from tests.infra.local.support import PATIENCE_S, Gate, Launch, Output, plain, web

ROUTES = (
    Route("POST", "/v1/events", "web"),
    Route("GET", "/v1/events/{id}", "web"),
    Route("GET", "/v1/events/recent", "web"),
    Route("POST", "/v1/endpoints/{id}/pause", "web"),
)


@pytest.fixture
async def api(launch: Launch) -> LocalStack:
    return await launch(web(), routes=ROUTES)


async def raw(url: str, request: bytes) -> dict[str, Any]:
    """Send bytes that a polite client would not, and return the event that the function saw."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    async with asyncio.timeout(PATIENCE_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))[15:])
        body = await reader.readexactly(length)
    writer.close()
    event: dict[str, Any] = json.loads(body)
    return event


async def test_an_event_has_the_documented_shape(api: LocalStack) -> None:
    request = (
        b"POST /v1/endpoints/a%2Fb/pause?parameter1=value1&parameter1=value2&parameter2=value&x=%20+ HTTP/1.1\r\n"
        b"Host: id.execute-api.us-east-1.amazonaws.com\r\n"
        b"Header1: value1\r\nHEADER2: value1\r\nheader2: value2\r\nUser-Agent: agent\r\n"
        b"Cookie: cookie1=a; cookie2=b\r\nCookie: cookie3=c\r\nX-Forwarded-For: 203.0.113.9\r\n"
        b'Content-Type: application/json\r\nContent-Length: 9\r\n\r\n{"a":"b"}'
    )
    event = await raw(api.api_url, request)

    context = event["requestContext"]
    written = datetime.strptime(context.pop("time"), "%d/%b/%Y:%H:%M:%S %z")
    assert int(written.timestamp()) == context.pop("timeEpoch") // 1_000
    assert event["headers"].pop("x-amzn-trace-id").startswith("Root=1-")
    assert context.pop("requestId").endswith("=")
    assert event == {
        "version": "2.0",
        "routeKey": "POST /v1/endpoints/{id}/pause",
        "rawPath": "/v1/endpoints/a/b/pause",
        "rawQueryString": "parameter1=value1&parameter1=value2&parameter2=value&x=%20+",
        "cookies": ["cookie1=a", "cookie2=b", "cookie3=c"],
        "headers": {
            "host": "id.execute-api.us-east-1.amazonaws.com",
            "header1": "value1",
            "header2": "value1,value2",
            "user-agent": "agent",
            "content-type": "application/json",
            "content-length": "9",
            "x-forwarded-for": "203.0.113.9, 127.0.0.1",
            "x-forwarded-port": api.api_url.rpartition(":")[2],
            "x-forwarded-proto": "http",
        },
        "queryStringParameters": {"parameter1": "value1,value2", "parameter2": "value", "x": "  "},
        "pathParameters": {"id": "a/b"},
        "requestContext": {
            "accountId": "000000000000",
            "apiId": "local",
            "domainName": "id.execute-api.us-east-1.amazonaws.com",
            "domainPrefix": "id",
            "http": {
                "method": "POST",
                "path": "/v1/endpoints/a/b/pause",
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": "agent",
            },
            "routeKey": "POST /v1/endpoints/{id}/pause",
            "stage": "$default",
        },
        "body": '{"a":"b"}',
        "isBase64Encoded": False,
    }


async def test_what_a_request_does_not_have_is_not_in_the_event(api: LocalStack) -> None:
    event = await raw(api.api_url, b"GET /v1/events/recent HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert event.keys() == {
        *("version", "routeKey", "rawPath", "rawQueryString", "headers", "requestContext", "isBase64Encoded"),
    }
    assert event["rawQueryString"] == ""
    assert "authorizer" not in event["requestContext"]


async def test_a_signed_request_shows_its_access_key(api: LocalStack, client: httpx.AsyncClient) -> None:
    credential = "AKIDEXAMPLE/20150830/us-east-1/execute-api/aws4_request"
    signature = f"AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders=host;x-amz-date, Signature=5d672d79"
    answer = await client.get(f"{api.api_url}/v1/events/recent", headers={"Authorization": signature})
    identity = answer.json()["requestContext"]["authorizer"]["iam"]
    assert identity["accessKey"] == "AKIDEXAMPLE"
    assert identity["userArn"] == "arn:aws:iam::000000000000:user/local"
    assert identity.keys() == {
        *("accessKey", "accountId", "callerId", "cognitoIdentity", "principalOrgId", "userArn", "userId"),
    }


async def test_plain_text_in_a_path_beats_a_variable(api: LocalStack, client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{api.api_url}/v1/events/recent")).json()["routeKey"] == "GET /v1/events/recent"
    event = (await client.get(f"{api.api_url}/v1/events/evt_1")).json()
    assert event["routeKey"] == "GET /v1/events/{id}"
    assert event["pathParameters"] == {"id": "evt_1"}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/v1/events"),
        ("POST", "/v1/events/"),
        ("POST", "/v1/events/evt_1"),
        ("GET", "/v1/events/1/2"),
    ],
)
async def test_what_no_route_matches_is_not_found(
    api: LocalStack, client: httpx.AsyncClient, method: str, path: str
) -> None:
    answer = await client.request(method, api.api_url + path)
    assert (answer.status_code, answer.json()) == (404, {"message": "Not Found"})


@pytest.mark.parametrize(
    ("content_type", "body", "is_text"),
    [
        ("application/json", b'{"a": "\xc3\xa9\\u0000"}', True),
        ("Application/JSON; charset=utf-8", b"{}", True),
        ("text/csv", b"a,b\r\n", True),
        ("application/xml", b"<a/>", True),
        ("application/javascript", b"a()", True),
        ("application/json", b"\xff\xfe{}", False),
        ("application/cloudevents+json", b"{}", False),
        ("application/x-www-form-urlencoded", b"a=b", False),
        ("application/octet-stream", b"{}", False),
        (None, b"{}", False),
    ],
)
async def test_a_body_is_text_by_its_content_type_and_base64_otherwise(
    api: LocalStack, client: httpx.AsyncClient, content_type: str | None, body: bytes, is_text: bool
) -> None:
    headers = {} if content_type is None else {"Content-Type": content_type}
    event = (await client.post(f"{api.api_url}/v1/events", content=body, headers=headers)).json()
    assert event["isBase64Encoded"] is not is_text
    assert (event["body"].encode() if is_text else base64.b64decode(event["body"])) == body


async def returning(api: LocalStack, client: httpx.AsyncClient, result: object) -> httpx.Response:
    content = json.dumps(result).encode()
    return await client.post(f"{api.api_url}/v1/events", content=content, headers={"Test-Wish": "return"})


async def test_a_result_with_a_status_is_the_response(api: LocalStack, client: httpx.AsyncClient) -> None:
    result = {
        "statusCode": 201,
        "headers": {"Content-Type": "application/problem+json", "X-Number": 7, "X-True": True, "Content-Length": "999"},
        "cookies": ["a=1; Path=/", "b=2"],
        "body": "é",
    }
    answer = await returning(api, client, result)
    assert answer.status_code == 201
    assert answer.text == "é"
    assert answer.headers.get_list("content-type") == ["application/problem+json"]
    assert answer.headers.get_list("content-length") == ["2"]
    assert answer.headers["x-number"] == "7"
    assert answer.headers["x-true"] == "true"
    assert answer.headers.get_list("set-cookie") == ["a=1; Path=/", "b=2"]
    assert answer.headers["apigw-requestid"].endswith("=")


async def test_a_base64_result_is_sent_as_bytes(api: LocalStack, client: httpx.AsyncClient) -> None:
    body = bytes(range(256))
    result = {"statusCode": 200, "body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    answer = await returning(api, client, result)
    assert answer.content == body
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"


async def test_a_result_without_a_status_is_the_body_itself(api: LocalStack, client: httpx.AsyncClient) -> None:
    for result in ("Hello from Lambda!", {"message": "Hello from Lambda!"}, ["a"], 7, None):
        answer = await returning(api, client, result)
        assert (answer.status_code, answer.json()) == (200, result)
        assert answer.headers["content-type"] == "application/json"


async def test_no_content_has_no_body(api: LocalStack, client: httpx.AsyncClient) -> None:
    answer = await returning(api, client, {"statusCode": "204", "body": "ignored"})
    assert (answer.status_code, answer.content) == (204, b"")
    assert "content-length" not in answer.headers


NO_RESPONSES = (
    {"statusCode": "many"},
    {"statusCode": 99},
    {"statusCode": True},
    {"statusCode": 200, "body": {"a": 1}},
    {"statusCode": 200, "body": "no base64!", "isBase64Encoded": True},
    {"statusCode": 200, "headers": {"x": "a\r\nb: c"}},
    {"statusCode": 200, "headers": {"a b": "c"}},
    {"statusCode": 200, "headers": {"x": ["a"]}},
    {"statusCode": 200, "headers": ["a"]},
    {"statusCode": 200, "cookies": "a=1"},
)


async def test_a_result_that_is_no_response_is_an_internal_error(api: LocalStack, client: httpx.AsyncClient) -> None:
    for result in NO_RESPONSES:
        answer = await returning(api, client, result)
        assert (answer.status_code, answer.json()) == (500, {"message": "Internal Server Error"}), result


async def test_a_function_that_fails_is_an_internal_error(api: LocalStack, client: httpx.AsyncClient) -> None:
    answer = await client.post(f"{api.api_url}/v1/events", headers={"Test-Wish": "raise"})
    assert (answer.status_code, answer.json()) == (500, {"message": "Internal Server Error"})


async def test_bodies_over_10_mb_and_events_over_6_mb_are_too_large(api: LocalStack, client: httpx.AsyncClient) -> None:
    refusal = (413, {"message": "Request Entity Too Large"})
    for size, content_type in ((MAX_BODY_BYTES + 1, "text/plain"), (5_000_000, "application/octet-stream")):
        answer = await client.post(
            f"{api.api_url}/v1/events", content=b"x" * size, headers={"Content-Type": content_type}
        )
        assert (answer.status_code, answer.json()) == refusal
    content = b"x" * 5_000_000
    answer = await client.post(f"{api.api_url}/v1/events", content=content, headers={"Content-Type": "text/plain"})
    assert len(answer.json()["body"]) == 5_000_000


async def test_a_request_line_and_headers_over_10240_bytes_are_refused(
    api: LocalStack, client: httpx.AsyncClient
) -> None:
    answer = await client.get(f"{api.api_url}/v1/events/recent", headers={"X-Long": "x" * 10_000})
    assert answer.status_code == 200
    answer = await client.get(f"{api.api_url}/v1/events/recent?{'x' * 2_000}", headers={"X-Long": "x" * 8_300})
    assert (answer.status_code, answer.json()) == (431, {"message": "Request Header Fields Too Large"})


async def test_a_request_that_never_came_whole_invokes_nothing(launch: Launch, client: httpx.AsyncClient) -> None:
    stack = await launch(plain(), routes=(Route("POST", "/", "plain"),))
    _, writer = await asyncio.open_connection("127.0.0.1", int(stack.api_url.rpartition(":")[2]))
    writer.write(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf")
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    assert (await client.post(stack.api_url, content=b"whole")).json()["calls"] == 1


async def test_a_slow_function_is_answered_for_and_goes_on(
    launch: Launch, client: httpx.AsyncClient, gate: Gate, output: Output
) -> None:
    stack = await launch(
        plain(handler="web_gate.handler", environment={"GATE": str(gate.port)}),
        routes=(Route("GET", "/", "plain"),),
        timing=Timing(integration_timeout_s=0.3, grace_s=0.2),
    )
    answer = await client.get(stack.api_url)
    assert (answer.status_code, answer.json()) == (503, {"message": "Service Unavailable"})
    await gate.arrival()
    gate.open()
    await output.until(lambda lines: "plain: through the gate" in lines)


async def test_a_throttled_function_is_unavailable(launch: Launch, client: httpx.AsyncClient, gate: Gate) -> None:
    stack = await launch(plain(max_environments=1), routes=(Route("GET", "/", "plain"),))
    running = asyncio.create_task(stack.functions.invoke("plain", gate.event))
    await gate.arrival()
    answer = await client.get(stack.api_url)
    assert (answer.status_code, answer.json()) == (503, {"message": "Service Unavailable"})
    gate.open()
    await running
    assert (await client.get(stack.api_url)).json()["calls"] == 2
