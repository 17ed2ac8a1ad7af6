"""The ingest function, called as API Gateway calls it, against a real database."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ingest
from forbear.ids import Prefix, decode
from forbear.models.events import BatchAccepted, BatchIn, EventAccepted, EventIn
from tests.functions.builders import make_endpoint, move_clock, one
from tests.functions.conftest import forget, remembering
from tests.functions.events import body_of, http_event

type Connection = psycopg.Connection[Any]

AWKWARD_PAYLOADS = [
    b'{"z":1,"a":2,"m":{"y":1,"b":2}}',
    b'{"key": "value",  "num": 1.0}',
    b"1.0",
    b"1e400",
    b"-0.0",
    b"123456789012345678901234567890",
    b'{"a":1,"a":2}',
    b"{}",
    b"[]",
    b'""',
    b"0",
    b"null",
    b"true",
    b'{\n\t"a" : [ 1 , 2 ]\r\n}',
    '"\N{GRINNING FACE} é \u2028"'.encode(),
    rb'"\ud83d\ude00"',
    rb'"a\u0000b"',
    rb'"\ud800"',
    rb'"\udc00 \ud83d"',
    b"[" * 400 + b"]" * 400,
]
RAW_PAYLOADS = [
    ("application/json", b'{"x":NaN}'),
    ("application/json", b'{"tenant":"other"'),
    ("application/json", b"\xff\x00"),
    ("application/json; charset=utf-8", b"{}"),
    ("application/cloudevents+json", b'{"specversion":"1.0"}'),
    ("text/plain; charset=iso-8859-1", "é".encode("latin-1")),
    ("application/octet-stream", bytes(range(256))),
    ("application/x-www-form-urlencoded", b"a=1&b=%20"),
    ("text/plain", b""),
    ("application/json", b""),
    ("", b"\x1f\x8b\x08\x00"),
]
JSON = {"content-type": "application/json"}
RAW = {"forbear-tenant": "acme", "forbear-type": "order.paid"}


@pytest.fixture
def role() -> str:
    """Nothing here takes more rights than the function's own."""
    return "forbear_ingest"


@pytest.fixture
def woken(handlers: pytest.MonkeyPatch) -> list[object]:
    """Grows by one whenever ingest invokes a claimer."""
    calls: list[object] = []
    handlers.setattr("forbear.waking.invoke_claimer", remembering(calls))
    return calls


pytestmark = pytest.mark.usefixtures("woken")


def post(body: bytes | dict[str, Any], headers: dict[str, str] | None = None, **rest: Any) -> tuple[int, Any]:
    return call("/v1/events", body, headers, **rest)


def post_batch(body: bytes | dict[str, Any], headers: dict[str, str] | None = None) -> tuple[int, Any]:
    return call("/v1/events/batch", body, headers)


def call(
    path: str, body: bytes | dict[str, Any], headers: dict[str, str] | None = None, **rest: Any
) -> tuple[int, Any]:
    document = body if isinstance(body, bytes) else json.dumps(body).encode()
    result = ingest.handler(http_event("POST", path, headers=JSON | (headers or {}), body=document, **rest), None)
    expected = "application/json" if result["statusCode"] < 300 else "application/problem+json"
    assert result["headers"]["content-type"] == expected
    return result["statusCode"], body_of(result)


def envelope(payload: bytes = b"{}", *, tenant: str = "acme", event_type: str = "order.paid", rest: str = "") -> bytes:
    return b'{"tenant":"%s","type":"%s","payload":%s%s}' % (
        *(tenant.encode(), event_type.encode(), payload, rest.encode()),
    )


def stored(connection: Connection, event_id: str) -> tuple[Any, ...]:
    row = connection.execute(
        "SELECT tenant, type, content_type, payload, expires_at FROM forbear.events WHERE id = %s",
        (decode(Prefix.EVENT, event_id),),
    ).fetchone()
    assert row is not None
    return tuple(row)


