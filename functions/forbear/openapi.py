"""The API's description: OpenAPI 3.1, from the table of operations and the models that the handlers validate with.

Owns the form. `python -m forbear.openapi` writes it out; the committed copy is `docs/openapi.json`.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from typing import Any, Final, Literal

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from forbear import __version__
from forbear.api import JSON, PROBLEM, TITLES
from forbear.models import fields
from forbear.models.events import TenantName
from forbear.models.readings import ProblemDocument
from forbear.operations import OPERATIONS, REPLAY, Described, Models
from forbear.routes import FUNCTION_URL, ROUTES, Held, KeyScope, Needs, Rule

type Mode = Literal["validation", "serialization"]
type Schemas = dict[tuple[type[BaseModel], Mode], dict[str, Any]]

_ABOUT: Final = (
    "Forbear delivers webhooks with restraint. Times are RFC 3339 in UTC. Ids are TypeIDs. Lists give the newest first "
    "and page by an opaque cursor. With `tenant` as a query parameter, what is another tenant's is not found. Errors "
    "are problem documents (RFC 9457)."
)
_REPLAY_SERVER: Final = {
    "url": "https://{function}.lambda-url.{region}.on.aws",
    "description": "The replay function's URL (IAM, SigV4).",
    "variables": {"function": {"default": "replay"}, "region": {"default": "us-east-1"}},
}
_IDS: Final = {
    "endpoints": "An endpoint's id (`ep_…`).",
    "deliveries": "A delivery's id (`dlv_…`).",
    "events": "An event's id (`evt_…`).",
    "keys": "An API key's id (`key_…`).",
}
_ID_TYPES: Final = {
    "endpoints": fields.EndpointId,
    "deliveries": fields.DeliveryId,
    "events": fields.EventId,
    "keys": fields.ApiKeyId,
}
# Every operation may end so, whatever it is; and so, if it asks who calls.
_ALWAYS: Final = (500, 503)
_ASKED: Final = (401, 403)
_SIGNED, _KEYED = "sigv4", "api_key"
_SCHEMES: Final = {
    _SIGNED: {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "x-amazon-apigateway-authtype": "awsSigv4",
        "description": "AWS Signature Version 4 for `execute-api` (for the replay function's URL: `lambda`), or where "
        "the stack takes tokens instead, a JWT of its issuer. Whoever AWS lets in may do everything. A stack on one "
        "machine asks nobody.",
    },
    _KEYED: {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "fbk_…",
        "description": "An API key, in this header and nowhere else, where the stack takes them. It does what its "
        "scopes say, for one tenant or for all. 401: it is malformed, unknown, revoked or expired.",
    },
}
_HELD: Final = {
    Held.QUERY: " A key of one tenant finds only what is its tenant's.",
    Held.PATH: " A key of one tenant names that one and no other.",
    Held.BODY: " A key of one tenant names that one and no other.",
    Held.EVENTS: " A key of one tenant names that one and no other.",
    Held.NOWHERE: "",
    Held.OUT: " Not with a key of one tenant.",
}


class _Untitled(GenerateJsonSchema):
    """JSON schemas without a title for each field that only repeats its name."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 - the signature is pydantic's
        return False


@cache
def document() -> dict[str, Any]:
    """The description, as JSON-serialisable values."""
    schemas, definitions = _schemas()
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        operation = _operation(OPERATIONS[route.key], route.path, route.rule, schemas, definitions)
        paths.setdefault(route.path, {})[route.method.lower()] = operation
    paths["/"] = {"servers": [_REPLAY_SERVER]} | {
        method.lower(): _operation(described, "/", FUNCTION_URL, schemas, definitions)
        for method, described in REPLAY.items()
    }
    shown = {name: schema for name, schema in definitions.items() if name not in _only_parameters()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Forbear",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "schemas": dict(sorted(shown.items())),
            "responses": {str(status): _problem(status, schemas) for status in sorted(TITLES) if status in _answered()},
            "securitySchemes": _SCHEMES,
        },
    }


