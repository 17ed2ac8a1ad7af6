"""Where the command finds a stack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra.cli.errors import UsageError
from infra.cli.target import Address, Given


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".forbear").mkdir()
    return tmp_path


def up(folder: Path, document: object) -> None:
    (folder / ".forbear" / "up.json").write_text(document if isinstance(document, str) else json.dumps(document))


def test_what_is_given_goes_before_the_stack_that_runs_here(folder: Path) -> None:
    up(folder, {"api_url": "http://127.0.0.1:1", "replay_url": "http://127.0.0.1:2", "pid": 3})
    given = Given("https://api.example/stage/", "https://replay.example/")
    assert given.api() == Address("https://api.example/stage", from_up=False)
    assert given.replay() == Address("https://replay.example", from_up=False)


def test_without_an_address_it_is_the_stack_that_runs_here(folder: Path) -> None:
    up(folder, {"api_url": "http://127.0.0.1:1", "replay_url": "http://127.0.0.1:2/", "pid": 3})
    assert Given().api() == Address("http://127.0.0.1:1", from_up=True)
    assert Given().replay() == Address("http://127.0.0.1:2", from_up=True)


def test_the_two_addresses_are_never_of_two_stacks(folder: Path) -> None:
    up(folder, {"api_url": "http://127.0.0.1:1", "replay_url": "http://127.0.0.1:2", "pid": 3})
    with pytest.raises(UsageError, match="give --replay-url or set FORBEAR_REPLAY_URL"):
        Given("https://api.example").replay()


@pytest.mark.usefixtures("folder")
def test_with_neither_the_error_says_what_to_do() -> None:
    with pytest.raises(UsageError, match="Start a stack here with `forbear up`, or give --url or set FORBEAR_URL"):
        Given().api()


@pytest.mark.parametrize("document", ["{", "[]", {"pid": 3}, "\udcff"])
def test_a_broken_file_is_told_as_such(folder: Path, document: object) -> None:
    if document == "\udcff":
        (folder / ".forbear" / "up.json").write_bytes(b"\xff")
    else:
        up(folder, document)
    with pytest.raises(UsageError, match="cannot be read"):
        Given().api()


@pytest.mark.parametrize(
    "url",
    [
        "api.example",
        "ftp://api.example",
        "http://",
        "https://a b/?x=1",
        "https://u:p@api.example",
        "http://[::1",
        "http://h:0",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"--url: .* is not the http or https address of a stack"):
        Given(url).api()


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:1", True),
        ("http://127.9.9.9", True),
        ("http://localhost:1", True),
        ("http://[::1]:1", True),
        ("http://10.0.0.1", False),
        ("https://localhost.example", False),
        ("https://127.0.0.1.example", False),
    ],
)
def test_loopback_is_this_machine_and_nothing_else(url: str, here: bool) -> None:
    assert Given(url).api().is_loopback is here