def is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def events(connection: Connection) -> int:
    return int(one(connection, "SELECT count(*) FROM forbear.events"))


def test_an_accepted_event_is_in_the_database_with_a_delivery_for_each_endpoint(connection: Connection) -> None:
    endpoints = {make_endpoint(connection), make_endpoint(connection)}
    status, answer = post({"tenant": "acme", "type": "order.paid", "payload": {"a": 1}})
    assert (status, answer["deliveries"], answer["duplicate"]) == (202, 2, False)
    assert EventAccepted.model_validate(answer).model_dump() == answer
    queued = connection.execute("SELECT event_id, endpoint_id, payload_bytes FROM forbear.queue").fetchall()
    assert {row[1] for row in queued} == endpoints
    assert {(row[0], row[2]) for row in queued} == {(decode(Prefix.EVENT, answer["id"]), 8)}


def test_an_event_that_nobody_wants_is_kept_and_wakes_nobody(connection: Connection, woken: list[object]) -> None:
    make_endpoint(connection, tenant="other")
    make_endpoint(connection, event_types=("order.refunded", "orders.*"))
    status, answer = post(envelope())
    assert (status, answer["deliveries"]) == (202, 0)
    assert events(connection) == 1
    assert one(connection, "SELECT count(*) FROM forbear.wakes") == 0
    make_endpoint(connection)
    assert woken == []
    post(envelope())
    assert len(woken) == 1, "the unwanted event must not have silenced this call"


def test_an_event_goes_to_the_endpoints_whose_pattern_matches(connection: Connection) -> None:
    wanted = {make_endpoint(connection, event_types=(pattern,)) for pattern in ("*", "a.b.c", "a.b.*", "a.*")}
    for pattern in ("a.b", "a.b.c.*", "a.b.c.d", "A.b.c", "a.bb.*", "b.*"):
        make_endpoint(connection, event_types=(pattern,))
    assert post(envelope(event_type="a.b.c"))[1]["deliveries"] == 4
    assert {row[0] for row in connection.execute("SELECT endpoint_id FROM forbear.queue").fetchall()} == wanted


def test_an_endpoint_with_several_matching_patterns_gets_an_event_once(connection: Connection) -> None:
    make_endpoint(connection, event_types=("*", "order.*", "order.paid"))
    assert post(envelope())[1]["deliveries"] == 1


def test_no_event_reaches_another_tenant(connection: Connection) -> None:
    make_endpoint(connection, tenant="acme")
    other = make_endpoint(connection, tenant="other")
    assert post(envelope(tenant="other"))[1]["deliveries"] == 1
    assert one(connection, "SELECT endpoint_id FROM forbear.queue") == other


def test_a_payload_in_an_envelope_is_kept_byte_for_byte(connection: Connection) -> None:
    for payload in AWKWARD_PAYLOADS:
        status, answer = post(envelope(payload))
        assert status == 202, payload
        assert stored(connection, answer["id"]) == ("acme", "order.paid", "application/json", payload, None)


def test_a_raw_payload_is_kept_byte_for_byte_with_its_content_type(connection: Connection) -> None:
    for content_type, body in RAW_PAYLOADS:
        for as_base64 in (True, None):
            if as_base64 is None and not is_text(body):
                continue  # API Gateway does not pass on such a body as text
            status, answer = post(body, RAW | {"content-type": content_type}, as_base64=as_base64)
            assert status == 202, body
            kept_type = content_type or "application/octet-stream"
            assert stored(connection, answer["id"]) == ("acme", "order.paid", kept_type, body, None)


def test_header_names_come_in_any_case(connection: Connection) -> None:
    upper = {"Forbear-Tenant": "acme", "FORBEAR-TYPE": "a.b", "Idempotency-Key": "k"}
    first = post(b"x", upper)
    assert first[0] == 202
    assert post(b"x", upper)[1] == first[1] | {"duplicate": True}


