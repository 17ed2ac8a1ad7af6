"""What a producer posts, read into events or refused with a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.api import Problem
from forbear.envelope import NewEvent, read_batch, read_event

RAW = {"forbear-tenant": "acme", "forbear-type": "order.paid"}
ENVELOPE = b'{"tenant":"acme","type":"a","payload":1}'


def refusal(headers: dict[str, str], body: bytes, *, batch: bool = False) -> Problem:
    with pytest.raises(Problem) as refused:
        (read_batch if batch else read_event)(headers, body)
    assert len(refused.value.detail) < 500
    return refused.value


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "not valid JSON"),
        (b"{", 400, "not valid JSON"),
        (b"[]", 400, "expected a JSON object"),
        (b"null", 400, "expected a JSON object"),
        (b'{"tenant":"acme","type":"a","payload":NaN}', 400, "NaN"),
        (b'{"tenant":"acme","type":"a","payload":[-Infinity]}', 400, "Infinity"),
        (b'{"tenant":"acme","type":"a","payload":"\x00"}', 400, "NUL"),
        (b'{"tenant":"acme","type":"a","payload":"\xff"}', 400, "UTF-8"),
        (b'{"tenant":"acme","type":"a","payload":"\xed\xa0\x80"}', 400, "UTF-8"),
        (b'{"tenant":"acme","type":"a","payload":1} x', 400, "not valid JSON"),
        (b'{"tenant":"acme","tenant":"b","type":"a","payload":1}', 400, "twice"),
        (b"[" * 100_000, 400, "nested"),
        (b"\xef\xbb\xbf{}", 400, "byte order mark"),
        (b'{"type":"a","payload":1}', 422, "tenant: it is missing"),
        (b'{"tenant":"acme","payload":1}', 422, "type: it is missing"),
        (b'{"tenant":"acme","type":"a"}', 422, "payload: it is missing"),
        (b"{}", 422, "missing"),
        (b'{"tenant":"acme","type":"a","payload":1,"data":2}', 422, "'data': there is no such member"),
        (rb'{"tenant":"acme","type":"a","payload":1,"\ud800":2}', 422, "there is no such member"),
        (b'{"tenant":null,"type":"a","payload":1}', 422, "tenant"),
        (b'{"tenant":5,"type":"a","payload":1}', 422, "tenant"),
        (b'{"tenant":"","type":"a","payload":1}', 422, "tenant"),
        (b'{"tenant":"a/b","type":"a","payload":1}', 422, "tenant"),
        (b'{"tenant":"..","type":"a","payload":1}', 422, "tenant"),
        (b'{"tenant":"acme\\n","type":"a","payload":1}', 422, "tenant"),
        (b'{"tenant":"%s","type":"a","payload":1}' % (b"x" * 129), 422, "tenant"),
        (b'{"tenant":%s,"type":"a","payload":1}' % (b"[" * 600 + b"]" * 600), 422, "tenant"),
        ('{"tenant":"é","type":"a","payload":1}'.encode(), 422, "tenant"),
        (rb'{"tenant":"a\u0000","type":"a","payload":1}', 422, "tenant"),
        (rb'{"tenant":"\ud800","type":"a","payload":1}', 422, "tenant"),
        (rb'{"tenant":"acme","type":"\udc00","payload":1}', 422, "type"),
        (rb'{"tenant":"acme","type":"a\u0000","payload":1}', 422, "type"),
        (b'{"tenant":"acme","type":"a..b","payload":1}', 422, "type"),
        (b'{"tenant":"acme","type":"a.*","payload":1}', 422, "type"),
        (b'{"tenant":"acme","type":"forbear.test","payload":1}', 422, "Forbear's own"),
        (b'{"tenant":"acme","type":["a"],"payload":1}', 422, "type"),
        (b'{"tenant":"acme","type":"a","payload":1,"id":""}', 422, "id"),
        (b'{"tenant":"acme","type":"a","payload":1,"id":7}', 422, "id"),
        (b'{"tenant":"acme","type":"a","payload":1,"id":"%s"}' % (b"x" * 256), 422, "255"),
        (rb'{"tenant":"acme","type":"a","payload":1,"id":"\ud800"}', 422, "id"),
        (rb'{"tenant":"acme","type":"a","payload":1,"id":"a\u0000"}', 422, "id"),
        (b'{"tenant":"acme","type":"a","payload":1,"expires_at":"2030-01-01T00:00:00"}', 422, "offset"),
        (b'{"tenant":"acme","type":"a","payload":1,"expires_at":"tomorrow"}', 422, "expires_at"),
        (b'{"tenant":"acme","type":"a","payload":1,"expires_at":1893456000}', 422, "expires_at"),
        (b'{"tenant":"acme","type":"a","payload":1,"expires_at":"1893456000"}', 422, "expires_at"),
        (b'{"tenant":"acme","type":"a","payload":1,"expires_at":"0001-01-01T00:00:00Z"}', 422, "expires_at"),
        (b'{"tenant":"acme","type":"a","payload":"%s"}' % (b"x" * (1 << 20)), 413, "1048576"),
    ],
)
def test_what_is_wrong_with_an_envelope_is_said(body: bytes, status: int, says: str) -> None:
    problem = refusal({}, body)
    assert problem.status == status
    assert says in problem.detail


@pytest.mark.parametrize(
    ("headers", "status", "says"),
    [
        ({"forbear-tenant": "acme"}, 422, "forbear-type"),
        ({"forbear-type": "a"}, 422, "forbear-tenant"),
        ({"forbear-expires-at": "2030-01-01T00:00:00Z"}, 422, "forbear-tenant"),
        (RAW | {"forbear-tenant": "a,b"}, 422, "forbear-tenant"),
        (RAW | {"forbear-type": ""}, 422, "forbear-type"),
        (RAW | {"forbear-type": "forbear.test"}, 422, "forbear-type"),
        (RAW | {"forbear-expires-at": "soon"}, 422, "forbear-expires-at"),
        (RAW | {"content-type": "text/plain\r\nx: y"}, 422, "content-type"),
        (RAW | {"content-type": "é"}, 422, "content-type"),
        (RAW | {"content-type": "x" * 256}, 422, "content-type"),
        (RAW | {"idempotency-key": ""}, 400, "Idempotency-Key"),
        (RAW | {"idempotency-key": "é"}, 400, "Idempotency-Key"),
        (RAW | {"idempotency-key": "x" * 256}, 400, "255"),
        ({"content-type": "text/plain"}, 415, "forbear-tenant"),
        ({"content-type": "application/cloudevents+json"}, 415, "application/json"),
    ],
)
def test_what_is_wrong_with_the_headers_is_said(headers: dict[str, str], status: int, says: str) -> None:
    problem = refusal(headers, ENVELOPE)
    assert problem.status == status
    assert says in problem.detail


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b'{"events":[', 400),
        (b'{"events":[{"tenant":"a","type":"b","payload":NaN}]}', 400),
        (b"[]", 400),
        (b"{}", 422),
        (b'{"events":{}}', 422),
        (b'{"events":null}', 422),
        (b'{"events":[]}', 422),
        (b'{"events":[],"tenant":"acme"}', 422),
        (b'{"events":[%s]}' % b",".join([ENVELOPE] * 501), 413),
        (b'{"events":[%s]}' % (b" " * 4_500_000), 413),
    ],
)
def test_a_batch_that_is_wrong_as_a_whole_is_refused_as_a_whole(body: bytes, status: int) -> None:
    assert refusal({}, body, batch=True).status == status


def test_what_is_wrong_in_a_batch_is_wrong_with_that_event_alone() -> None:
    entries = read_batch({}, b'{"events":[%s,1,{},{"tenant":"a","tenant":"b"},%s]}' % (ENVELOPE, ENVELOPE))
    assert [entry.status if isinstance(entry, Problem) else entry.type for entry in entries] == [
        "a",
        400,
        422,
        400,
        "a",
    ]


def test_a_key_comes_from_the_header_or_the_member_and_not_from_both() -> None:
    with_id = ENVELOPE[:-1] + b',"id":"k"}'
    assert read_event({"idempotency-key": "k"}, ENVELOPE) == read_event({}, with_id)
    assert read_event({"idempotency-key": "k"}, with_id).key == "k"
    assert read_event({}, ENVELOPE).key is None
    assert refusal({"idempotency-key": "other"}, with_id).status == 400


def test_null_is_as_good_as_nothing_for_what_may_be_left_out() -> None:
    assert read_event({}, ENVELOPE[:-1] + b',"id":null,"expires_at":null}') == read_event({}, ENVELOPE)


def test_times_are_read_as_the_instants_they_are() -> None:
    event = read_event({}, ENVELOPE[:-1] + b',"expires_at":"2030-01-01t01:00:00.5+01:00"}')
    assert event.expires_at == datetime(2030, 1, 1, 0, 0, 0, 500_000, UTC)
    assert read_event(RAW | {"forbear-expires-at": "2029-12-31T23:00:00.5-01:00"}, b"").expires_at == event.expires_at


space = st.text(" \t\n\r", max_size=3)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.booleans(), st.lists(space, min_size=6, max_size=6))
def test_a_payloads_bytes_are_cut_out_of_any_envelope(value: Any, escaped: bool, gaps: list[str]) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    payload = text.encode("utf-8", "surrogatepass" if escaped else "strict")
    before, between, after, first, second, third = (gap.encode() for gap in gaps)
    document = b'%s{%s"payload":%s%s%s,"type":"a.b"%s,"tenant":"acme"}%s' % (
        *(before, between, first, payload, second, third, after),
    )
    assert read_event({"content-type": "application/json; charset=utf-8"}, document) == NewEvent(
        "acme", "a.b", "application/json", payload, None, None
    )
    batch = b'%s{"events"%s:[%s%s%s,%s]}' % (before, between, first, document, second, document)
    assert [entry.payload for entry in read_batch({}, batch) if isinstance(entry, NewEvent)] == [payload, payload]


@given(st.binary(max_size=300), st.sampled_from(["", "application/json", "text/plain", "image/png"]))
def test_a_raw_payload_is_never_looked_at(body: bytes, content_type: str) -> None:
    event = read_event(RAW | {"content-type": content_type}, body)
    assert (event.payload, event.content_type) == (body, content_type or "application/octet-stream")


EVENT = NewEvent("acme", "a", "text/plain", b"payload", datetime(2030, 1, 1, tzinfo=UTC), "k")


@pytest.mark.parametrize(
    "change",
    [
        {"type": "b"},
        {"type": "atext/plain", "content_type": ""},
        {"content_type": "text/html"},
        {"payload": b"payload "},
        {"expires_at": None},
        {"expires_at": datetime(2030, 1, 1, 0, 0, 0, 1, UTC)},
    ],
)
def test_events_that_differ_in_what_is_stored_have_different_digests(change: dict[str, Any]) -> None:
    assert replace(EVENT, **change).digest() != EVENT.digest()
    assert replace(EVENT, tenant="other", key="other").digest() == EVENT.digest()
