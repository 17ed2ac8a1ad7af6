"""Whatever a caller sends is answered, and never by 500."""

from __future__ import annotations

from typing import Any

import psycopg
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import manage
from forbear.manage import cursors
from forbear.manage.times import LOWEST_ID
from forbear.operations import OPERATIONS
from tests.functions.builders import make_endpoint, post
from tests.functions.events import http_event
from tests.functions.manage.calling import call, dlv, ep, evt, rows

type Connection = psycopg.Connection[Any]

TEXT = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["", "*", "acme", "\0", "é", "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "-1", "1e3", "null"]),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["tenant", "url", "event_types", "description", "headers", "policy", "secret", "paused", "since", "until", "types",
     "deliveries", "filter", "cursor", "type", "endpoint", "x"]
)  # fmt: skip
PARAMETERS = st.sampled_from(
    ["tenant", "limit", "cursor", "type", "status", "reason", "since", "until", "endpoint", "event"]
)


@given(
    key=st.sampled_from(sorted(manage.OPERATIONS)),
    item=st.integers(0, 5) | TEXT,
    query=st.dictionaries(PARAMETERS, TEXT, max_size=3),
    body=st.binary(max_size=20) | st.dictionaries(FIELDS, JSON, max_size=3),
)
@example("GET /v1/deliveries", 0, {"limit": "1_0"}, b"")
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_that_a_caller_sends_is_500(
    connection: Connection, key: str, item: int | str, query: dict[str, str], body: Any
) -> None:
    if not rows(connection, "SELECT FROM forbear.endpoints"):
        make_endpoint(connection)
        post(connection, b"1")
    method, _, template = key.partition(" ")
    ids = [ep, dlv, evt]
    known = rows(
        connection,
        "SELECT e.id AS ep, d.id AS dlv, d.event_id AS evt FROM forbear.endpoints e"
        " LEFT JOIN forbear.deliveries d ON d.endpoint_id = e.id ORDER BY e.id LIMIT 1",
    )[0]
    if isinstance(item, int):
        kind = ids[item % 3]
        item = kind(known[kind.__name__] or LOWEST_ID)
    if isinstance(body, bytes):
        event = http_event(method, template, path={template.partition("{")[2].partition("}")[0]: item},
                           query=query, body=body, as_base64=True)  # fmt: skip
        status = manage.handler(event, None)["statusCode"]
    else:
        status = call(method, template, item, query=query, body=body).status
    assert status < 500
    assert status in {*OPERATIONS[key].answers, *OPERATIONS[key].problems}


def test_a_made_up_cursor_is_refused_even_if_its_form_is_right() -> None:
    for due_at in ((1 << 63) - 1, -(1 << 63), 1 << 60):
        cursor = cursors.write("c", LOWEST_ID, due_at, LOWEST_ID)
        answer = call("POST", "/v1/deliveries/cancel", body={"filter": {"tenant": "acme"}, "cursor": cursor})
        assert answer.status == 400
    for number in ((1 << 63) - 1, -(1 << 63)):
        answer = call("GET", "/v1/deliveries/{id}", dlv(LOWEST_ID), query={"cursor": cursors.write("a", number)})
        assert answer.status == 404