def test_an_envelope_needs_no_content_type_and_may_come_as_base64(connection: Connection) -> None:
    event = http_event("POST", "/v1/events", body=envelope(b'"\xc3\xa9"'), as_base64=True)
    assert "content-type" not in event["headers"]
    answer = body_of(ingest.handler(event, None))
    assert stored(connection, answer["id"])[3] == b'"\xc3\xa9"'


def test_an_event_may_expire_at_a_time_even_in_the_past(connection: Connection) -> None:
    make_endpoint(connection)
    expiry = ',"expires_at":"2026-01-01T01:00:00+01:00"'
    status, answer = post(envelope(rest=expiry))
    assert (status, answer["deliveries"]) == (202, 1)
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    assert stored(connection, answer["id"])[4] == moment
    assert one(connection, "SELECT expires_at FROM forbear.queue") == moment
    raw = post(b"", RAW | {"forbear-expires-at": "2026-01-01T00:00:00Z"})[1]
    assert stored(connection, raw["id"])[4] == moment


@pytest.mark.parametrize("way", ["header", "member", "raw"])
def test_a_repeat_is_answered_with_the_first_events_id_and_stored_once(connection: Connection, way: str) -> None:
    make_endpoint(connection)

    def send() -> tuple[int, Any]:
        if way == "header":
            return post(envelope(), {"idempotency-key": "k-1"})
        return post(envelope(rest=',"id":"k-1"')) if way == "member" else post(b"{}", RAW | {"idempotency-key": "k-1"})

    first, second = send(), send()
    assert (first[0], first[1]["deliveries"], first[1]["duplicate"]) == (202, 1, False)
    assert second == (202, first[1] | {"duplicate": True})
    assert events(connection) == 1
    assert one(connection, "SELECT count(*) FROM forbear.queue") == 1
    assert one(connection, "SELECT count(*) FROM forbear.wakes") == 1


def test_header_member_and_raw_keys_are_one_and_the_same(connection: Connection) -> None:
    first = post(envelope(), {"idempotency-key": "k"})[1]
    assert post(envelope(rest=',"id":"k"'))[1] == first | {"duplicate": True}
    assert post(envelope(rest=',"id":"k"'), {"idempotency-key": "k"})[1] == first | {"duplicate": True}
    assert post(b"{}", RAW | {"idempotency-key": "k"})[1] == first | {"duplicate": True}


def test_a_key_used_for_another_event_is_a_conflict_that_names_the_first(connection: Connection) -> None:
    first = post(envelope(), {"idempotency-key": "k"})[1]
    for other in (
        envelope(b"{ }"),
        envelope(event_type="order.paid2"),
        envelope(rest=',"expires_at":"2030-01-01T00:00:00Z"'),
    ):
        status, problem = post(other, {"idempotency-key": "k"})
        assert (status, problem["event_id"]) == (409, first["id"])
    assert events(connection) == 1


def test_another_content_type_is_another_event() -> None:
    assert post(b"{}", RAW | {"idempotency-key": "k", "content-type": "text/plain"})[0] == 202
    assert post(b"{}", RAW | {"idempotency-key": "k", "content-type": "text/html"})[0] == 409


def test_the_same_instant_in_another_time_zone_is_the_same_event() -> None:
    assert post(envelope(rest=',"id":"k","expires_at":"2030-01-01T00:00:00Z"'))[0] == 202
    assert post(envelope(rest=',"id":"k","expires_at":"2030-01-01T01:00:00.000+01:00"'))[1]["duplicate"]


def test_keys_are_the_tenants_own() -> None:
    ids = {post(envelope(tenant=tenant, rest=',"id":"k"'))[1]["id"] for tenant in ("acme", "other")}
    assert len(ids) == 2


