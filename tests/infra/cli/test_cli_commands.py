"""The commands against the real handlers: what they print for people and for programs, and what has changed after."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Connection
from tests.infra.cli.conftest import Run

type Ask = Callable[..., Any]

URL = "http://127.0.0.1:9/hook?a=%2f"


@pytest.fixture
def endpoint(ask: Ask) -> str:
    """The id of an endpoint of the tenant acme, for everything."""
    return str(ask("endpoints", "add", URL, "--tenant", "acme")["id"])


def send(ask: Ask, *types: str) -> None:
    for name in types:
        ask("send", "{}", "--tenant", "acme", "--type", name)


def test_an_endpoint_is_what_its_options_say(ask: Ask, tmp_path: Path) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    (tmp_path / "policy.json").write_text('{"timeout_s": 3.0}')
    made = ask(
        "endpoints", "add", URL, "--tenant", "acme", "--type", "invoice.*", "--type", "a", "--description", "for ünits",
        "--header", "X-One: 1", "--header", "X-Two:two: three", "--secret", secret,
        "--policy", f"{tmp_path}/policy.json",
    )  # fmt: skip
    assert made["url"] == URL
    assert made["event_types"] == ["invoice.*", "a"]
    assert made["description"] == "for ünits"
    assert made["headers"] == {"X-One": "1", "X-Two": "two: three"}
    assert made["policy"]["timeout_s"] == 3
    assert made["secret"] == secret
    changed = ask(
        "endpoints", "update", made["id"], "--endpoint-url", "http://127.0.0.1:8/", "--type", "b",
        "--header", "X-Three: 3", "--policy", '{"limits": {"concurrency": 2}}', "--description", "",
    )  # fmt: skip
    assert (changed["url"], changed["event_types"], changed["headers"]) == (
        "http://127.0.0.1:8/",
        ["b"],
        {"X-Three": "3"},
    )
    assert (changed["policy"]["limits"]["concurrency"], changed["policy"]["timeout_s"]) == (2, 3)
    assert changed["description"] == ""
    assert ask("endpoints", "show", made["id"])["circuit"]["state"] == "closed"


def test_a_policy_may_begin_as_a_preset(forbear: Run, ask: Ask) -> None:
    made = ask("endpoints", "add", URL, "--tenant", "acme", "--preset", "outpost")
    assert (made["preset"], made["policy"]["timeout_s"]) == ("outpost", 5)
    own = ask("endpoints", "update", made["id"], "--preset", "repost", "--policy", '{"timeout_s": 3, "breaker": null}')
    assert (own["preset"], own["policy"]["timeout_s"], own["policy"]["schedule"]["base_s"]) == (None, 3, 30)
    lines = [line.split(maxsplit=1) for line in forbear("endpoints", "show", made["id"]).stdout.splitlines()]
    assert ["breaker", "none"] in lines
    assert not [line for line in lines if line[0] == "preset"]
    assert ask("endpoints", "update", made["id"], "--preset", "default")["preset"] == "default"
    assert "preset       default\n" in forbear("endpoints", "show", made["id"]).stdout
    refused = forbear("endpoints", "update", made["id"], "--preset", "nope")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: preset: there is no preset 'nope': name one of default, ")


def test_how_many_may_go_at_once_is_shown(forbear: Run, ask: Ask) -> None:
    made = ask("endpoints", "add", URL, "--tenant", "acme", "--policy", '{"limits": {"concurrency": 7}}')
    assert ask("endpoints", "show", made["id"])["circuit"]["allows"] == 7
    assert "at most      7\n" in forbear("endpoints", "show", made["id"]).stdout


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--header", "no colon"], "error: --header: 'no colon' has no colon: write it as 'Name: value'\n"),
        (["--header", "X-A: 1", "--header", "X-A: 2"], "error: --header: X-A is there twice\n"),
        (["--policy", "{nope"], "error: --policy: not JSON: "),
        (["--policy", "nowhere.json"], "error: --policy: 'nowhere.json' is neither a JSON object nor a file: "),
    ],
)
def test_what_cannot_be_sent_ends_in_two_before_it_is(forbear: Run, options: list[str], error: str) -> None:
    result = forbear("endpoints", "add", URL, "--tenant", "acme", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(error)
    assert len(result.stderr.splitlines()) == 1


def test_what_the_api_refuses_is_one_line_with_every_field(forbear: Run) -> None:
    result = forbear("endpoints", "add", "http://10.0.0.1/", "--tenant", "no tenant", "--policy", '{"timeout_s": 99.0}')
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert "tenant" in line
    assert "policy.timeout_s" in line
    problem = json.loads(forbear("endpoints", "show", "ep_1", "--json").stderr)
    assert problem["status"] == 404


def test_endpoints_are_listed_for_people_and_for_programs(forbear: Run, ask: Ask, endpoint: str) -> None:
    other = ask("endpoints", "add", URL, "--tenant", "other", "--type", "a")["id"]
    assert [one["id"] for one in ask("endpoints")] == [other, endpoint]
    assert ask("endpoints", "list", "--tenant", "acme")["id"] == endpoint
    assert ask("endpoints", "--limit", "1")["id"] == other
    assert forbear("endpoints").stdout.splitlines() == [
        f"{other}\tother\t{URL}\ta\tclosed\t-",
        f"{endpoint}\tacme\t{URL}\t*\tclosed\t-",
    ]
    nobody = forbear("endpoints", "--tenant", "nobody")
    assert (nobody.exit_code, nobody.stdout, nobody.stderr) == (0, "", "there is no endpoint\n")


def test_pauses_are_shown_until_all_of_them_are_over(forbear: Run, endpoint: str) -> None:
    held = "it is still held: everything_paused, tenant_paused"
    for arguments, sentence in (
        (("endpoints", "pause", endpoint), f"paused {endpoint}"),
        (("tenants", "pause", "acme"), "paused acme"),
        (("pause",), "paused everything"),
        (("endpoints", "resume", endpoint), f"resumed {endpoint}; {held}"),
        (("endpoints", "enable", endpoint), f"enabled {endpoint}; {held}"),
        (("endpoints", "reset-breaker", endpoint), f"closed the breaker of {endpoint}; {held}"),
        (("tenants", "resume", "acme"), "resumed acme"),
        (("resume",), "resumed everything; what is paused for itself stays so"),
        (("endpoints", "resume", endpoint), f"resumed {endpoint}"),
    ):
        result = forbear(*arguments)
        assert (result.exit_code, result.stdout, result.stderr) == (0, f"{sentence}\n", "")


def test_what_was_done_is_a_document_for_programs(ask: Ask, endpoint: str) -> None:
    assert ask("endpoints", "pause", endpoint)["circuit"]["held"][0]["by"] == "paused"
    assert ask("tenants", "pause", "acme")["paused"] is True
    assert ask("resume")["paused"] is False
    assert ask("endpoints", "delete", endpoint) == {"id": endpoint, "deleted": True}


def test_a_secret_is_alone_on_standard_output(forbear: Run, endpoint: str) -> None:
    first = forbear("endpoints", "secret", endpoint)
    assert first.stdout.startswith("whsec_")
    assert first.stderr == ""
    second = forbear("endpoints", "rotate-secret", endpoint)
    assert second.stdout not in {"", first.stdout}
    assert f": {first.stdout}" in second.stderr
    own = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
    third = forbear("endpoints", "rotate-secret", endpoint, "--secret", own)
    assert third.stdout == f"{own}\n"
    assert "receivers verify with whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=" in third.stderr


def test_a_test_event_can_be_followed(forbear: Run, ask: Ask, endpoint: str) -> None:
    sentence = forbear("endpoints", "test", endpoint).stdout
    delivery = ask(*sentence.strip().rpartition("forbear ")[2].split())
    assert (delivery["type"], delivery["status"], delivery["endpoint_id"]) == ("forbear.test", "pending", endpoint)


def test_a_backfill_gives_an_endpoint_what_it_missed(forbear: Run, ask: Ask, connection: Connection) -> None:
    send(ask, "a.one", "b.two")
    endpoint = ask("endpoints", "add", URL, "--tenant", "acme")["id"]
    assert forbear("endpoints", "backfill", endpoint).stderr.startswith("error: say from when on: --since 2h")
    assert forbear("endpoints", "backfill", endpoint, "--since", "soon").exit_code == 2
    sentence = forbear("endpoints", "backfill", endpoint, "--since", "2h", "--type", "a.*").stdout
    follow = sentence.strip().rpartition("forbear ")[2].split()
    while ask(*follow)["state"] != "done":
        # It waits for older transactions, other tests' too; what goes on then is the claimer, which does not run here.
        connection.execute("SELECT forbear.replay_step(1000)")
    assert ask(*follow)["matched"] == 1
    assert ask("deliveries")["type"] == "a.one"


def test_deliveries_are_chosen_by_their_filters(forbear: Run, ask: Ask, endpoint: str) -> None:
    send(ask, "a.one", "b.two")
    assert [one["type"] for one in ask("deliveries")] == ["b.two", "a.one"]
    assert (
        ask("deliveries", "list", "--type", "a.one", "--endpoint", endpoint, "--status", "pending")["type"] == "a.one"
    )
    assert ask("deliveries", "--tenant", "other") == []
    assert ask("deliveries", "--since", "1h ago", "--until", "1m ago") == []
    assert ask("deliveries", "--limit", "1")["type"] == "b.two"
    assert forbear("deliveries", "--status", "odd").exit_code == 1
    first = forbear("deliveries").stdout.splitlines()[0].split("\t")
    assert (first[1:4], first[-1]) == (["pending", "b.two", "0"], endpoint)


def test_a_long_list_is_read_page_by_page_up_to_the_limit(ask: Ask, endpoint: str) -> None:
    assert endpoint
    ask("send", "{}", "--tenant", "acme", "--type", "a", "--count", "410")
    assert len({one["id"] for one in ask("deliveries", "--limit", "1000")}) == 410
    assert len(ask("deliveries", "--limit", "201")) == 201
    assert len(ask("events", "--limit", "401")) == 401


def test_events_show_their_payload_and_deliveries(forbear: Run, ask: Ask, endpoint: str) -> None:
    sent = ask("send", '{"a": 1.0}', "--tenant", "acme", "--type", "a.one")
    assert ask("events", "--type", "a.one", "--tenant", "acme")["id"] == sent["id"]
    shown = ask("events", "show", sent["id"])
    assert shown["payload"] == {"text": '{"a": 1.0}'}
    lines = forbear("events", "show", sent["id"]).stdout.splitlines()
    assert '    {"a": 1.0}' in lines
    assert lines[-1].split("\t")[-1] == endpoint


def test_deliveries_are_cancelled_by_id_or_by_filter_and_never_by_accident(
    forbear: Run, ask: Ask, endpoint: str
) -> None:
    send(ask, "a.one", "b.two", "b.two")
    assert forbear("deliveries", "cancel").exit_code == 2
    (one,) = [delivery["id"] for delivery in ask("deliveries") if delivery["type"] == "a.one"]
    assert forbear("deliveries", "cancel", one, "--endpoint", endpoint).exit_code == 2
    assert forbear("deliveries", "cancel", one).stdout == "cancelled 1 delivery\n"
    unknown = "dlv_01h455vb4pex5vsknk084sn02q"
    again = forbear("deliveries", "cancel", one, unknown)
    assert again.exit_code == 1
    assert again.stdout == f"cancelled 0 deliveries; 1 had ended already; there is no {unknown}\n"
    assert ask("deliveries", "cancel", "--endpoint", endpoint) == {"cancelled": 2, "unchanged": 0, "unknown": []}
    assert {delivery["status"] for delivery in ask("deliveries")} == {"cancelled"}


def test_a_replay_is_counted_started_followed_and_called_off(forbear: Run, ask: Ask, endpoint: str) -> None:
    send(ask, "a.one", "b.two")
    ask("deliveries", "cancel", "--endpoint", endpoint)
    chosen = ("--endpoint", endpoint, "--status", "cancelled")
    assert forbear("replay", *chosen, "--dry-run").stdout == "2 deliveries would be replayed\n"
    assert ask("replay", "start", *chosen, "--dry-run", "--type", "a.*")["matched"] == 1
    started = forbear("replay", *chosen).stdout
    assert ": 2 deliveries pending again; to follow it: forbear replay show rpl_" in started
    shown = ask(*started.strip().rpartition("forbear ")[2].split())
    assert (shown["matched"], shown["still_pending"]["count"]) == (2, 2)
    assert ask("replay", "list")["id"] == shown["id"]
    assert shown["id"] in forbear("replay", "show", shown["id"]).stdout
    assert forbear("replay", "cancel", shown["id"]).stdout == f"{shown['id']} is cancelled: 2 deliveries cancelled\n"


def test_a_replay_of_named_deliveries_says_what_stays_as_it_is(forbear: Run, ask: Ask, endpoint: str) -> None:
    assert endpoint
    send(ask, "a.one", "b.two")
    ended, pending = [one["id"] for one in ask("deliveries")]
    ask("deliveries", "cancel", ended)
    unknown = "dlv_01h455vb4pex5vsknk084sn02q"
    result = forbear("replay", "--delivery", ended, "--delivery", pending, "--delivery", unknown)
    assert "1 delivery pending again" in result.stdout
    assert f"; {pending} stays as it is (pending); there is no {unknown}" in result.stdout


def test_a_replay_may_be_set_for_later_and_paced(ask: Ask, connection: Connection, endpoint: str) -> None:
    accepted = ask("replay", "--endpoint", endpoint, "--at", "2h", "--rate", "0.5", "--since", "1d")
    assert (accepted["state"], accepted["rate"]) == ("waiting", 0.5)
    assert connection.execute(
        "SELECT step_at BETWEEN now() + interval '119 minutes' AND now() + interval '121 minutes' FROM forbear.replays"
    ).fetchone() == (True,)


def test_a_replay_of_everything_has_to_be_said(forbear: Run) -> None:
    assert forbear("replay").exit_code == 2
    assert forbear("replay", "--dry-run").exit_code == 2
    assert forbear("replay", "--all", "--dry-run").stdout == "0 deliveries would be replayed\n"
    refused = forbear("replay", "--type", "a.*", "--dry-run")
    assert (refused.exit_code, len(refused.stderr.splitlines())) == (1, 1)