def text() -> str:
    """The description as it is committed."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


def _all() -> tuple[Described, ...]:
    return (*OPERATIONS.values(), *REPLAY.values())


def _answered() -> set[int]:
    return {status for described in _all() for status in (*described.problems, *_ASKED, *_ALWAYS)}


def _only_parameters() -> set[str]:
    """Models that are taken apart into parameters."""
    return {model.__name__ for described in _all() for model in (described.query, described.headers) if model}


def _schemas() -> tuple[Schemas, dict[str, Any]]:
    """References to every model, and their definitions."""
    wanted: dict[tuple[type[BaseModel], Mode], None] = {(ProblemDocument, "serialization"): None}
    for described in _all():
        for taken in (described.query, described.body, described.headers):
            if taken is not None:
                wanted[taken, "validation"] = None
        for models in described.answers.values():
            wanted |= {(model, "serialization"): None for model in models}
    references, found = models_json_schema(
        list(wanted), ref_template="#/components/schemas/{model}", schema_generator=_Untitled
    )
    return {asked: references[asked] for asked in wanted}, found["$defs"]


def _operation(
    described: Described, path: str, rule: Rule, schemas: Schemas, definitions: dict[str, Any]
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": described.name,
        "summary": described.summary,
        "tags": [path.split("/")[2] if path.count("/") > 1 else "replay"],
    }
    about = " ".join(part for part in (described.details, _who(rule)) if part)
    if about:
        operation["description"] = about
    operation["security"] = _security(rule)
    parameters = [
        *_path_parameters(path),
        *_parameters(described.query, "query", definitions),
        *_parameters(described.headers, "header", definitions),
    ]
    if parameters:
        operation["parameters"] = parameters
    if described.body is not None:
        content: dict[str, Any] = {JSON: {"schema": schemas[described.body, "validation"]}}
        if described.raw:
            content["*/*"] = {"schema": {"description": "The payload as it is, up to 1 MiB."}}
        operation["requestBody"] = {"required": described.body_needed, "content": content}
    asked = () if rule.needs is Needs.NOTHING else _ASKED
    problems = {*described.problems, *asked, *_ALWAYS}
    operation["responses"] = {
        str(status): _answer(status, models, schemas) for status, models in described.answers.items()
    } | {str(status): {"$ref": f"#/components/responses/{status}"} for status in sorted(problems)}
    return operation


def _who(rule: Rule) -> str:
    """Which API keys may."""
    match rule.needs:
        case Needs.NOTHING:
            return "Anybody may ask."
        case Needs.NO_KEY:
            return "API keys: none."
        case Needs.ANY_KEY:
            return "API keys: any."
    scopes = [rule.needs, KeyScope.MANAGE] if rule.needs is KeyScope.READ else [rule.needs]
    return f"API keys: with the scope {' or '.join(f'`{scope}`' for scope in scopes)}.{_HELD[rule.held]}"


def _security(rule: Rule) -> list[dict[str, list[str]]]:
    if rule.needs is Needs.NOTHING:
        return []
    signed: list[dict[str, list[str]]] = [{_SIGNED: []}]
    if rule.needs is Needs.NO_KEY:
        return signed
    return [*signed, {_KEYED: [rule.needs] if isinstance(rule.needs, KeyScope) else []}]


def _path_parameters(path: str) -> list[dict[str, Any]]:
    found = []
    for name in re.findall(r"{(\w+)}", path):
        kind = path.split("/")[2]
        about = _IDS[kind] if name == "id" else "The tenant's name."
        schema = TypeAdapter(_ID_TYPES[kind] if name == "id" else TenantName).json_schema()
        schema.pop("description", None)
        found.append({"name": name, "in": "path", "required": True, "description": about, "schema": schema})
    return found


def _parameters(model: type[BaseModel] | None, place: str, definitions: dict[str, Any]) -> list[dict[str, Any]]:
    definition = definitions[model.__name__] if model is not None else {}
    found = []
    for name, field in definition.get("properties", {}).items():
        schema = {key: value for key, value in field.items() if key not in {"description", "default"}}
        # A parameter that is left out is null here; in a request there is no null.
        variants = [variant for variant in schema.get("anyOf", ()) if variant != {"type": "null"}]
        if len(variants) == 1:
            schema = variants[0]
        if field.get("default") is not None:
            schema = {**schema, "default": field["default"]}
        parameter = {"name": name, "in": place}
        if place == "query" and name in definition.get("required", ()):
            parameter |= {"required": True}
        if "description" in field:
            parameter["description"] = field["description"]
        found.append({**parameter, "schema": schema})
    return found


def _answer(status: int, models: Models, schemas: Schemas) -> dict[str, Any]:
    about = {200: "OK", 201: "Created", 202: "Accepted", 204: "No content", 207: "Each for itself"}[status]
    if not models:
        return {"description": about}
    references = [schemas[model, "serialization"] for model in models]
    schema = references[0] if len(references) == 1 else {"oneOf": references}
    return {"description": about, "content": {JSON: {"schema": schema}}}


def _problem(status: int, schemas: Schemas) -> dict[str, Any]:
    return {
        "description": TITLES[status],
        "content": {PROBLEM: {"schema": schemas[ProblemDocument, "serialization"]}},
    }


if __name__ == "__main__":
    sys.stdout.write(text())
