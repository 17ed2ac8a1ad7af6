"""Whatever a producer posts is stored byte for byte or refused: valid documents, bent and broken in every way."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any, NoReturn
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import ingest
from forbear.ids import Prefix, decode
from forbear.jsonspan import InvalidJson, spans
from forbear.sender.http11 import request_head
from tests.functions.builders import make_endpoint
from tests.functions.events import body_of, http_event
from tests.functions.json_texts import generators, space, trees, written
from tests.functions.manage.calling import Claimer
from tests.functions.sender.building import request_to

type Connection = psycopg.Connection[Any]
type Bend = Callable[[bytes, random.Random], bytes]

JSON = {"content-type": "application/json"}
RAW = {"forbear-tenant": "acme", "forbear-type": "a.b"}
REFUSED = {400, 413, 415, 422}


def place(document: bytes, rng: random.Random) -> int:
    return rng.randrange(len(document) + 1)


def cut(document: bytes, rng: random.Random) -> bytes:
    return document[: place(document, rng)]


def torn(document: bytes, rng: random.Random) -> bytes:
    start, end = sorted((place(document, rng), place(document, rng)))
    return document[:start] + document[end:]


def doubled(document: bytes, rng: random.Random) -> bytes:
    start, end = sorted((place(document, rng), place(document, rng)))
    return document[:end] + document[start:]


def another_member(document: bytes, rng: random.Random) -> bytes:
    name = rng.choice([b'"payload"', b'"tenant"', b'"\\u0070ayload"', b'"x"', b'""', b"payload"])
    return document.replace(b"{", b"{%s:1," % name, 1)


def spliced(document: bytes, rng: random.Random) -> bytes:
    """Something put in that JSON, JSON's relatives or other parsers know."""
    at = place(document, rng)
    piece = rng.choice(
        [
            *(b"NaN", b"Infinity", b"-Infinity", b"nan", b"undefined", b"1e400", b"-0", b"0x1", b"01", b"1_0", b"+1"),
            *(b"/* c */", b"// c\n", b"# c\n", b",", b",,", b":", b"'", b'"', b"\\", b"[", b"]", b"{", b"}", b"\\u"),
            *(b"\0", b"\x0b", b"\x0c", b"\x7f", b"\x1f", b"\xa0", "\u00a0".encode(), "\u2028".encode()),
            *("\ufeff".encode(), "\u200b".encode(), b"\\ud800", b"\\udfff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf8\x88"),
            *(b"\xff", b"\xfe\xff", b"\xf0\x9f\x98", b"9" * 10_000, b"[" * 2_000, b" " * 2_000),
        ]
    )
    return document[:at] + piece + document[at:]


