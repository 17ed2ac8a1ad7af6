import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.jsonspan import InvalidJson, Span, elements, spans
from tests.functions.json_texts import Tree, generators, names, parsed, space, trees, written


def cut(document: bytes) -> dict[str, bytes]:
    return {name: span.of(document) for name, span in spans(document).items()}


def test_members_are_cut_out_byte_for_byte() -> None:
    document = ' {"tenant" : "é", "payload":\t{ "z":1,  "a" : 2.0 } ,\n"x":[ ] } '.encode()
    assert cut(document) == {"tenant": '"é"'.encode(), "payload": b'{ "z":1,  "a" : 2.0 }', "x": b"[ ]"}
    assert spans(b'{"a":1}') == {"a": Span(5, 6)}
    assert spans(b"{}") == spans(b" {\r\n} ") == {}


@pytest.mark.parametrize(
    "payload",
    [
        "{}",
        "[]",
        '""',
        "0",
        "-0",
        "null",
        "true",
        "false",
        '{"z":1,"a":2}',
        '{"b":1,"b":2,"b":[{"c":1,"c":1}]}',
        "1.0",
        "1e400",
        "-1E+400",
        "1e-999999999999",
        "123456789012345678901234567890",
        "9" * 10_000,
        f"-{'9' * 10_000}.{'9' * 10_000}",
        r'"a\u0000b"',
        r'"\ud800"',
        r'"\udc00 \ud83d"',
        r'"\ud83d\ude00"',
        r'{"\ud800":{"\u0000":0}}',
        '"\U0001f600 é \u2028 \x7f \ufeff"',
        '{"é":"\U0001f600"}',
        r'"\"\\\/\b\f\n\r\t"',
        "[" * 500 + "]" * 500,
        '{"a":' * 500 + "0" + "}" * 500,
    ],
)
def test_every_json_value_passes_unchanged(payload: str) -> None:
    document = f'{{"é\U0001f600":"é", "payload": {payload} , "after" :"\U0001f600"}}'.encode()
    found = cut(document)
    assert found["payload"] == payload.encode()
    assert found["after"] == '"\U0001f600"'.encode()
    batch = f'[ "é",{payload} , "\U0001f600" ]'.encode()
    assert [span.of(batch) for span in elements(batch)] == ['"é"'.encode(), payload.encode(), '"\U0001f600"'.encode()]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        (b"NaN", "NaN is no JSON value"),
        (b"Infinity", "Infinity is no JSON value"),
        (b"-Infinity", "-Infinity is no JSON value"),
        (b'{"a":[NaN]}', "NaN is no JSON value"),
        (b"", "expecting value, at byte 5"),
        (b"01", "expected , or }, at byte 6"),
        (b"-01", "expected , or }"),
        (b"[01]", "expecting ',' delimiter"),
        (b"-", "expecting value"),
        (b"+1", "expecting value"),
        (b".5", "expecting value"),
        (b"1.", "expected , or }"),
        (b"1.e5", "expected , or }"),
        (b"1e", "expected , or }"),
        (b"1_000", "expected , or }"),
        (b"0x10", "expected , or }"),
        ("\uff11".encode(), "expecting value"),
        ("1\u0661".encode(), "expected , or }"),
        (b"True", "expecting value"),
        (b"nul", "expecting value"),
        (b"'a'", "expecting value"),
        (b'"a', "unterminated string"),
        (b'"a\nb"', "invalid control character"),
        (b'"\t"', "invalid control character"),
        (b'"\x1f"', "invalid control character"),
        (b'"a\x00b"', "a NUL byte, at byte 7"),
        (b"\x000", "a NUL byte, at byte 5"),
        (b'"\\x41"', "invalid \\\\escape"),
        (b'"\\u12"', "invalid \\\\uXXXX escape"),
        (b'"\\u 123"', "invalid \\\\uXXXX escape"),
        (b'"\xff"', "not UTF-8, at byte 6"),
        (b'"\xc3"', "not UTF-8, at byte 6"),
        (b'"\xed\xa0\x80"', "not UTF-8, at byte 6"),
        (b'"\xc0\x80"', "not UTF-8, at byte 6"),
        (b'"\xf4\x90\x80\x80"', "not UTF-8, at byte 6"),
        (b"[1,]", "illegal trailing comma"),
        (b"[1 2]", "expecting ',' delimiter"),
        (b'{"a"}', "expecting ':' delimiter"),
        (b"{a:1}", "expecting property name"),
        (b"[}", "expecting value"),
        (b"1 /* */", "expected , or }"),
        ("\u00a01".encode(), "expecting value"),
        (b"\x0c1", "expecting value"),
        ("\ufeff1".encode(), "expecting value"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deeply, at byte 5"),
        (b'{"":' * 100_000 + b"0" + b"}" * 100_000, "nested too deeply"),
        (b"[" * 1_000_000, "nested too deeply"),
    ],
)
def test_what_rfc_8259_does_not_know_is_refused_and_told(value: bytes, complaint: str) -> None:
    with pytest.raises(InvalidJson, match=complaint) as refused:
        spans(b'{"a":' + value + b"}")
    assert len(str(refused.value)) < 200
    with pytest.raises(InvalidJson):
        elements(b'["a",' + value + b"]")


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (b"", "expecting value, at byte 0"),
        (b"  ", "expecting value, at byte 2"),
        (b"[]", "expected a JSON object, at byte 0"),
        (b" 1", "expected a JSON object, at byte 1"),
        (b"null", "expected a JSON object"),
        (b"hello", "expecting value"),
        (b"NaN", "NaN"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ("{}".encode("utf-16"), "NUL byte|UTF-8"),
        (b"{", "expected a member's name in double quotes, at byte 1"),
        (b'{"a":1', "expected , or }, at byte 6"),
        (b'{"a":1,}', "expected a member's name in double quotes, at byte 7"),
        (b'{,"a":1}', "expected a member's name"),
        (b'{"a" 1}', "expected : behind a member's name"),
        (b'{"a":1 "b":2}', "expected , or }"),
        (b'{"a":1]', "expected , or }"),
        (b"{1:1}", "expected a member's name"),
        (b'{"a":1}{"b":2}', "something behind the end of the document, at byte 7"),
        (b'{"a":1} x', "something behind the end of the document, at byte 8"),
        (b"{}\0", "NUL byte, at byte 2"),
        ('{"é":1,}'.encode(), "at byte 8"),
        ('{"\U0001f600":1} é'.encode(), "at byte 11"),
    ],
)
def test_what_is_not_one_json_object_is_refused_and_told(document: bytes, complaint: str) -> None:
    with pytest.raises(InvalidJson, match=complaint):
        spans(document)


