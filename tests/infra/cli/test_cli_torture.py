"""`forbear torture`: what it is told wrongly, what it shows, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from infra.cli.main import app
from infra.torture.scenarios import SCENARIOS


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["torture", *arguments])


def test_every_scenario_is_listed_with_its_promise() -> None:
    result = run("--list")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"{one.name}: {one.promise}" for one in SCENARIOS]
    documents = [json.loads(line) for line in run("--list", "--json").stdout.splitlines()]
    assert [one["name"] for one in documents] == [one.name for one in SCENARIOS]


def test_the_names_are_unique() -> None:
    assert len({one.name for one in SCENARIOS}) == len(SCENARIOS)


def test_an_unknown_scenario_lists_the_names() -> None:
    result = run("claimer-kiled")
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert "'claimer-kiled'" in line
    assert all(one.name in line for one in SCENARIOS)


@pytest.mark.parametrize("option", ["--summary", "--log"])
def test_a_file_that_cannot_be_written_is_told_before_anything_starts(option: str, tmp_path: Path) -> None:
    result = run(option, str(tmp_path / "no" / "where.md"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert option in result.stderr


@pytest.mark.parametrize("arguments", [("--rounds", "0"), ("--seed", "-1"), ("--rounds", "many")])
def test_numbers_out_of_bounds_are_refused(arguments: tuple[str, str]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.timeout(240)
def test_a_run_tells_of_each_round_and_keeps_a_summary(tmp_path: Path) -> None:
    summary, log = tmp_path / "summary.md", tmp_path / "log.txt"
    result = run("claimer-killed-before-settle", "--seed", "7", "--summary", str(summary), "--log", str(log))
    assert result.exit_code == 0, result.output
    first, *_, last = result.stdout.splitlines()
    assert first.startswith("claimer-killed-before-settle (seed 7, ")
    assert last.startswith("in all")
    assert last.endswith("kept")
    assert "| claimer-killed-before-settle | 1 |" in summary.read_text()
    assert "claimer-killed-before-settle, seed 7" in log.read_text()


@pytest.mark.timeout(240)
def test_a_round_that_breaks_a_promise_makes_the_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.torture.runner.PLAY_S", 0.0)
    result = run("claimer-killed-before-settle", "--json")
    assert result.exit_code == 1
    [document] = [json.loads(line) for line in result.stdout.splitlines()]
    assert document["kept"] is False
    assert document["void"] is True