def in_another_encoding(document: bytes, rng: random.Random) -> bytes:
    encoding = rng.choice(["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "utf-7"])
    return document.decode("utf-8", "replace").encode(encoding)


def flipped(document: bytes, rng: random.Random) -> bytes:
    bent = bytearray(document or b" ")
    bent[rng.randrange(len(bent))] ^= 1 << rng.randrange(8)
    return bytes(bent)


def spaced(document: bytes, rng: random.Random) -> bytes:
    return space(rng).encode() + document + rng.choice([b"", b" ", b"\n\n", b"\0", b"{}", b"x", b"\x0c"])


BENDS: list[Bend] = [cut, torn, doubled, another_member, spliced, in_another_encoding, flipped, spaced]
bends = st.lists(st.sampled_from(BENDS), max_size=3)


def refuse(name: str) -> NoReturn:
    raise ValueError(name)


def strictly(document: bytes) -> dict[str, Any]:
    """What the standard library makes of an object by RFC 8259 that has no name twice at its top.

    Raises:
        ValueError, RecursionError: it is none.
    """
    pairs: list[tuple[str, Any]] = []

    def keep(found: list[tuple[str, Any]]) -> dict[str, Any]:
        pairs[:] = found  # the outermost object is the last one
        return dict(found)

    text = document.decode("utf-8")
    value = json.loads(text, parse_int=str, parse_float=str, parse_constant=refuse, object_pairs_hook=keep)
    if not isinstance(value, dict) or len(value) != len(pairs):
        raise ValueError("no object, or a name twice")
    return value


@settings(max_examples=3 * (settings.default.max_examples if settings.default else 100))
@given(st.lists(trees, min_size=1, max_size=3), bends, generators)
@example([r'"\ud800"'], [], random.Random(0))
def test_what_a_strict_parser_takes_is_taken_and_nothing_else(
    values: list[Any], how: list[Bend], rng: random.Random
) -> None:
    members = ",".join(f'"{"abc"[n]}"{space(rng)}:{space(rng)}{written(tree, rng)}' for n, tree in enumerate(values))
    document = f"{{{members}}}".encode()
    for bend in how:
        document = bend(document, rng)
    expected: dict[str, Any] | None
    try:
        expected = strictly(document)
    except (ValueError, RecursionError):
        expected = None
    complaint, found = "", {}
    try:
        found = spans(document)
    except InvalidJson as error:
        complaint = str(error)
    if complaint:
        assert len(complaint) < 300
        # Nesting ends somewhere for both, and not at the same depth.
        assert expected is None or "nested too deeply" in complaint
        return
    assert expected is not None, document
    assert {name: strictly(b'{"v":%s}' % span.of(document))["v"] for name, span in found.items()} == expected


def take_in(body: bytes, headers: dict[str, str], path: str = "/v1/events") -> tuple[int, Any]:
    result = ingest.handler(http_event("POST", path, headers=headers, body=body, as_base64=True), None)
    answer = body_of(result)
    if result["statusCode"] not in {202, 207}:
        assert result["headers"]["content-type"] == "application/problem+json"
        assert len(answer["detail"]) < 600
    return result["statusCode"], answer


def kept(connection: Connection, event_id: str) -> bytes:
    row = connection.execute(
        "SELECT payload FROM forbear.events WHERE id = %s", (decode(Prefix.EVENT, event_id),)
    ).fetchone()
    assert row is not None
    return bytes(row[0])


@pytest.mark.usefixtures("handlers")
def test_a_bent_event_is_kept_byte_for_byte_or_refused(connection: Connection) -> None:
    @settings(suppress_health_check=list(HealthCheck))
    @given(trees, bends, generators, st.sampled_from(["single", "batch", "raw"]))
    def post(tree: Any, how: list[Bend], rng: random.Random, way: str) -> None:
        payload = written(tree, rng).encode()
        whole = payload if way == "raw" else b'{"tenant":"acme",  "type":"a.b","payload": %s }' % payload
        body = whole if way != "batch" else b'{"events":[%s,\n%s]}' % (whole, whole)
        for bend in how:
            body = bend(body, rng)
        if way == "raw":
            status, answer = take_in(body, RAW | {"content-type": "application/json"})
            assert status == 202
            assert kept(connection, answer["id"]) == body
            return
        status, answer = take_in(body, JSON, "/v1/events/batch" if way == "batch" else "/v1/events")
        if status in REFUSED:
            assert how, "a valid event was refused"
            return
        document = strictly(body)
        results = answer["results"] if way == "batch" else [answer]
        meant = document["events"] if way == "batch" else [document]
        for result, event in zip(results, meant, strict=True):
            if "id" not in result:
                assert result["status"] in {400, 409, 413, 422}
                continue
            stored = kept(connection, result["id"])
            assert stored in body
            assert strictly(b'{"v":%s}' % stored)["v"] == event["payload"]
            assert how or stored == payload

    post()


EXTREMES: dict[str, tuple[bytes, int]] = {
    "a number that no float holds": (b"1e400", 202),
    "a number of 10,000 digits": (b"9" * 10_000, 202),
    "a fraction of 10,000 digits": (b"-0." + b"1" * 10_000, 202),
    "a thousand members": (b"{%s}" % b",".join(b'"k%d":%d' % (n, n) for n in range(1000)), 202),
    "a thousand members of one name": (b"{%s}" % b",".join([b'"k":1'] * 1000), 202),
    "500 levels": (b"[" * 500 + b"]" * 500, 202),
    "100,000 levels": (b"[" * 100_000 + b"]" * 100_000, 400),
    "100,000 levels of objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400),
    "a hundred thousand brackets and no end": (b"[" * 100_000, 400),
    "lone surrogates, escaped": (rb'"\ud800\udfff\ud83d"', 202),
    "a lone surrogate, encoded": (b'"\xed\xa0\x80"', 400),
    "an overlong slash": (b'"\xc0\xaf"', 400),
    "an overlong NUL": (b'"\xe0\x80\x80"', 400),
    "beyond Unicode": (b'"\xf4\x90\x80\x80"', 400),
    "an escaped NUL": (rb'"\u0000"', 202),
    "a NUL": (b'"\0"', 400),
    "a mark inside": ('"\ufeff"'.encode(), 202),
    "a mark before": ("\ufeff1".encode(), 400),
    "not a number": (b"NaN", 400),
    "a comment": (b"1/**/", 400),
    "much space": (b" " * 500_000 + b"1" + b" " * 500_000, 202),
    "half a megabyte of escapes": (b'"%s"' % (rb"\u0041" * 80_000), 202),
}


@pytest.mark.usefixtures("handlers")
def test_extremes_are_delivered_byte_for_byte_or_refused(connection: Connection, database_url: str) -> None:
    make_endpoint(connection)
    expected: dict[UUID, bytes] = {}
    for name, (payload, status) in EXTREMES.items():
        envelope = b'{"tenant":"acme","type":"a.b","payload":%s}' % payload
        found, answer = take_in(envelope, JSON)
        assert found == status, (name, answer)
        in_batch, answers = take_in(b'{"events":[%s]}' % envelope, JSON, "/v1/events/batch")
        assert (in_batch, answers["results"][0]["status"] if in_batch == 207 else 400) == (
            (207, 202) if status == 202 else (400, 400)
        ), name
        if status == 202:
            expected[decode(Prefix.EVENT, answer["id"])] = payload.strip()
            expected[decode(Prefix.EVENT, answers["results"][0]["id"])] = payload.strip()
    claimer = Claimer(database_url)
    try:
        leased = [lease for _ in range(10) for lease in claimer.claim()]
    finally:
        claimer.close()
    assert {lease.event_id: lease.payload for lease in leased} == expected


# As API Gateway hands them on: lower-case names, several of one name joined by commas, bytes as latin-1.
header_values = st.one_of(
    st.text(st.characters(max_codepoint=255), max_size=40),
    st.sampled_from(
        [
            "application/json", "application/json; charset=utf-8", 'application/json;charset=utf-16; x="a;b"',
            "APPLICATION/JSON", "application/json,application/json", "application/json , text/plain", "text/plain",
            " application/json ", "application/vnd.a+json", "multipart/form-data; boundary=x", "", ";", "é", "x" * 8192,
            "a\tb", "a\r\nb: c", "a,b", "acme", "acme,acme", "2030-01-01T00:00:00Z", "2030-01-01T00:00:00Z,x", "k,k",
        ]
    ),
)  # fmt: skip
names = ["content-type", "idempotency-key", "forbear-tenant", "forbear-type", "forbear-expires-at", "content-encoding"]


@pytest.mark.usefixtures("handlers")
def test_whatever_headers_are_taken_can_be_sent_on(connection: Connection) -> None:
    @settings(suppress_health_check=list(HealthCheck))
    @given(st.dictionaries(st.sampled_from(names), header_values), st.booleans())
    def post(headers: dict[str, str], raw: bool) -> None:
        body = b'{"tenant":"acme","type":"a.b","payload":1}'
        status, answer = take_in(body, ((RAW | headers) if raw else headers))
        assert status in {202, 409, *REFUSED}
        if status == 202:
            (content_type,) = connection.execute(
                "SELECT content_type FROM forbear.events WHERE id = %s", (decode(Prefix.EVENT, answer["id"]),)
            ).fetchone() or ("",)
            head = request_head(request_to("http://a/", headers=((b"content-type", content_type.encode("latin-1")),)))
            assert b"content-type: %b\r\n" % content_type.encode() in head

    post()


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("body", ["plain", "e30=", "e30", "{}", "%%%", "\ud800", "é", "", None, "e30=\n", " e30= "])
@pytest.mark.parametrize("flag", [True, False, None])
def test_a_body_that_is_not_what_the_event_says_is_refused(body: str | None, flag: bool | None) -> None:
    """API Gateway does not lie about base64; whoever invokes the function by hand may."""
    event = http_event("POST", "/v1/events", headers=RAW) | {"body": body, "isBase64Encoded": flag}
    result = ingest.handler(event, None)
    try:
        sent = base64.b64decode(body or "", validate=True) if flag else (body or "").encode()
    except ValueError:
        sent = None
    assert result["statusCode"] == (400 if sent is None else 202)
