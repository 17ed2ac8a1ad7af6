"""The command against the whole local stack: an endpoint is added, an event sent, received, looked at, replayed."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.cli.main import app
from infra.local.deployment import local_stack
from infra.local.stack import LocalStack, Timing
from tests.functions.builders import key_file
from tests.infra.cli.processes import listening

type InLoop = Callable[[Coroutine[Any, Any, Any]], Any]

POLICY = {"schedule": {"kind": "ladder", "gaps_s": [0.05], "jitter": {"kind": "none"}}}
PAYLOAD = '{ "n": 1.0,  "who": "Zoë" }'


@pytest.fixture
def running(database_url: str, in_loop: InLoop) -> Iterator[LocalStack]:
    stack = local_stack(database_url, key_file(), timing=Timing(grace_s=0.2))
    in_loop(stack.start())
    yield stack
    in_loop(stack.stop())


def test_a_delivery_fails_once_arrives_and_is_replayed(running: LocalStack) -> None:
    def forbear(*arguments: str) -> str:
        environment = {"FORBEAR_URL": running.api_url, "FORBEAR_REPLAY_URL": running.replay_url}
        result = CliRunner().invoke(app, arguments, env=environment)
        assert result.exit_code == 0, result.output
        return result.stdout

    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    with listening("--secret", secret, "--fail", "1", as_json=True) as listener:
        url = listener.document()["url"]
        owned = ("--tenant", "acme", "--secret", secret, "--policy", json.dumps(POLICY))
        endpoint = json.loads(forbear("endpoints", "add", url, *owned, "--json"))["id"]
        event = forbear("send", PAYLOAD, "--tenant", "acme", "--type", "order.paid").split()[0]

        failed, arrived = listener.document(), listener.document()
        assert [failed["answered"], arrived["answered"]] == [500, 200]
        for received in (failed, arrived):
            assert (received["id"], received["verified"], received["body"]) == (event, True, {"text": PAYLOAD})
        delivery = arrived["headers"]["idempotency-key"]

        shown = wait_for(lambda: forbear("deliveries", "show", delivery), "status      delivered")
        first, second = [line.split("  ") for line in shown.splitlines() if line.startswith("#")]
        assert (first[0], first[2].split()[0], first[3], first[4].split()[0]) == ("#1", "500", "retry", "next")
        assert (second[0], second[2].split()[0], second[3]) == ("#2", "200", "success")
        assert f"    {url} at 127.0.0.1:" in shown

        forbear("replay", "--endpoint", endpoint, "--status", "delivered")
        again = listener.document()
        assert (again["id"], again["body"], again["seen_before"]) == (event, {"text": PAYLOAD}, True)
        assert again["headers"]["forbear-replay"] == json.loads(forbear("replay", "list", "--json"))["id"]
        wait_for(lambda: forbear("endpoints", "show", endpoint), "  66.7% of 3 attempts since ")
        assert "  success  generation 2\n" in forbear("deliveries", "show", delivery)


def wait_for(look: Callable[[], str], what: str) -> str:
    """Look until it is there: settling comes a moment after the receiver's answer. The test's time limit ends it."""
    while what not in (shown := look()):
        pass
    return shown