def test_a_key_is_kept_for_24_hours(connection: Connection) -> None:
    first = post(envelope(), {"idempotency-key": "k"})[1]
    move_clock(connection, hours=23)
    assert post(envelope(), {"idempotency-key": "k"})[1] == first | {"duplicate": True}
    move_clock(connection, minutes=61)
    later = post(envelope(b"1"), {"idempotency-key": "k"})
    assert later[0] == 202
    assert later[1]["duplicate"] is False
    assert later[1]["id"] != first["id"]
    assert post(envelope(b"1"), {"idempotency-key": "k"})[1] == later[1] | {"duplicate": True}


def test_a_repeat_counts_the_first_events_deliveries_wherever_they_are(connection: Connection) -> None:
    make_endpoint(connection)
    make_endpoint(connection)
    first = post(envelope(), {"idempotency-key": "k"})[1]
    delivered = "SELECT forbear.finish(ARRAY[id], '{delivered}', '{NULL}', forbear.now()) FROM forbear.queue LIMIT 1"
    assert one(connection, delivered) == 1
    make_endpoint(connection)
    assert post(envelope(), {"idempotency-key": "k"})[1] == first | {"duplicate": True, "deliveries": 2}


def test_a_claimer_is_called_once_while_it_is_on_its_way(connection: Connection, woken: list[object]) -> None:
    make_endpoint(connection)
    for _ in range(3):
        post(envelope())
    assert len(woken) == 1
    move_clock(connection, seconds=6)
    post(envelope())
    assert len(woken) == 2, "the one that was called never came"


def test_no_claimer_is_called_while_one_is_awake(connection: Connection, woken: list[object]) -> None:
    make_endpoint(connection)
    connection.execute("INSERT INTO forbear.claimers VALUES (forbear.new_id(), forbear.now() + interval '1 minute')")
    post(envelope())
    assert woken == []


def test_partitions_that_are_missing_are_made_on_the_way(connection: Connection, woken: list[object]) -> None:
    make_endpoint(connection)
    for _ in range(2):
        move_clock(connection, days=10)
        status, answer = post(envelope())
        assert (status, answer["deliveries"], answer["duplicate"]) == (202, 1, False)
        assert stored(connection, answer["id"])[3] == b"{}"
    assert len(woken) == 2


def test_what_is_refused_is_a_problem_document_and_stores_nothing(connection: Connection) -> None:
    status, problem = post(b'{"tenant":"a/b","payload":1}')
    assert (status, problem["status"], problem["title"]) == (422, 422, "Unprocessable Content")
    assert {error["field"] for error in problem["errors"]} == {"tenant", "type"}
    assert post(b"{")[0] == 400
    assert post_batch({"events": []})[0] == 422
    assert events(connection) == 0


def test_a_payload_of_one_mebibyte_is_accepted_and_no_byte_more(connection: Connection) -> None:
    largest = b'"' + b"x" * ((1 << 20) - 2) + b'"'
    status, answer = post(envelope(largest))
    assert status == 202
    assert stored(connection, answer["id"])[3] == largest
    assert post(largest, RAW)[0] == 202
    for refused in (
        post(envelope(b" ".join((b"[", largest[2:], b"]")).replace(b"[ ", b'["'))),
        post(largest + b" ", RAW),
    ):
        assert refused[0] == 413
        assert "1048576" in refused[1]["detail"]
    assert events(connection) == 2


