"""The API does what its description says, whatever is asked: requests are made from the description by schemathesis.

No answer is a server error, and each has a status, a content type and a body that the description knows; a request that
breaks the description is refused. Half of the requests name what is really there, so that not all of them are 404.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from schemathesis.checks import CheckFunction, not_a_server_error
from schemathesis.core.parameters import ParameterLocation
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from forbear.openapi import document
from tests.functions.builders import make_endpoint, post
from tests.functions.contract.served import Served
from tests.functions.manage.calling import Claimer, call, dlv, ep, evt, ok, rows

type Connection = psycopg.Connection[Any]
type Known = dict[str, list[str]]

CONFORMS: Final[list[CheckFunction]] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
# A raw event's body may be anything, and a batch is answered event by event.
TAKES_ANYTHING: Final = {"POST /v1/events", "POST /v1/events/batch"}

_schema = schemathesis.openapi.from_dict(document())
_schema.app = Served()
_found = [found.ok() for found in _schema.get_all_operations() if isinstance(found, Ok)]
OPERATIONS: Final = {one.label: one for one in _found}
# One database for all that is tagged alike, what deletes last.
LABELS: Final = sorted(OPERATIONS, key=lambda label: (label.startswith("DELETE"), label))
EXAMPLES: Final = (settings.default.max_examples if settings.default else 100) // 10
TAGS: Final = sorted({OPERATIONS[label].definition.raw["tags"][0] for label in LABELS})


def made_key() -> dict[str, Any]:
    """An API key, made by whom the gateway admits."""
    return dict(ok(call("POST", "/v1/keys", body={"name": "shop", "scopes": ["read"]}), 201))


@pytest.fixture
def known(connection: Connection, database_url: str, handlers: pytest.MonkeyPatch) -> Known:
    """A database with something of everything, and the ids of it."""
    del handlers  # the entry points read this database
    claimer = Claimer(database_url)
    for tenant in ("acme", "other"):
        make_endpoint(connection, tenant=tenant)
        post(connection, b'{"n":1}', tenant=tenant)
        claimer.finish("delivered")
        post(connection, b"\xff\x00", tenant=tenant)
        claimer.finish("dead")
        post(connection, b"2", tenant=tenant)
        claimer.finish("retry")
        post(connection, b"3", b"4", tenant=tenant)
    claimer.claim(1)
    claimer.close()
    return {
        "endpoints": [ep(row["id"]) for row in rows(connection, "SELECT id FROM forbear.endpoints")],
        "deliveries": [
            dlv(row["id"])
            for row in rows(connection, "SELECT id FROM forbear.queue UNION SELECT id FROM forbear.history")
        ],
        "events": [evt(row["id"]) for row in rows(connection, "SELECT id FROM forbear.events")],
        "tenants": ["acme", "other"],
        "keys": [key["id"] for key in (made_key(), made_key())],
    }


def named(case: Case[Any], known: Known, data: st.DataObject) -> None:
    """Have a request name something that is there, as often as not, unless it is its path that is wrong."""
    components = case.meta.components if case.meta else {}
    path = components.get(ParameterLocation.PATH)
    if path is not None and path.mode.is_negative:
        return
    for name in case.path_parameters or ():
        if data.draw(st.booleans(), label="named"):
            case.path_parameters[name] = data.draw(st.sampled_from(known[case.path.split("/")[2]]), label=name)
    if case.query and "tenant" in case.query and data.draw(st.booleans(), label="a tenant that is there"):
        query = components.get(ParameterLocation.QUERY)
        if query is not None and query.mode.is_positive:
            case.query["tenant"] = "acme"


def tried(label: str, mode: GenerationMode, known: Known, checks: list[CheckFunction]) -> None:
    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=OPERATIONS[label].as_strategy(generation_mode=mode), data=st.data())
    def ask(case: Case[Any], data: st.DataObject) -> None:
        named(case, known, data)
        case.validate_response(case.call(), checks=checks)

    ask()


def tagged(tag: str) -> list[str]:
    return [label for label in LABELS if OPERATIONS[label].definition.raw["tags"][0] == tag]


@pytest.mark.parametrize("tag", TAGS)
def test_what_the_description_allows_is_answered_as_it_says(known: Known, subtests: pytest.Subtests, tag: str) -> None:
    for label in tagged(tag):
        with subtests.test(label):
            tried(label, GenerationMode.POSITIVE, known, CONFORMS)


@pytest.mark.parametrize("tag", TAGS)
def test_what_the_description_forbids_is_refused_as_it_says(known: Known, subtests: pytest.Subtests, tag: str) -> None:
    for label in tagged(tag):
        one = OPERATIONS[label]
        if one.query or one.body or one.path_parameters:  # else there is nothing wrong to say
            refused = [] if label in TAKES_ANYTHING else [negative_data_rejection]
            with subtests.test(label):
                tried(label, GenerationMode.NEGATIVE, known, [*CONFORMS, *refused])
