from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ingest
import manage
import replay
from forbear import __version__
from forbear.openapi import document, text
from forbear.operations import OPERATIONS, REPLAY
from forbear.routes import ROUTES
from tests.functions.events import body_of, http_event

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"


def everything(value: Any) -> Iterator[dict[str, Any]]:
    """Every object in a document."""
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from everything(inner)


def test_the_committed_description_is_the_generated_one() -> None:
    assert COMMITTED.read_text(encoding="utf-8") == text(), (
        "docs/openapi.json is not what the models say: run python -m forbear.openapi > docs/openapi.json"
    )


def test_every_route_is_described_and_answered_and_nothing_else_is() -> None:
    keys = {route.key for route in ROUTES}
    assert set(OPERATIONS) == keys
    answered = {"ingest": ingest.OPERATIONS, "manage": manage.OPERATIONS, "replay": replay.OPERATIONS}
    for function, operations in answered.items():
        by_url = set(REPLAY) if function == "replay" else set()
        assert set(operations) == {route.key for route in ROUTES if route.function == function} | by_url
    described = {
        f"{method.upper()} {path}"
        for path, operations in document()["paths"].items()
        for method in operations
        if path != "/"
    }
    assert described == keys


def test_every_reference_leads_somewhere_and_everything_is_referred_to() -> None:
    components = document()["components"].copy()
    named = {name for one in everything(document()) for each in one.get("security", ()) for name in each}
    assert named == set(components.pop("securitySchemes"))
    references = {one["$ref"] for one in everything(document()) if "$ref" in one}
    there = {f"#/components/{kind}/{name}" for kind in components for name in components[kind]}
    assert references == there


def test_operations_are_named_once_and_know_their_path() -> None:
    operations = [
        (path, operation)
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
        if method != "servers"
    ]
    names = [operation["operationId"] for _, operation in operations]
    assert len(names) == len(set(names))
    for path, operation in operations:
        parameters = operation.get("parameters", ())
        assert [one["name"] for one in parameters if one["in"] == "path"] == re.findall(r"{(\w+)}", path)
        assert len({(one["in"], one["name"]) for one in parameters}) == len(parameters)
        assert any(status.startswith("2") for status in operation["responses"])


def test_ids_times_and_secrets_look_the_same_everywhere() -> None:
    schemas = document()["components"]["schemas"]
    assert schemas["EndpointOut"]["properties"]["id"]["pattern"] == "^ep_[0-7][0-9a-hjkmnp-tv-z]{25}$"
    for schema in schemas.values():
        for name, field in schema.get("properties", {}).items():
            if name.endswith("_at") and "$ref" not in field:
                kinds = field.get("anyOf", [field])
                assert any(kind.get("format") == "date-time" for kind in kinds), (schema["title"], name)
    # What a patch or a part leaves out stays as it is.
    for name in ("EndpointPatch", "PolicyParts"):
        assert not any("default" in field for field in schemas[name]["properties"].values())


def test_a_request_s_policy_is_strict_and_its_unions_say_by_what_they_are_told_apart() -> None:
    schemas = document()["components"]["schemas"]
    assert set(schemas["PolicyParts"]["properties"]) == set(schemas["Policy"]["properties"])
    assert schemas["PolicyParts"]["additionalProperties"] is False
    assert schemas["EndpointIn"]["properties"]["policy"]["$ref"].endswith("/PolicyParts")
    assert schemas["PolicyParts"]["properties"]["schedule"]["discriminator"]["propertyName"] == "kind"
    for kind in schemas["PolicyParts"]["properties"]["schedule"]["discriminator"]["mapping"].values():
        schedule = schemas[kind.rpartition("/")[2]]
        assert schedule["additionalProperties"] is False
        assert schedule["properties"]["jitter"]["discriminator"]["propertyName"] == "kind"


def test_replay_is_described_at_its_own_server() -> None:
    assert document()["paths"]["/"]["servers"][0]["url"] != document()["servers"][0]["url"]


def test_the_description_and_health_are_served_without_a_database() -> None:
    # No environment: whoever needs the database fails.
    result = manage.handler(http_event("GET", "/v1/openapi.json"), None)
    assert result["statusCode"] == 200
    assert body_of(result) == json.loads(text())
    result = manage.handler(http_event("GET", "/v1/health"), None)
    assert body_of(result) == {"status": "ok", "version": __version__}


def test_an_unknown_route_is_404() -> None:
    assert manage.handler(http_event("GET", "/v1/nothing"), None)["statusCode"] == 404
