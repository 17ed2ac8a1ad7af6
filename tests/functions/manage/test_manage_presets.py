"""Presets by the API: listed, chosen, changed part by part, recognised; and a stack's own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.api import Problem
from forbear.manage.presets import policy_of
from forbear.models.endpoints import EndpointPatch
from forbear.models.policies import PolicyParts
from forbear.policy.model import Policy
from forbear.policy.presets import presets
from tests.functions.conftest import forget
from tests.functions.manage.calling import ENDPOINT, URL, call, create, ok, rows

type Connection = psycopg.Connection[Any]

OWN = '[ours]\nsummary = "Ours."\nsource = "us"\ntimeout_s = 7\n'
FUNCTIONS = Path(__file__).parents[3] / "functions"


@pytest.fixture
def own(tmp_path: Path, handlers: pytest.MonkeyPatch) -> Path:
    """A stack with a file of one preset, `ours`."""
    path = tmp_path / "own.toml"
    path.write_text(OWN, encoding="utf-8")
    handlers.setenv("FORBEAR_PRESETS", str(path))
    forget()
    return path


def policy(document: Any) -> Policy:
    return Policy.model_validate(document["policy"])


def patch(made: Any, **body: Any) -> Any:
    return ok(call("PATCH", ENDPOINT, made["id"], body=body))


def test_every_preset_is_listed_with_what_its_source_leaves_open() -> None:
    items = ok(call("GET", "/v1/presets"))["items"]
    assert [item["name"] for item in items] == list(presets())
    for item in items:
        preset = presets()[item["name"]]
        assert policy(item) == preset.policy
        assert (item["summary"], item["source"]) == (preset.summary, preset.source)
        assert item["from_default"] == list(preset.from_default)


def test_the_list_takes_no_parameters() -> None:
    assert call("GET", "/v1/presets", query={"limit": "1"}).status == 422


@pytest.mark.parametrize("name", presets())
def test_an_endpoint_may_begin_as_any_preset_and_says_which(connection: Connection, name: str) -> None:
    made = create(preset=name)
    assert made["preset"] == name
    assert policy(made) == presets()[name].policy
    assert rows(connection, "SELECT concurrency, timeout_s FROM forbear.lanes") == [
        {"concurrency": policy(made).limits.concurrency, "timeout_s": policy(made).timeout_s}
    ]
    assert ok(call("GET", ENDPOINT, made["id"]))["preset"] == name
    assert [item["preset"] for item in ok(call("GET", "/v1/endpoints"))["items"]] == [name]


def test_without_one_or_with_null_it_is_the_default() -> None:
    assert create()["preset"] == "default"
    assert create(preset=None)["preset"] == "default"


def test_the_parts_given_replace_the_preset_s() -> None:
    made = create(preset="repost", policy={"timeout_s": 3, "budget": None})
    assert made["preset"] is None
    assert policy(made) == presets()["repost"].policy.model_copy(update={"timeout_s": 3.0, "budget": None})


def test_a_policy_that_equals_a_preset_is_called_by_its_name_however_it_came_about() -> None:
    made = create(policy=presets()["svix"].policy.model_dump(mode="json"))
    assert made["preset"] == "svix"
    assert patch(made, policy={"timeout_s": 14})["preset"] is None
    assert patch(made, policy={"timeout_s": 15})["preset"] == "svix"


def test_a_patch_with_a_preset_begins_from_it_and_not_from_what_is_stored() -> None:
    made = create(policy={"timeout_s": 3, "limits": {"concurrency": 7}})
    changed = patch(made, preset="outpost", policy={"limits": {"concurrency": 9}})
    expected = presets()["outpost"].policy
    assert policy(changed) == expected.model_copy(
        update={"limits": expected.limits.model_copy(update={"concurrency": 9})}
    )
    assert patch(made, preset="outpost")["preset"] == "outpost"
    assert patch(made, preset="outpost", policy=None)["preset"] == "outpost"


def test_null_is_the_default_preset_and_nothing_leaves_the_policy_alone() -> None:
    made = create(preset="square")
    assert patch(made, description="x")["preset"] == "square"
    assert patch(made, preset=None)["preset"] == "default"
    assert patch(made, preset="square")["preset"] == "square"
    assert patch(made, policy=None)["preset"] == "default"


def test_what_an_endpoint_shows_can_be_sent_back() -> None:
    for own_policy in ({"preset": "hook0"}, {"policy": {"timeout_s": 3, "breaker": None}}):
        made = create(**own_policy)
        assert patch(made, preset=made["preset"], policy=made["policy"])["policy"] == made["policy"]


def test_parts_are_judged_together_with_what_they_join() -> None:
    """Each alone may be what the default forbids, and both may be well by themselves and not together."""
    free = create(policy={"adaptive": None, "limits": {"concurrency": None}})
    assert patch(free, policy={"limits": {"concurrency": None, "rate_per_s": 5}})["policy"]["limits"]["rate_per_s"] == 5
    refused = call("PATCH", ENDPOINT, free["id"], body={"policy": {"adaptive": {}}})
    assert refused.status == 422
    assert refused.body["errors"] == [
        {
            "field": "policy",
            "message": "adaptive needs limits.concurrency to stay under: set it, or make adaptive null",
        }
    ]
    assert create(preset="naive", policy={"limits": {"concurrency": 5}, "adaptive": {}})["preset"] is None


def test_an_unknown_preset_is_refused_with_those_that_there_are() -> None:
    made = create()
    for answer in (
        call("POST", "/v1/endpoints", body={"tenant": "acme", "url": URL, "preset": "Repost"}),
        call("PATCH", ENDPOINT, made["id"], body={"preset": "Repost"}),
    ):
        assert answer.status == 422
        assert answer.detail == f"preset: there is no preset 'Repost': name one of {', '.join(presets())}"
        assert [error["field"] for error in answer.body["errors"]] == ["preset"]


@given(
    name=st.sampled_from([None, *presets()]),
    parts=st.dictionaries(
        st.sampled_from(sorted(Policy.model_fields)), st.sampled_from([preset.policy for preset in presets().values()])
    ),
    null=st.booleans(),
)
@settings(max_examples=100)
def test_a_policy_is_its_preset_with_the_parts_given(name: str | None, parts: dict[str, Policy], null: bool) -> None:
    stored = Policy(timeout_s=29)
    chosen = {part: getattr(from_, part) for part, from_ in parts.items()}
    body = {"policy": None if null else PolicyParts(**chosen)} | ({} if name is None else {"preset": name})
    patch_ = EndpointPatch.model_validate(body)
    base = presets()[name].policy if name else Policy() if null else stored
    expected = {**dict(base), **({} if null else chosen)}
    if expected["adaptive"] is not None and expected["limits"].concurrency is None:
        with pytest.raises(Problem, match=r"adaptive needs limits\.concurrency"):
            policy_of(patch_, stored, presets())
    else:
        assert policy_of(patch_, stored, presets()) == Policy(**expected)


@pytest.mark.usefixtures("own")
def test_a_stack_s_own_presets_are_offered_like_the_others() -> None:
    assert [item["name"] for item in ok(call("GET", "/v1/presets"))["items"]] == [*presets(), "ours"]
    made = create(preset="ours")
    assert (made["preset"], made["policy"]["timeout_s"]) == ("ours", 7)


def test_without_the_file_a_policy_is_nobody_s(own: Path, handlers: pytest.MonkeyPatch) -> None:
    made = create(preset="ours")
    handlers.delenv("FORBEAR_PRESETS")
    forget()
    assert ok(call("GET", ENDPOINT, made["id"]))["preset"] is None


@pytest.mark.parametrize(("text", "says"), [("[ours]", "preset 'ours': summary: "), (None, "cannot be read")])
def test_a_file_that_cannot_be_used_stops_the_function_at_its_start(
    tmp_path: Path, text: str | None, says: str
) -> None:
    path = tmp_path / "own.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", "import manage"],
        capture_output=True,
        text=True,
        check=False,
        env={"FORBEAR_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "FORBEAR_PRESETS": "own.toml",
             "PYTHONPATH": str(FUNCTIONS)},
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("forbear.policy.presets.InvalidPresets: own.toml")
    assert says in last
