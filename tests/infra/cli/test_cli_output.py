"""What is printed, and where."""

from __future__ import annotations

import io
import json
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.cli.errors import ApiError
from infra.cli.output import Columns, Output, content, counted, text, visible

ITEMS: list[dict[str, Any]] = [{"id": "ep_1", "circuit": {"state": "open"}, "n": 1.5}, {"id": "ep_2", "n": None}]
COLUMNS: Columns = {"id": "id", "circuit": "circuit.state", "doubled": lambda item: item["n"] and item["n"] * 2}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lists_are_tab_separated_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    Output().items(ITEMS, COLUMNS, "nothing")
    assert capsys.readouterr() == ("ep_1\topen\t3\nep_2\t-\t-\n", "")


def test_lists_are_tables_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "dumb")
    Output().items(ITEMS, COLUMNS, "nothing")
    lines = [line.split() for line in terminal.getvalue().splitlines() if line.strip()]
    assert lines[0] == ["id", "circuit", "doubled"]
    assert lines[-2:] == [["ep_1", "open", "3"], ["ep_2", "-", "-"]]


def test_tables_cut_what_is_too_wide_but_no_id_and_shorten_times(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("COLUMNS", "75")
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    times = {"at": f"{today}T01:02:03.004Z", "then": "2020-01-31T01:02:03.004Z"}
    item = {"id": "i" * 30, "endpoint": "e" * 30, **times}
    Output().items([item], {name: name for name in item}, "nothing")
    last = terminal.getvalue().rstrip().splitlines()[-1]
    assert last.split()[0] == "i" * 30
    assert "…" in last.split()[1]
    Output().items([times], {name: name for name in times}, "nothing")
    assert terminal.getvalue().split()[-2:] == ["01:02:03Z", "2020-01-31T01:02:03Z"]


def test_lists_are_a_line_of_json_an_item_if_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).items(iter(ITEMS), COLUMNS, "nothing")
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == ITEMS


@pytest.mark.parametrize("as_json", [True, False])
def test_an_empty_list_is_no_output_but_a_remark_for_people(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    Output(as_json).items([], COLUMNS, "there is nothing")
    assert capsys.readouterr() == ("", "" if as_json else "there is nothing\n")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    Output(as_json).items([], COLUMNS, "there is nothing")
    assert terminal.getvalue() == ""


def test_the_facts_that_an_item_lacks_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    Output().facts(ITEMS[1], COLUMNS)
    assert capsys.readouterr().out == "id       ep_2\n"


def test_an_error_is_one_line_with_every_field_at_fault(capsys: pytest.CaptureFixture[str]) -> None:
    errors = [{"field": "url", "message": "is bad"}, {"field": "types.0", "message": "too"}]
    error = ApiError(422, {"status": 422, "detail": "url: is bad", "errors": errors})
    Output().error(error)
    assert capsys.readouterr() == ("", "error: url: is bad; types.0: too\n")
    Output(as_json=True).error(error)
    assert json.loads(capsys.readouterr().err) == error.problem


@given(st.text())
def test_nothing_that_controls_a_terminal_is_printed(anything: str) -> None:
    assert visible(anything).isprintable()


def test_what_prints_is_left_as_it_is() -> None:
    assert visible("naïve \N{PILE OF POO} \\x1b") == "naïve \N{PILE OF POO} \\x1b"
    assert visible("\x1b[31m\r\n\x9b\u202e\ud800") == "\\x1b[31m\\r\\n\\x9b\\u202e\\ud800"


def test_text_keeps_its_lines_and_nothing_else_that_controls(capsys: pytest.CaptureFixture[str]) -> None:
    Output().block("a\r\nb\x1b]0;title\x07\n\nc")
    assert capsys.readouterr().out == "    a\n    b\\x1b]0;title\\x07\n    \n    c\n"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        ("", "-"),
        ([], "-"),
        ({}, "-"),
        (0, "0"),
        (False, "no"),
        (0.25, "0.25"),
        (["a", "b"], "a, b"),
        ({"a": "ü\n", "b": None, "c": {}}, "a=ü\\n b=- c=-"),
    ],
)
def test_values_are_written_for_people(value: Any, shown: str) -> None:
    assert text(value) == shown


def test_bytes_are_shown_as_text_or_base64_and_cut_where_wanted() -> None:
    assert content({"text": "abc\n"}) == "abc"
    assert content({"text": "abcdef"}, 3) == "abc…"
    assert content({"base64": "AP8="}) == "base64: AP8="


def test_numbers_agree_with_their_nouns() -> None:
    assert [counted(n, "event") for n in (0, 1, 2)] == ["0 events", "1 event", "2 events"]
    assert counted(2, "delivery", "deliveries") == "2 deliveries"
