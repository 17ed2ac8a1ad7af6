"""The command as a whole: what it lists, what it costs, and what its errors look like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from typer.testing import CliRunner, Result

import forbear as library
from infra.cli.main import app
from tests.infra.cli.conftest import Run, Serve
from tests.infra.cli.processes import finish, start

HEAVY = (
    "httpx",
    "botocore",
    "rich",
    "uvicorn",
    "starlette",
    "psycopg",
    "cryptography",
    "matplotlib",
    "numpy",
    "plotille",
)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FORBEAR_URL", raising=False)
    monkeypatch.delenv("FORBEAR_REPLAY_URL", raising=False)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_help_lists_every_command() -> None:
    result = run("--help")
    assert result.exit_code == 0
    for name in (
        "up", "endpoints", "tenants", "pause", "resume", "send", "deliveries", "events", "replay", "listen", "presets",
        "schedule", "simulate", "keys",
    ):  # fmt: skip
        assert f"  {name} " in result.stdout


@pytest.mark.parametrize(
    ("group", "commands"),
    [
        (
            "endpoints",
            "add list show update delete pause resume enable reset-breaker secret rotate-secret test backfill",
        ),
        ("deliveries", "list show cancel"),
        ("events", "list show"),
        ("replay", "start show list cancel"),
        ("tenants", "pause resume"),
        ("keys", "create list revoke"),
    ],
)
def test_help_of_a_group_lists_its_commands(group: str, commands: str) -> None:
    result = run(group, "--help")
    assert result.exit_code == 0
    for name in commands.split():
        assert f"\n  {name} " in result.stdout
        assert run(group, name, "--help").exit_code == 0


def test_help_is_quick_because_nothing_heavy_is_imported_for_it() -> None:
    script = (
        "import sys\nfrom infra.cli.main import app\ntry:\n    app(['deliveries', 'list', '--help'])\n"
        f"finally:\n    print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)"
    )
    code, _, imported = finish(start(script=script))
    assert (code, imported) == (0, "[]\n")


def test_the_version_is_the_library_s() -> None:
    assert run("--version").stdout == f"forbear {library.__version__}\n"


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("arguments", [["endpoints"], ["pause"], ["send", "1", "--tenant", "a", "--type", "b"]])
def test_without_a_stack_one_line_says_what_to_do(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: where is the API? Start a stack here with `forbear up`, or give --url or set FORBEAR_URL\n"
    )


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "arguments", [["--json", "endpoints"], ["endpoints", "--json"], ["endpoints", "list", "--json"]]
)
def test_errors_are_json_too_wherever_json_is_said(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert json.loads(result.stderr)["detail"].startswith("where is the API?")


def test_nobody_there_is_one_line_and_one() -> None:
    result = run("--url", "http://127.0.0.1:1", "endpoints")
    assert result.exit_code == 1
    assert result.stderr == "error: http://127.0.0.1:1 cannot be reached (Connection refused)\n"


def test_a_stack_that_was_up_here_is_asked_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".forbear").mkdir()
    (tmp_path / ".forbear" / "up.json").write_text('{"api_url": "http://127.0.0.1:1", "replay_url": null, "pid": 1}')
    result = run("endpoints")
    assert result.exit_code == 1
    assert result.stderr.endswith("does `forbear up` still run?\n")
    assert run("replay", "list").exit_code == 2


def test_an_address_may_be_said_behind_the_command_and_goes_before_the_environment(
    forbear: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORBEAR_URL", "http://127.0.0.1:1")
    assert forbear("endpoints", "list", "--url", "http://127.0.0.1:2").stderr.count("127.0.0.1:2") == 1
    assert forbear("--url", "http://127.0.0.1:3", "endpoints").stderr.count("127.0.0.1:3") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["endpoints", "add", "https://example.com"],
        ["endpoints", "shwo"],
        ["send", "--count", "0", "1", "--tenant", "a", "--type", "b"],
        ["deliveries", "--limit", "many"],
        ["--nonsense"],
    ],
)
def test_a_command_line_that_is_not_right_ends_in_two(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "Error: " in result.stderr


ANSWERS: dict[str, tuple[Response, str]] = {
    "gateway": (JSONResponse({"message": "Not Found"}, 404), "error: 127.0.0.1 answered 404 Not Found\n"),
    "iam": (
        JSONResponse({"message": "Forbidden"}, 403),
        "error: 127.0.0.1 answered 403 Forbidden: may these AWS credentials call it?\n",
    ),
    "page": (
        Response("<h1>hello</h1>", 200),
        "error: 127.0.0.1 answered 200 OK: is this the address of a Forbear stack?\n",
    ),
    "elsewhere": (
        RedirectResponse("https://example.com/"),
        "error: 127.0.0.1 answered 307 Temporary Redirect: is this the address of a Forbear stack?\n",
    ),
    "problem": (
        JSONResponse({"status": 503, "detail": "the database\x1b sleeps"}, 503),
        "error: the database\\x1b sleeps\n",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_what_others_answer_is_one_line(serve: Serve, name: str) -> None:
    response, line = ANSWERS[name]

    async def answer(_: Any) -> Response:
        return response

    url = serve(Starlette(routes=[Route("/v1/endpoints/ep_1", answer)]))
    result = run("--url", url, "endpoints", "show", "ep_1")
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", line)
