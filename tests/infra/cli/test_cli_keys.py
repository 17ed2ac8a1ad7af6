"""API keys on the command line: made there, and used instead of signatures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send
from typer.testing import CliRunner, Result

from infra.cli.main import app
from infra.cli.target import Given
from tests.conftest import Connection
from tests.functions.builders import key_file
from tests.functions.keys import key_maker
from tests.infra.cli.conftest import Run, Serve

type Ask = Callable[..., Any]

TOKEN = "fbk_" + "A" * 76


@pytest.fixture(autouse=True)
def _data_key(handlers: pytest.MonkeyPatch, connection: Connection) -> Iterator[None]:
    with key_maker(connection):
        handlers.setenv("FORBEAR_KEY", str(key_file()))
        yield


@pytest.fixture
def shop(ask: Ask) -> str:
    """A key that may post events of acme, and no more."""
    return str(ask("keys", "create", "shop", "--scope", "ingest", "--tenant", "acme")["token"])


def test_a_key_is_printed_alone_when_it_is_made_and_never_again(forbear: Run) -> None:
    made = forbear("keys", "create", "shop", "--scope", "ingest", "--scope", "read", "--expires", "90d")
    (token,) = made.stdout.splitlines()
    assert token.startswith("fbk_")
    assert "not shown again" in made.stderr
    assert token not in made.stderr
    listed = forbear("keys")
    assert token not in listed.output
    key_id, name, scopes, tenant, *_ = listed.stdout.rstrip("\n").split("\t")
    assert (name, scopes, tenant) == ("shop", "ingest, read", "-")
    assert forbear("keys", "revoke", key_id).stdout == f"revoked {key_id}\n"
    assert forbear("keys", "revoke", "key_x").exit_code == 1


def test_with_a_key_one_may_what_it_may(forbear: Run, ask: Ask, shop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask("--api-key", shop, "send", "{}", "--tenant", "acme", "--type", "a")["deliveries"] == 0
    refused = forbear("send", "{}", "--tenant", "other", "--type", "a", "--api-key", shop)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: this API key is for the tenant acme: ")
    monkeypatch.setenv("FORBEAR_API_KEY", shop)
    assert forbear("endpoints").stderr.startswith("error: this API key lacks the scope read: ")
    assert forbear("keys").stderr.startswith("error: no API key may do this: ")
    key_id = json.loads(forbear("keys", "--json", "--api-key", shop).stderr)
    assert key_id["status"] == 403


def test_a_key_that_was_revoked_is_told_so(forbear: Run, ask: Ask, shop: str) -> None:
    ask("keys", "revoke", ask("keys")["id"])
    refused = forbear("--api-key", shop, "send", "{}", "--tenant", "acme", "--type", "a")
    assert refused.stderr.startswith("error: this API key is not valid (any more): ")
    assert shop not in refused.output


def test_replays_are_asked_for_at_the_api_with_a_key(forbear: Run, ask: Ask) -> None:
    token = ask("keys", "create", "oncall", "--scope", "replay", "--tenant", "acme")["token"]
    assert ask("--api-key", token, "replay", "--tenant", "acme", "--dry-run")["matched"] == 0
    replay = ask("--api-key", token, "replay", "--tenant", "acme")
    assert ask("--api-key", token, "replay", "show", replay["id"])["state"] == "done"
    assert ask("--api-key", token, "replay", "list")["id"] == replay["id"]
    assert forbear("--api-key", token, "replay", "cancel", replay["id"]).exit_code == 0
    assert forbear("--api-key", token, "replay", "--tenant", "other").exit_code == 1


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the credentials that came."""
    answer = JSONResponse({"items": [], "next": None, "came": Request(scope, receive).headers.get("authorization")})
    await answer(scope, receive, send)


def run(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(app, arguments, env=environment)


def test_a_key_goes_before_a_signature_and_the_command_line_before_the_environment(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    url, other = serve(echo), TOKEN.replace("A", "B")
    arguments = ("--url", url, "--json", "events", "show", "evt_1")
    assert json.loads(run(*arguments, FORBEAR_API_KEY=TOKEN).stdout)["came"] == f"Bearer {TOKEN}"
    assert json.loads(run(*arguments, "--api-key", other, FORBEAR_API_KEY=TOKEN).stdout)["came"] == f"Bearer {other}"
    assert json.loads(run("--api-key", other, *arguments, FORBEAR_API_KEY=TOKEN).stdout)["came"] == f"Bearer {other}"


def test_a_key_does_not_go_out_in_the_clear() -> None:
    result = run("--url", "http://192.0.2.1", "--api-key", TOKEN, "events")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "is not https" in result.stderr


@pytest.mark.parametrize("key", ["fbk_", "secret", f"{TOKEN}x", f"{TOKEN}\n", f" {TOKEN}", f"Bearer {TOKEN}", "fbk_é"])
def test_what_is_no_key_is_said_to_be_none_and_not_repeated(key: str) -> None:
    result = run("--url", "https://api.example", "--api-key", key, "events")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "error: --api-key (FORBEAR_API_KEY): that is no API key; it begins with fbk_ and has 80 characters\n"
    )


def test_a_key_is_not_in_help_or_in_what_is_given() -> None:
    assert TOKEN not in run("--help", FORBEAR_API_KEY=TOKEN).output
    assert TOKEN not in run("--nonsense", FORBEAR_API_KEY=TOKEN).output
    assert TOKEN not in repr(Given(api_key=TOKEN))
