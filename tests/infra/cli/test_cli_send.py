"""`forbear send`, against the real ingest handler: what is stored is what was given."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ingest
import manage
from tests.conftest import Connection
from tests.infra.cli.conftest import Run, Stack
from tests.infra.cli.processes import finish, start

FOR = ("--tenant", "acme", "--type", "invoice.paid")

type Ask = Callable[..., Any]


def stored(connection: Connection) -> list[tuple[bytes, str]]:
    """The payloads in the order of their events (but for those of one batch), with their content types."""
    rows = connection.execute("SELECT payload, content_type FROM forbear.events ORDER BY id").fetchall()
    return [(payload, content_type) for payload, content_type in rows]


JSON = [
    '{"z":1,"a":2}',
    "1.0",
    "1e400",
    '{"a":1,"a":2}',
    "9" * 30,
    '"\N{PILE OF POO}"',
    '"\\ud83d \\u0000"',
    '{ "spaced" : [ ] }',
]
TEXT, BYTES = "text/plain; charset=utf-8", "application/octet-stream"
NOT_JSON = {b"hello\n": TEXT, b"\x00\xff": BYTES, b"": TEXT, b'{"a": NaN}': TEXT, b'1, "tenant": "other"': TEXT}


def test_json_is_stored_byte_for_byte(ask: Ask, connection: Connection) -> None:
    for payload in JSON:
        answer = ask("send", payload, *FOR)
        assert answer == {"id": answer["id"], "deliveries": 0, "duplicate": False}
    assert stored(connection) == [(payload.encode(), "application/json") for payload in JSON]


def test_what_is_not_json_is_stored_byte_for_byte_and_said_to_be_raw(forbear: Run, connection: Connection) -> None:
    for payload in NOT_JSON:
        result = forbear("send", "-", *FOR, input=payload)
        assert result.exit_code == 0
        assert result.stdout.endswith("  deliveries: 0\n")
        assert result.stderr.startswith("sent raw, as it is, for it is not valid JSON: ")
    assert stored(connection) == list(NOT_JSON.items())


def test_json_is_sent_raw_where_that_is_asked_for(forbear: Run, connection: Connection) -> None:
    options = {"--raw": "application/json", "--content-type=text/x": "text/x"}
    for option in options:
        result = forbear("send", *FOR, option, input=b' {"a": 1.0}\n')
        assert (result.exit_code, result.stderr) == (0, "")
    assert stored(connection) == [(b' {"a": 1.0}\n', content_type) for content_type in options.values()]


def test_a_payload_may_be_in_a_file(ask: Ask, connection: Connection, tmp_path: Path) -> None:
    (tmp_path / "event.json").write_bytes(b'{"from": "a file"}')
    ask("send", f"@{tmp_path}/event.json", *FOR)
    assert stored(connection) == [(b'{"from": "a file"}', "application/json")]


def test_a_file_that_is_not_there_is_one_line_and_two(forbear: Run) -> None:
    result = forbear("send", "@nowhere.json", *FOR)
    assert (result.exit_code, result.stderr) == (2, "error: 'nowhere.json' cannot be read: No such file or directory\n")


def test_bytes_of_the_command_line_that_are_no_text_go_through(stack: Stack, connection: Connection) -> None:
    """In a process of its own, for only there the arguments are bytes."""
    code, _, said = finish(start("--url", stack.api_url, "send", b"\xff\xfe", *FOR))
    assert code == 0, said
    assert stored(connection) == [(b"\xff\xfe", "application/octet-stream")]


def test_a_key_makes_one_event_of_two(ask: Ask, forbear: Run) -> None:
    for payload in ('{"n": 1}', "plain"):
        key = ("--id", f"key of {payload}")
        first = ask("send", payload, *FOR, *key)
        assert ask("send", payload, *FOR, *key) == first | {"duplicate": True}
        assert "sent before under this key" in forbear("send", payload, *FOR, *key).stdout
        other = forbear("send", "other", *FOR, *key)
        assert other.exit_code == 1
        last_line = other.stderr.splitlines()[-1]
        assert last_line == f"error: this key was used for another event, {first['id']}: use a new one"


def test_an_event_may_be_sent_many_times(forbear: Run, connection: Connection) -> None:
    result = forbear("send", '{"n":1}', *FOR, "--count", "501")
    assert (result.exit_code, result.stdout) == (0, "501 events accepted, 0 deliveries\n")
    result = forbear("send", '{"n":1}', *FOR, "--count", "3", "--raw")
    assert (result.exit_code, result.stdout) == (0, "3 events accepted, 0 deliveries\n")
    assert stored(connection) == [(b'{"n":1}', "application/json")] * 504


def test_each_line_is_an_event(forbear: Run, connection: Connection) -> None:
    lines = b"".join(b'{"n": %d.0}\r\n' % n for n in range(1_001))
    result = forbear("send", "--lines", *FOR, input=lines)
    assert (result.exit_code, result.stdout) == (0, "1001 events accepted, 0 deliveries\n")
    assert sorted(payload for payload, _ in stored(connection)) == sorted(b'{"n": %d.0}' % n for n in range(1_001))


def test_lines_that_are_refused_are_named_and_the_others_sent(forbear: Run, connection: Connection) -> None:
    lines = b'{"n": 1}\n\nnope\n"' + b"x" * 1_048_576 + b'"\n{"n": 2}'
    result = forbear("send", "--lines", *FOR, input=lines)
    assert (result.exit_code, result.stdout) == (1, "2 events accepted, 0 deliveries; 2 refused\n")
    assert result.stderr.splitlines() == [
        "line 3: not valid JSON: expecting value, at byte 0",
        "line 4: a payload has at most 1048576 bytes (1 MiB), this one has 1048578",
    ]
    assert sorted(payload for payload, _ in stored(connection)) == [b'{"n": 1}', b'{"n": 2}']


def test_lines_in_json_give_a_line_for_each(forbear: Run) -> None:
    result = forbear("--json", "send", "--lines", *FOR, input=b"1\nx\n2\n")
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert result.exit_code == 1
    assert result.stderr == ""
    assert sorted((one["line"], one["status"]) for one in documents) == [(1, 202), (2, 400), (3, 202)]


def test_lines_go_with_nothing_that_is_meant_for_one_payload(forbear: Run) -> None:
    for option in ("--raw", "--id=k", "--count=2", "--content-type=text/x"):
        assert forbear("send", "--lines", *FOR, option, input="1\n").exit_code == 2


def test_lines_are_sent_as_they_come(stack: Stack, connection: Connection) -> None:
    """What a running program has written is not kept back until it ends."""
    with start("--url", stack.api_url, "--json", "send", "--lines", *FOR) as process:
        assert process.stdin
        assert process.stdout
        for n in range(3):
            process.stdin.write(b"%d\n" % n)
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["line"] == n + 1
        process.stdin.close()
        assert process.wait(30) == 0


def test_an_event_that_the_api_refuses_is_one_line_and_one(forbear: Run) -> None:
    result = forbear("send", "1", "--tenant", "acme", "--type", "not a type")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("error: type: ")
    assert len(result.stderr.splitlines()) == 1


def test_an_event_that_meets_a_waking_database_is_sent_again_and_stored_once(
    forbear: Run, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first answer is lost as 503 although the event was stored: the repeat has the same key."""
    answer, lost = ingest.handler, {"statusCode": 503, "headers": {"retry-after": "0"}, "body": ""}
    keys: list[str] = []

    def stumble(event: dict[str, Any], context: Any) -> dict[str, Any]:
        keys.append(event["headers"]["idempotency-key"])
        stored = answer(event, context)
        return stored if len(keys) % 2 == 0 else lost

    monkeypatch.setattr(ingest, "handler", stumble)
    assert forbear("send", '{"a": 1}', *FOR).exit_code == 0
    assert forbear("send", "raw", "--raw", *FOR).exit_code == 0
    assert forbear("send", "--lines", *FOR, input='{"a": 2}\n{"a": 3}\n').exit_code == 0
    assert forbear("send", '{"a": 4}', "--id", "four", *FOR).exit_code == 0
    payloads = sorted(payload for payload, _ in stored(connection))
    assert payloads == [b"raw", *(b'{"a": %d}' % number for number in (1, 2, 3, 4))]
    assert (keys[::2], keys[-1], len(set(keys))) == (keys[1::2], "four", 4)


def test_what_could_be_done_twice_is_not_called_again(forbear: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def refuse(event: dict[str, Any], _: Any) -> dict[str, Any]:
        calls.append(event["routeKey"])
        return {"statusCode": 503, "headers": {"retry-after": "0"}, "body": '{"status": 503}'}

    monkeypatch.setattr(manage, "handler", refuse)
    assert forbear("endpoints", "add", "https://example.com", "--tenant", "acme").exit_code == 1
    assert len(calls) == 1
    assert forbear("endpoints", "list").exit_code == 1
    assert len(calls) == 5