@pytest.mark.parametrize("document", [b'{"a":1,"b":2,"a":1}', b'{"a":1,"\\u0061":2}', b'{"":0,"":0}'])
def test_a_member_that_comes_twice_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidJson, match="is there twice"):
        spans(document)


@pytest.mark.parametrize("document", [b"{}", b"0", b"[", b"[1", b"[1,]", b"[,1]", b"[1]]", b"[1} ", b"[1][2]", b""])
def test_what_is_not_one_json_array_is_refused(document: bytes) -> None:
    with pytest.raises(InvalidJson, match="not valid JSON"):
        elements(document)


def test_a_bad_element_of_a_batch_fails_alone() -> None:
    document = b'{"events": [ {"payload": 1.0}, {"payload": 1, "payload": 2}, [], {"payload": {"z": 0}} ]}'
    events = spans(document)["events"].of(document)
    found: list[bytes | None] = []
    for span in elements(events):
        event = span.of(events)
        try:
            found.append(spans(event)["payload"].of(event))
        except InvalidJson:
            found.append(None)
    assert found == [b"1.0", None, None, b'{"z": 0}']


@given(st.dictionaries(names, trees, max_size=5), generators)
def test_slices_are_the_source_text_of_the_members(members: dict[str, Tree], rng: random.Random) -> None:
    texts = {json.loads(name): (name, written(tree, rng)) for name, tree in members.items()}
    inner = ",".join(f"{space(rng)}{a}{space(rng)}:{space(rng)}{b}{space(rng)}" for a, b in texts.values())
    document = f"{space(rng)}{{{inner}}}{space(rng)}".encode()
    found = cut(document)
    assert list(found.items()) == [(name, text.encode()) for name, (_, text) in texts.items()]
    assert {name: parsed(text) for name, text in found.items()} == parsed(document)


@given(st.lists(trees, max_size=6), generators)
def test_slices_are_the_source_text_of_the_elements(items: list[Tree], rng: random.Random) -> None:
    texts = [written(tree, rng) for tree in items]
    inner = ",".join(f"{space(rng)}{text}{space(rng)}" for text in texts)
    document = f"{space(rng)}[{inner}]{space(rng)}".encode()
    assert [span.of(document) for span in elements(document)] == [text.encode() for text in texts]


@settings(max_examples=300)
@given(trees, generators)
def test_a_damaged_document_is_refused_or_means_what_the_json_module_reads(tree: Tree, rng: random.Random) -> None:
    value = written(tree, rng)
    document = bytearray(f'{{"a":{value},"é":[{value}]}}'.encode())
    for _ in range(rng.randint(1, 2)):
        document[rng.randrange(len(document))] = rng.choice(
            b'"[]{},:0-.eE\\tn \xff\xc3\x00\n' + bytes(rng.randbytes(4))
        )
    damaged = bytes(document)
    try:
        found = cut(damaged)
    except InvalidJson:
        return
    assert {name: parsed(text) for name, text in found.items()} == parsed(damaged)