def test_a_batch_is_answered_event_by_event_in_order(connection: Connection, woken: list[object]) -> None:
    make_endpoint(connection)
    good = {"tenant": "acme", "type": "a.b", "payload": {"n": 1}}
    status, answer = post_batch(
        {"events": [good, good | {"type": "a b"}, 7, good | {"payload": 2, "id": "k"}, good | {"tenant": "other"}]}
    )
    assert status == 207
    results = answer["results"]
    assert [result["status"] for result in results] == [202, 422, 400, 202, 202]
    assert [result.get("deliveries") for result in results] == [1, None, None, 1, 0]
    assert "type" in results[1]["detail"]
    parsed = BatchAccepted.model_validate(answer)
    assert [type(result).__name__ for result in parsed.results] == [
        "BatchItemAccepted" if result["status"] == 202 else "BatchItemRefused" for result in results
    ]
    kept = [stored(connection, result["id"])[3] for result in results if result["status"] == 202]
    assert kept == [b'{"n": 1}', b"2", b'{"n": 1}']
    assert events(connection) == 3
    assert one(connection, "SELECT count(*) FROM forbear.wakes") == 1
    assert len(woken) == 1


def test_a_batch_keeps_awkward_payloads_byte_for_byte(connection: Connection) -> None:
    payloads = [
        b'{"z":1,"a":2}',
        b"1e400",
        b'{"a":1,"a":2}',
        rb'"\u0000\ud800"',
        '"\N{GRINNING FACE}"'.encode(),
        b"null",
    ]
    _, answer = post_batch(b'{"events":[%s]}' % b" ,\n".join(map(envelope, payloads)))
    assert [stored(connection, result["id"])[3] for result in answer["results"]] == payloads


def test_a_duplicate_within_a_batch_is_stored_once(connection: Connection) -> None:
    make_endpoint(connection)
    events_in = [
        b'{"tenant":"acme","type":"a","id":"%s","payload":%s}' % pair
        for pair in [(b"x", b"1"), (b"y", b"1"), (b"x", b"1"), (b"x", b"2")]
    ]
    results = post_batch(b'{"events":[%s]}' % b",".join(events_in))[1]["results"]
    assert [(result["status"], result.get("duplicate")) for result in results] == [
        *((202, False), (202, False), (202, True), (409, None)),
    ]
    assert results[2]["id"] == results[3]["event_id"] == results[0]["id"]
    assert results[2]["deliveries"] == 1
    assert events(connection) == 2


def test_one_duplicate_among_ten_leaves_nine(connection: Connection) -> None:
    first = post(envelope(rest=',"id":"4"'))[1]
    batch = b'{"events":[%s]}' % b",".join(envelope(rest=f',"id":"{n}"') for n in range(10))
    results = post_batch(batch)[1]["results"]
    assert [result["duplicate"] for result in results] == [n == 4 for n in range(10)]
    assert results[4]["id"] == first["id"]
    assert events(connection) == 10


def test_a_batchs_key_makes_keys_for_events_without_one(connection: Connection) -> None:
    batch = {
        "events": [{"tenant": "acme", "type": "a", "payload": n} | ({"id": "own"} if n == 1 else {}) for n in range(3)]
    }
    first = post_batch(batch, {"idempotency-key": "b"})[1]["results"]
    second = post_batch(batch, {"idempotency-key": "b"})[1]["results"]
    assert second == [result | {"duplicate": True} for result in first]
    keys = connection.execute("SELECT key FROM forbear.idempotency_keys ORDER BY key").fetchall()
    assert [row[0] for row in keys] == ["b/0", "b/2", "own"]


def test_a_full_batch_is_stored_as_a_whole(connection: Connection) -> None:
    make_endpoint(connection)
    make_endpoint(connection)
    batch = b'{"events":[%s]}' % b",".join(envelope(b'"%s"' % (b"x" * 8_900)) for _ in range(500))
    assert 4_400_000 < len(batch) <= 4_500_000
    status, answer = post_batch(batch)
    assert status == 207
    assert {(result["status"], result["deliveries"]) for result in answer["results"]} == {(202, 2)}
    assert len({result["id"] for result in answer["results"]}) == 500
    assert one(connection, "SELECT count(DISTINCT (endpoint_id, due_at)) FROM forbear.queue") == 1000


