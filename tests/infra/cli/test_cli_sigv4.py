"""Signatures: as AWS publishes them, and as the receiving side computes them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

import botocore.auth
import httpx
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from infra.cli.client import Client, connect
from infra.cli.errors import UsageError
from infra.cli.sigv4 import SigV4
from infra.cli.target import Address
from tests.infra.cli.conftest import Serve

CREDENTIALS = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
SESSION = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "a-session-token")


@pytest.fixture
def no_configuration(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without any AWS configuration, the machine's own included."""
    for name in ("PROFILE", "DEFAULT_PROFILE", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION",
                 "DEFAULT_REGION", "WEB_IDENTITY_TOKEN_FILE", "CONTAINER_CREDENTIALS_RELATIVE_URI",
                 "CONTAINER_CREDENTIALS_FULL_URI"):  # fmt: skip
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere/config")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere/credentials")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


@pytest.fixture
def credentials(no_configuration: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    no_configuration.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    no_configuration.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    return no_configuration


async def check(scope: Scope, receive: Receive, send: Send) -> None:
    """Computes the signature of a request anew, from what arrived; answers 403 if it is another one."""
    request = Request(scope, receive)
    authorization = request.headers["authorization"]
    scope_of_key = re.search(r"Credential=AKIDEXAMPLE/\d{8}/([^/]+)/([^/]+)/aws4_request", authorization)
    names = re.search(r"SignedHeaders=([^,]+)", authorization)
    assert scope_of_key
    assert names
    target = scope["raw_path"].decode() + (f"?{scope['query_string'].decode()}" if scope["query_string"] else "")
    arrived = AWSRequest(
        method=request.method,
        url=f"http://{request.headers['host']}{target}",
        data=await request.body(),
        headers={name: request.headers[name] for name in names[1].split(";") if name != "host"},
    )
    arrived.context["timestamp"] = request.headers["x-amz-date"]
    auth = SigV4Auth(SESSION, scope_of_key[2], scope_of_key[1])
    auth._modify_request_before_signing = lambda _: None
    computed = auth.signature(auth.string_to_sign(arrived, auth.canonical_request(arrived)), arrived)
    answer = JSONResponse({"service": scope_of_key[2], "signed": names[1], "target": target})
    if not authorization.endswith(f"Signature={computed}"):
        answer = JSONResponse({"message": "The request signature we calculated does not match"}, 403)
    await answer(scope, receive, send)


def test_the_published_example_post_vanilla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda: datetime(2015, 8, 30, 12, 36))  # noqa: DTZ001 - as botocore wants it
    request = httpx.Request("POST", "https://example.amazonaws.com/")
    (signed,) = SigV4("service", "us-east-1", CREDENTIALS).auth_flow(request)
    assert signed.headers["authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
        "SignedHeaders=host;x-amz-date, "
        "Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"
    )


@pytest.mark.parametrize(
    ("path", "names", "query", "more"),
    [
        ("/", (), {}, {}),
        ("/v1/events", (), {}, {"body": b'{"a":1.0}', "headers": {"content-type": "application/json"}}),
        ("/v1/events", (), {}, {"body": b"\x00\xff", "headers": {"forbear-tenant": "a", "idempotency-key": "k  k"}}),
        ("/v1/tenants/{}/pause", ("a b/c?d=e&ü+%41",), {}, {}),
        ("/v1/deliveries", (), {"since": "2030-01-31T09:30:00.000Z", "tenant": "a+b c&d=e/~ü", "cursor": None}, {}),
        ("/v1/endpoints", (), {}, {"document": {"url": "https://example.com/ü"}}),
    ],
)
def test_what_arrives_bears_the_signature_of_what_was_sent(
    serve: Serve, path: str, names: tuple[str, ...], query: dict[str, object], more: dict[str, Any]
) -> None:
    with Client(Address(serve(check), from_up=False), SigV4("lambda", "eu-west-1", SESSION)) as client:
        answer = client.call("POST" if more else "GET", path, *names, query=query, **more)
    assert answer["service"] == "lambda"
    meant = {"content-type"} if "document" in more else set(more.get("headers", {}))
    assert set(answer["signed"].split(";")) == {"host", "x-amz-date", "x-amz-security-token"} | meant


def test_a_change_on_the_way_would_be_noticed(serve: Serve) -> None:
    """The check above is worth something: with another secret it refuses."""
    other = Credentials("AKIDEXAMPLE", "another secret", "a-session-token")
    with (
        Client(Address(serve(check), from_up=False), SigV4("lambda", "eu-west-1", other)) as client,
        pytest.raises(Exception, match="does not match: may these AWS credentials call it"),
    ):
        client.call("GET", "/")


@pytest.mark.usefixtures("credentials")
@pytest.mark.parametrize(
    ("url", "region"),
    [
        ("https://abc123.execute-api.eu-west-1.amazonaws.com", "eu-west-1"),
        ("https://abc123.lambda-url.us-east-2.on.aws", "us-east-2"),
        ("https://abc123.execute-api.cn-north-1.amazonaws.com.cn", "cn-north-1"),
        ("https://hooks.example", "ap-south-1"),
    ],
)
def test_the_region_is_the_address_s_or_else_the_configured_one(
    credentials: pytest.MonkeyPatch, url: str, region: str
) -> None:
    credentials.setenv("AWS_DEFAULT_REGION", "ap-south-1")
    with connect(Address(url, from_up=False), "execute-api") as client:
        auth = client._http.auth
    assert isinstance(auth, SigV4)
    assert (auth._region, auth._service) == (region, "execute-api")


@pytest.mark.usefixtures("credentials")
def test_requests_to_this_machine_are_not_signed() -> None:
    with connect(Address("http://127.0.0.1:1", from_up=False), "execute-api") as client:
        assert not isinstance(client._http.auth, SigV4)


@pytest.mark.usefixtures("no_configuration")
def test_without_credentials_nothing_is_sent_and_the_error_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"no AWS credentials to sign requests to hooks.example: log in, or set"):
        connect(Address("https://hooks.example", from_up=False), "lambda")


@pytest.mark.usefixtures("credentials")
def test_without_a_region_the_error_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"the AWS region of hooks.example is not known: set AWS_REGION"):
        connect(Address("https://hooks.example", from_up=False), "lambda")


def test_a_profile_that_is_not_there_is_an_error_of_one_line(no_configuration: pytest.MonkeyPatch) -> None:
    no_configuration.setenv("AWS_PROFILE", "no-such-profile")
    with pytest.raises(UsageError, match=r"the AWS configuration cannot be used: .*no-such-profile"):
        connect(Address("https://hooks.example", from_up=False), "lambda")
