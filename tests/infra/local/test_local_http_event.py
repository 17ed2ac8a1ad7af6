"""Bodies and queries that nobody thought of."""

import base64
import json
from urllib.parse import urlencode

from hypothesis import given, settings
from hypothesis import strategies as st

from infra.local.http_event import event, http_response
from infra.local.http_request import HttpRequest

TYPES = st.sampled_from(
    ["application/json", "text/plain; charset=utf-8", "application/xml", "image/png", "", "nonsense"]
)


def request(body: bytes = b"", content_type: str = "", query: str = "") -> HttpRequest:
    return HttpRequest(
        method="POST",
        path="/",
        query=query,
        headers=(("content-type", content_type), ("host", "localhost")),
        body=body,
        source_ip="127.0.0.1",
        port=1,
        protocol="HTTP/1.1",
    )


def event_of(request: HttpRequest) -> dict[str, object]:
    made = event(request, api_id="a", request_id="r", trace_root="t", route_key="POST /", path="/", path_parameters={})
    through_the_wire: dict[str, object] = json.loads(json.dumps(made))
    return through_the_wire


@settings(max_examples=100)
@given(body=st.binary(max_size=200) | st.text(max_size=200).map(str.encode), content_type=TYPES)
def test_a_body_reaches_the_function_byte_for_byte(body: bytes, content_type: str) -> None:
    made = event_of(request(body, content_type))
    text = made.get("body", "")
    assert isinstance(text, str)
    assert (base64.b64decode(text) if made["isBase64Encoded"] else text.encode()) == body


@settings(max_examples=100)
@given(pairs=st.lists(st.tuples(st.text(min_size=1, max_size=5), st.text(max_size=5)), min_size=1, max_size=5))
def test_query_parameters_are_decoded_and_joined(pairs: list[tuple[str, str]]) -> None:
    pairs = [(name.encode(errors="replace").decode(), value.encode(errors="replace").decode()) for name, value in pairs]
    expected: dict[str, list[str]] = {}
    for name, value in pairs:
        expected.setdefault(name, []).append(value)
    made = event_of(request(query=urlencode(pairs)))
    assert made["queryStringParameters"] == {name: ",".join(values) for name, values in expected.items()}


@settings(max_examples=100)
@given(query=st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=50))
def test_no_query_is_too_odd(query: str) -> None:
    assert event_of(request(query=query))["rawQueryString"] == query


@settings(max_examples=100)
@given(body=st.binary(max_size=200))
def test_a_body_leaves_the_function_byte_for_byte(body: bytes) -> None:
    result = {"statusCode": 200, "body": base64.b64encode(body).decode(), "isBase64Encoded": True}
    assert http_response(json.dumps(result).encode(), default_content_type="a/b").body == body
