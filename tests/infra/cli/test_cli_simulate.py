"""`forbear simulate`: policies in virtual time, as a table, as JSON and as a picture. Its database ends with it."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.cli.main import app
from infra.simulate.scenarios import SCENARIOS
from tests.infra.cli.processes import PATIENCE_S, finish, start

SHORT = ("--rate", "5", "--duration", "20s", "--outage", "5s@5s:refuse", "--capacity", "20")


def refused(*arguments: str) -> str:
    """The one line that the command is refused with."""
    result = CliRunner().invoke(app, ["simulate", *arguments])
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    [line] = result.stderr.splitlines()
    return line


def servers(folder: Path) -> list[str]:
    """The processes that work in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder) in process.read_bytes().decode(errors="replace"):
                found.append(process.parent.name)
        except OSError:  # it has ended
            continue
    return found


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody can reach, as /tmp is: the database is in it, and not where root's would go else."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_the_help_names_every_scenario() -> None:
    result = CliRunner().invoke(app, ["simulate", "--help"])
    assert result.exit_code == 0
    assert all(name in result.stdout for name in SCENARIOS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "name a scenario (storm, metastable, outage or day), or describe one"),
        (("strom",), "there is no scenario 'strom'"),
        (("storm", "--policy", "brave"), "'brave' is neither a preset nor a file"),
        (("storm", "--outage", "10m"), "write LENGTH@START:MODE"),
        (("storm", "--plot", "storm.gif"), "ends neither in .svg nor in .png"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_starts(arguments: tuple[str, ...], says: str) -> None:
    assert says in refused(*arguments)


def test_policies_are_simulated_side_by_side_drawn_and_the_database_is_gone(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"kind": "ladder", "gaps_s": [1, 1]}))
    plot = tmp_path / "plot.svg"
    compared = ("--policy", "naive", "--policy", str(own))
    result = CliRunner().invoke(app, ["simulate", *SHORT, *compared, "--plot", str(plot), "--draw"])
    assert result.exit_code == 0, result.output
    custom, scenario, _, names, heads, *rest = result.stdout.splitlines()
    assert custom.startswith("custom: ")
    assert "connections refused for 5s from 5s on" in scenario
    assert names.split()[0] == "naive"
    assert heads.split()[:3] == ["from", "arrivals", "attempts"]
    assert rest[0].split()[0] == "0s"
    assert any(line.startswith("in all") for line in rest)
    assert any("offered load" in line for line in rest)
    assert "<svg" in plot.read_text()
    assert f"drawn into {plot}" in result.stderr
    assert not list(folder.iterdir())
    assert not servers(folder)


def test_json_is_a_document_a_policy_and_the_same_for_the_same_seed() -> None:
    def documents() -> list[Any]:
        arguments = [
            "simulate",
            *SHORT,
            "--policy",
            "naive",
            "--policy",
            "svix",
            "--seed",
            "5",
            "--json",
            "--step",
            "4s",
        ]
        result = CliRunner().invoke(app, arguments)
        assert (result.exit_code, result.stderr) == (0, "")
        return [json.loads(line) for line in result.stdout.splitlines()]

    naive, svix = documents()
    assert [naive["policy"], svix["policy"]] == ["naive", "svix"]
    assert (naive["scenario"], naive["seed"], naive["duration_s"], naive["step_s"]) == ("custom", 5, 20, 4)
    arrived = [[interval["arrivals"] for interval in run["intervals"]] for run in (naive, svix)]
    assert arrived[0] == arrived[1]
    assert [naive, svix] == documents()


def test_an_endpoint_that_is_disabled_is_told_of_with_its_run() -> None:
    own = {"disable": {"after_s": 60, "failures": 2, "spread_s": 0}, "breaker": None, "limits": {"concurrency": 5}}
    arguments = ("--rate", "1", "--duration", "3m", "--outage", "3m@0s:refuse", "--policy", "-")
    result = CliRunner().invoke(app, ["simulate", *arguments], input=json.dumps(own))
    assert (result.exit_code, result.stderr) == (0, "")
    assert "the endpoint was disabled: no success since" in result.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order_and_its_database_too(
    number: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder))
    process = start("simulate", "day", "--policy", "naive")
    deadline = time.monotonic() + PATIENCE_S
    while not (found := servers(folder)) and time.monotonic() < deadline:
        os.sched_yield()
    assert found
    process.send_signal(number)
    code, out, err = finish(process)
    assert (code, out) == (130, "")
    assert "Traceback" not in err
    assert not servers(folder)
    assert not list(folder.iterdir())
