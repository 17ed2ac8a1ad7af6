"""The function URL: where it differs from the HTTP API."""

import asyncio
import json

import httpx
import pytest

from infra.local.functions import MAX_REQUEST_BYTES
from infra.local.stack import LocalStack
from tests.infra.local.support import Gate, Launch, plain, web


@pytest.fixture
async def url(launch: Launch) -> str:
    return url_of(await launch(web(), replay_function="web"))


def url_of(stack: LocalStack) -> str:
    assert stack.replay_url is not None
    return stack.replay_url


async def test_an_event_has_the_documented_shape(url: str, client: httpx.AsyncClient) -> None:
    answer = await client.request("DELETE", f"{url}/my%20path?id=1", headers={"User-Agent": "agent"})
    event = answer.json()
    context = event["requestContext"]
    assert event["routeKey"] == context["routeKey"] == context["stage"] == "$default"
    assert event["rawPath"] == context["http"]["path"] == "/my%20path"
    assert event["queryStringParameters"] == {"id": "1"}
    assert "pathParameters" not in event
    assert context["accountId"] == "anonymous"
    assert context["domainName"] == url.removeprefix("http://")
    assert "authorizer" not in context
    assert context["http"] == {
        "method": "DELETE",
        "path": "/my%20path",
        "protocol": "HTTP/1.1",
        "sourceIp": "127.0.0.1",
        "userAgent": "agent",
    }
    assert answer.headers["x-amzn-requestid"] == context["requestId"]


async def test_a_signed_request_shows_its_access_key(url: str, client: httpx.AsyncClient) -> None:
    signature = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/lambda/aws4_request, Signature=5d672d79"
    context = (await client.get(url, headers={"Authorization": signature})).json()["requestContext"]
    assert context["accountId"] == "000000000000"
    assert context["authorizer"]["iam"]["accessKey"] == "AKIDEXAMPLE"


async def test_a_body_over_6_mb_is_too_large(url: str, client: httpx.AsyncClient) -> None:
    answer = await client.post(url, content=b"x" * (MAX_REQUEST_BYTES + 1))
    assert answer.status_code == 413


async def test_a_type_not_given_is_json(url: str, client: httpx.AsyncClient) -> None:
    wish = {"Test-Wish": "return"}
    answer = await client.post(url, content=json.dumps({"statusCode": 202, "body": "1"}).encode(), headers=wish)
    assert (answer.status_code, answer.json()) == (202, 1)
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("wish", [{"Test-Wish": "raise"}, {"Test-Wish": "return"}])
async def test_a_function_that_fails_is_a_bad_gateway(
    url: str, client: httpx.AsyncClient, wish: dict[str, str]
) -> None:
    answer = await client.post(url, content=b'{"statusCode": "none"}', headers=wish)
    assert (answer.status_code, answer.text) == (502, "Internal Server Error")


async def test_a_throttled_function_says_so(launch: Launch, client: httpx.AsyncClient, gate: Gate) -> None:
    stack = await launch(plain(max_environments=1), replay_function="plain")
    running = asyncio.create_task(stack.functions.invoke("plain", gate.event))
    await gate.arrival()
    answer = await client.get(url_of(stack))
    assert answer.status_code == 429
    assert answer.json()["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"
    gate.open()
    await running
