"""Requests that carry a payload without changing it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.envelope import NewEvent, read_batch, read_event
from forbear.jsonspan import InvalidJson
from infra.cli.errors import UsageError
from infra.cli.posting import Head, batch_document, batches, envelope, guessed_type, raw_headers

HEAD = Head("acme", "invoice.paid", "k-1")
AWKWARD = [
    b'{"z":1,"a":2}',
    b"1.0",
    b"1e400",
    b'{"a":1,"a":2}',
    b"123456789012345678901234567890",
    '"\N{PILE OF POO}"'.encode(),
    b'"\\ud83d\\ude00 \\u0000 \\ud800"',
    b'{ "spaced" :\t[ 1 , 2 ]\n}',
    b"null",
]

documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("payload", AWKWARD)
def test_ingest_reads_back_the_very_bytes(payload: bytes) -> None:
    assert read_event({}, envelope(HEAD, payload)) == NewEvent(
        "acme", "invoice.paid", "application/json", payload, None, "k-1"
    )


@given(documents, st.booleans(), st.sampled_from(["", " ", "\r\n"]))
def test_any_json_text_goes_through_unchanged_but_for_space_around_it(
    value: object, ascii_only: bool, space: str
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=1).encode()
    event = read_event({}, envelope(HEAD, space.encode() + text + space.encode()))
    assert event.payload == text


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"  ",
        b"hello",
        b"{",
        b"NaN",
        b"1 2",
        b"1}",
        b'1,"tenant":"other"',
        b'1,"x":2',
        b'1},{"tenant":"other"',
        b"\xff",
        b"\xef\xbb\xbf1",
    ],
)
def test_what_is_no_json_value_gets_no_envelope(payload: bytes) -> None:
    with pytest.raises(InvalidJson):
        envelope(HEAD, payload)


def test_an_error_names_the_place_in_the_payload_and_not_in_the_envelope() -> None:
    with pytest.raises(InvalidJson, match="at byte 8"):
        envelope(HEAD, b'  {"a": nope}')


@pytest.mark.parametrize(
    ("payload", "content_type"),
    [
        (b'{"a":1}', "application/json"),
        (b"1,2", "text/plain; charset=utf-8"),
        (b"", "text/plain; charset=utf-8"),
        ("grüß".encode(), "text/plain; charset=utf-8"),
        (b"\x00\xff", "application/octet-stream"),
    ],
)
def test_a_content_type_is_guessed_from_the_bytes(payload: bytes, content_type: str) -> None:
    assert guessed_type(payload) == content_type


def test_raw_headers_are_what_ingest_reads() -> None:
    headers = raw_headers(HEAD, "text/xml")
    assert read_event(headers, b"<a/>") == NewEvent("acme", "invoice.paid", "text/xml", b"<a/>", None, "k-1")


@pytest.mark.parametrize("key", ["ä", "a\nb", "a\x00"])
def test_what_cannot_stand_in_a_header_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match="idempotency-key: printable ASCII only"):
        raw_headers(Head("acme", "t", key), "text/xml")


def test_batches_keep_the_order_and_the_limits_of_the_api() -> None:
    small = [envelope(Head("acme", "t"), b"%d" % n) for n in range(1_200)]
    large = [envelope(Head("acme", "t"), b'"%b"' % (b"x" * 1_000_000)) for _ in range(9)]
    cut = list(batches([*small, *large]))
    assert [one for batch in cut for one in batch] == [*small, *large]
    for batch in cut:
        assert all(isinstance(event, NewEvent) for event in read_batch({}, batch_document(batch)))
    assert len(cut) == 5


def test_nothing_makes_no_batch_and_what_fits_none_goes_alone() -> None:
    assert list(batches([])) == []
    assert [len(batch) for batch in batches([b"x" * 5_000_000, b"x", b"x" * 5_000_000])] == [1, 1, 1]
