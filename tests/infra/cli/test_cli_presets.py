"""`forbear presets`: the named policies, without any stack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forbear.policy.model import Policy
from forbear.policy.presets import load, presets
from infra.cli.main import app

OWN = '[ours]\nsummary = "Ours: \\"quoted\\", ünlimited."\nsource = "us"\ntimeout_s = 7.5\nbreaker = "null"\n'


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No stack, and no file of presets but what a test names."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORBEAR_URL", "FORBEAR_REPLAY_URL", "FORBEAR_PRESETS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.toml"
    path.write_text(OWN, encoding="utf-8")
    return str(path)


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, ["presets", *arguments], env=environment)


def documents(*arguments: str) -> list[Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_the_list_says_how_often_and_how_long_each_one_tries() -> None:
    lines = {line.split("\t")[0]: line.split("\t")[1:] for line in run().stdout.splitlines()}
    assert list(lines) == list(presets())
    assert lines["repost"] == ["14", "1d2m", presets()["repost"].summary]
    assert lines["standard-webhooks"][:2] == ["10", "3d3h35m5s"]
    assert lines["hook0"][:2] == ["25", "7d11h33m13s"]
    assert lines["naive"][:2] == ["1000001", "347d5h20m"]


def test_programs_get_the_whole_presets() -> None:
    listed = documents()
    assert [one["name"] for one in listed] == list(presets())
    for one in listed:
        preset = presets()[one["name"]]
        assert Policy.model_validate(one["policy"]) == preset.policy
        assert one["from_default"] == list(preset.from_default)
        assert (one["summary"], one["source"]) == (preset.summary, preset.source)
    assert (listed[5]["attempts"], listed[5]["gives_up_s"]) == (14, 86_520)
    assert documents("repost") == [listed[5]]


@pytest.mark.parametrize("name", presets())
def test_what_is_shown_of_one_could_stand_in_a_file_of_ones_own(name: str) -> None:
    shown = run(name).stdout
    assert load(shown.replace(f"[{name}", "[again"))["again"].policy == presets()[name].policy


@pytest.mark.parametrize("name", presets())
def test_what_comes_from_the_default_is_marked_and_nothing_else(name: str) -> None:
    marked = set()
    part = ""
    for line in run(name).stdout.splitlines():
        if line.startswith("["):
            part = line.partition("]")[0].removeprefix(f"[{name}").removeprefix(".")
        if line.endswith("  # from default"):
            field = "" if line.startswith("[") else line.partition(" =")[0]
            marked.add(".".join(filter(None, [part, field])))
    assert marked == set(presets()[name].from_default)


def test_one_begins_with_what_it_comes_to() -> None:
    assert run("sns").stdout.splitlines()[:2] == ["# 4 attempts; gives up after 1m, before jitter", "[sns]"]


def test_a_file_s_presets_are_listed_behind_the_others(own: str) -> None:
    for result in (run("--presets", own), run(FORBEAR_PRESETS=own)):
        names = [line.split("\t")[0] for line in result.stdout.splitlines()]
        assert names == [*presets(), "ours"]
    (ours,) = documents("ours", "--presets", own)
    assert (ours["summary"], ours["policy"]["timeout_s"]) == ('Ours: "quoted", ünlimited.', 7.5)
    shown = run("ours", "--presets", own).stdout
    assert load(shown.replace("[ours", "[again"))["again"].policy.breaker is None


def test_a_mistake_is_one_line_and_two(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[bad]\n", encoding="utf-8")
    for arguments, says in (
        (["nope"], f"error: there is no preset 'nope': name one of {', '.join(presets())}\n"),
        (["--presets", "bad.toml"], "error: --presets: bad.toml: preset 'bad': summary: it is missing or no text"),
        (["--presets", "none.toml"], "error: --presets: none.toml cannot be read (No such file or directory)"),
    ):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(says)
        assert len(result.stderr.splitlines()) == 1
    assert json.loads(run("nope", "--json").stderr)["title"] == "UsageError"


def test_nothing_of_a_file_controls_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(OWN.replace("Ours", "\\u001b[31m"), encoding="utf-8")
    for arguments in ([], ["ours"]):
        assert "\x1b" not in run("--presets", "own.toml", *arguments).stdout
