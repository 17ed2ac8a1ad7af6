"""`forbear bench`: what it is told wrongly, what it prints, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner, Result

from infra.bench import counted, groups
from infra.bench.groups import GROUPS
from infra.cli.main import app
from tests.infra.cli.processes import PATIENCE_S, finish, start


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("end-to-ende",), "'end-to-ende'"),
        (("--check", "--accept"), "--check and --accept"),
        (("--quick", "--record"), "--record"),
    ],
)
def test_a_command_line_that_is_not_right_starts_nothing(arguments: tuple[str, ...], says: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    [line] = result.stderr.splitlines()
    assert says in line


@pytest.mark.parametrize("repeats", ["0", "101", "some"])
def test_repeats_out_of_bounds_are_refused(repeats: str) -> None:
    assert run("--repeats", repeats).exit_code == 2


def test_the_help_names_every_group() -> None:
    text = "".join(run("--help").stdout.split())  # lines may end at hyphens
    assert all(name in text for name in GROUPS)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Two groups that take no time, and a file of its own for what is counted."""
    monkeypatch.setitem(cast("dict[str, str]", GROUPS), "latency", "tests.infra.bench.made_group")
    monkeypatch.setitem(cast("dict[str, str]", GROUPS), "memory", "tests.infra.bench.failing_group")
    monkeypatch.setattr(counted, "FILE", tmp_path / "counted.json")


@pytest.mark.timeout(240)
def test_a_run_prints_a_line_a_figure_and_a_table(made: None) -> None:
    result = run("latency", "--quick")
    assert result.exit_code == 0, result.output
    about, first, second, blank, *table = result.stdout.splitlines()
    described = json.loads(about)["run"]
    assert described["settings"]["fsync"] == described["settings"]["synchronous_commit"] == "on"
    assert described["repeats"] == 3
    assert described["machine"]["cores"] == os.process_cpu_count()
    assert [json.loads(line)["name"] for line in (first, second)] == ["made", "counted"]
    assert blank == ""
    assert any("made" in line and line.endswith("reached") for line in table)


@pytest.mark.timeout(240)
def test_a_group_that_fails_is_told_and_the_exit_code_is_1(made: None) -> None:
    result = run("memory", "latency", "--repeats", "2", "--json")
    assert result.exit_code == 1
    _, failed, figure, _ = map(json.loads, result.stdout.splitlines())
    assert failed == {"group": "memory", "failed": "ValueError: broken after 2 of forbear-"}
    assert figure["values"] == [1.0, 1.0]
    assert json.loads(result.stderr.splitlines()[-1])["detail"] == "could not be measured: memory"


@pytest.mark.timeout(240)
def test_what_is_counted_is_checked_once_it_is_accepted(made: None) -> None:
    refused = run("latency", "--quick", "--check")
    assert refused.exit_code == 1
    assert "latency: counted: 3 count is not in counted.json" in refused.stderr
    assert run("latency", "--quick", "--accept").exit_code == 0
    assert run("latency", "--quick", "--check").exit_code == 0


@pytest.mark.parametrize("name", GROUPS)
def test_every_group_is_there_and_says_what_its_figures_mean(name: str) -> None:
    group = groups.load(name)
    assert group.__doc__
    assert callable(group.measure)


def processes(folder: Path) -> list[str]:
    """The command lines of processes that have a folder in them, or in the environment that they were started with."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:  # it has ended
            continue
        if any(str(folder).encode() in one for one in words):
            found.append(words[0].replace(b"\0", b" ").decode(errors="replace"))
    return found


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_everything_that_was_started(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        monkeypatch.setenv("TMPDIR", name)
        command = start("bench", "end-to-end", "--quick")
        assert command.stdout is not None
        assert json.loads(command.stdout.readline())["run"]
        until(lambda: any("forkserver" in line for line in processes(folder)))  # producers are there, too
        command.send_signal(number)
        code, _, _ = finish(command)
        assert code != 0
        until(lambda: not processes(folder))
        assert list(folder.iterdir()) == []