def test_an_oversized_event_fails_alone_in_its_batch(connection: Connection) -> None:
    batch = b'{"events":[%s,%s]}' % (envelope(b'"%s"' % (b"x" * (1 << 20))), envelope())
    assert [result["status"] for result in post_batch(batch)[1]["results"]] == [413, 202]
    assert events(connection) == 1


@pytest.mark.parametrize(
    ("change", "status"),
    [({"body": "%%%", "isBase64Encoded": True}, 400), ({"body": "\ud800"}, 400), ({"routeKey": "GET /v1/events"}, 404)],
)
def test_events_that_api_gateway_would_never_send_are_no_server_errors(change: dict[str, Any], status: int) -> None:
    assert ingest.handler(http_event("POST", "/v1/events") | change, None)["statusCode"] == status


def test_the_models_take_what_the_function_takes() -> None:
    event = EventIn.model_validate_json(envelope(b"null", rest=',"id":"k","expires_at":"2030-01-01T00:00:00Z"'))
    assert event.payload is None
    assert BatchIn.model_validate({"events": [event]}).events == [event]
    schema = EventIn.model_json_schema()
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["tenant", "type", "payload"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
members = st.dictionaries(
    st.sampled_from(["tenant", "type", "payload", "id", "expires_at", "events"]) | st.text(max_size=5),
    st.sampled_from(["acme", "a.b", "2030-01-01T00:00:00Z", "\ud800", "\0"]) | json_values,
)
bodies = (
    st.binary(max_size=200)
    | members.map(lambda value: json.dumps(value).encode())
    | st.lists(members, max_size=3).map(lambda value: json.dumps({"events": value}).encode())
)
header_values = st.text(st.characters(max_codepoint=255), max_size=30) | st.sampled_from(["acme", "a.b", "k"])
header_names = ["forbear-tenant", "forbear-type", "forbear-expires-at", "idempotency-key", "content-type"]


def test_nothing_a_producer_sends_is_a_server_error(connection: Connection) -> None:
    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(
        st.sampled_from(["/v1/events", "/v1/events/batch"]),
        bodies,
        st.dictionaries(st.sampled_from(header_names), header_values, max_size=3),
    )
    def send(path: str, body: bytes, headers: dict[str, str]) -> None:
        result = ingest.handler(http_event("POST", path, headers=headers, body=body, as_base64=True), None)
        assert result["statusCode"] in {202, 207, 400, 409, 413, 415, 422}
        json.loads(result["body"])

    send()


def test_a_database_that_is_not_there_is_unavailable_and_nothing_was_stored(handlers: pytest.MonkeyPatch) -> None:
    handlers.setenv("FORBEAR_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/nothing")
    handlers.setattr("forbear.api.DEFAULT_S", 0.5)
    forget()
    for headers in ({}, {"idempotency-key": "k"}):
        result = ingest.handler(http_event("POST", "/v1/events", headers=headers, body=envelope()), None)
        assert result["statusCode"] == 503
        assert int(result["headers"]["retry-after"]) > 0
        assert "nothing was stored" in body_of(result)["detail"]


def test_importing_the_function_loads_nothing_that_it_does_not_need() -> None:
    script = "import sys, ingest; print(' '.join(sys.modules))"
    done = subprocess.run(  # noqa: S603 - our own interpreter and script
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, env={}
    )
    loaded = set(done.stdout.split())
    assert "forbear.intake" in loaded
    # Powertools looks botocore's version up; what costs is behind it.
    costly = {"boto3", "botocore.session", "urllib3", "httptools", "uvloop", "cryptography", "httpx"}
    assert not loaded & costly


def test_event_ids_are_times_by_forbears_clock(connection: Connection) -> None:
    move_clock(connection, days=3)
    event_id: UUID = decode(Prefix.EVENT, post(envelope())[1]["id"])
    stamped = datetime.fromtimestamp((event_id.int >> 80) / 1000, UTC)
    assert abs((stamped - one(connection, "SELECT forbear.now()")).total_seconds()) < 60
