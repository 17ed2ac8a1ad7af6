"""Cursors, ids and parameters that nobody was given: refused or not found, and nothing changes."""

from __future__ import annotations

import base64
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import manage
from forbear.operations import OPERATIONS
from tests.functions.builders import make_endpoint, post
from tests.functions.manage.calling import Claimer, call, dlv, ep, evt, ok, rows

type Connection = psycopg.Connection[Any]

IDS = {"endpoints": ep, "deliveries": dlv, "events": evt}
LISTS = ("GET /v1/events", "GET /v1/endpoints", "GET /v1/deliveries")
# API keys are no tenant's.
BY_ID = [key for key in OPERATIONS if "{id}" in key and "keys" not in key]
TABLES = ("endpoints", "lanes", "secrets", "subscriptions", "queue", "history", "events", "replays")


@pytest.fixture
def _handlers(handlers: pytest.MonkeyPatch) -> None:
    """The entry points read this test's database."""


pytestmark = pytest.mark.usefixtures("_handlers")


@pytest.fixture
def there(connection: Connection, database_url: str) -> dict[str, str]:
    """Two endpoints with three events each, one of them dead; gives an id of each kind."""
    endpoint_id = make_endpoint(connection)
    make_endpoint(connection)
    claimer = Claimer(database_url)
    (event_id, *_) = post(connection, b"1", b"2", b"3")
    claimer.settle(claimer.claim()[0], "dead")
    claimer.close()
    delivery_id = rows(connection, "SELECT id FROM forbear.queue WHERE endpoint_id = %s LIMIT 1", endpoint_id)[0]["id"]
    return {"endpoints": ep(endpoint_id), "deliveries": dlv(delivery_id), "events": evt(event_id)}


def everything(connection: Connection) -> dict[str, list[dict[str, Any]]]:
    """What the database holds."""
    return {table: rows(connection, f"SELECT t::text FROM forbear.{table} t ORDER BY 1") for table in TABLES}


@pytest.mark.parametrize("key", BY_ID)
def test_what_is_another_tenants_is_not_found_and_not_changed(
    connection: Connection, there: dict[str, str], key: str
) -> None:
    method, _, path = key.partition(" ")
    before = everything(connection)
    bodies = {
        "PATCH": {"description": "mine"},
        "POST": {"since": "2020-01-01T00:00:00Z"} if "backfill" in path else None,
    }
    body = bodies.get(method)
    answer = call(method, path, there[path.split("/")[2]], tenant="other", body=body)
    assert answer.status == 404
    assert "acme" not in answer.detail
    assert everything(connection) == before
    assert call(method, path, there[path.split("/")[2]], tenant="acme", body=body).status < 300


def altered(cursor: str) -> st.SearchStrategy[str]:
    """A cursor that was given, with something about it changed."""
    raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    return st.one_of(
        st.integers(0, 8 * len(raw) - 1).map(
            lambda bit: (
                base64.urlsafe_b64encode(bytes(byte ^ (1 << bit % 8) * (bit // 8 == at) for at, byte in enumerate(raw)))
                .rstrip(b"=")
                .decode()
            )
        ),
        st.integers(0, len(cursor) - 1).map(lambda end: cursor[:end]),
        st.text(min_size=1, max_size=8).map(lambda more: cursor + more),
        st.sampled_from([cursor * 2, cursor + "=", cursor + "\n", f" {cursor}", f"{cursor},{cursor}", cursor * 400]),
        st.sampled_from([cursor.swapcase(), cursor[::-1], "", "A" * 10_000, "\0", "null", "٣", "%00"]),
    )


@pytest.mark.parametrize("key", LISTS)
def test_a_cursor_that_was_altered_is_refused_or_begins_somewhere_else(there: dict[str, str], key: str) -> None:
    """It holds no secret: whoever makes one up sees what the same caller may list anyway."""
    assert there
    method, _, path = key.partition(" ")
    cursor = ok(call(method, path, query={"limit": "1"}))["next"]

    @settings(suppress_health_check=list(HealthCheck))
    @given(altered(cursor))
    def ask(text: str) -> None:
        answer = call(method, path, query={"cursor": text}, tenant="acme")
        assert answer.status in {200, 400, 422}
        assert answer.status != 200 or all(item["tenant"] == "acme" for item in answer.body["items"])

    ask()


def test_a_cursor_of_one_list_is_refused_by_the_others(there: dict[str, str]) -> None:
    assert there
    given_by = {key: ok(call("GET", key[4:], query={"limit": "1"}))["next"] for key in LISTS}
    for key in LISTS:
        for other, cursor in given_by.items():
            assert call("GET", key[4:], query={"cursor": cursor}).status == (200 if key == other else 400)


@pytest.mark.parametrize("key", [key for key in manage.OPERATIONS if key.startswith("GET") and "openapi" not in key])
def test_parameters_that_come_twice_or_are_endless_are_refused(there: dict[str, str], key: str) -> None:
    """Of parameters that come twice, API Gateway joins the values by commas."""
    method, _, path = key.partition(" ")
    model = OPERATIONS[key].query
    item = there[path.split("/")[2]] if "{id}" in path else None
    for name in model.model_fields if model else ():
        for value in ("1,1", "acme,other", "x" * 10_000, "2030-01-01T00:00:00Z,2030-01-01T00:00:00Z", "\0", "٣"):
            answer = call(method, path, item, query={name: value})
            assert answer.status in {400, 422}, (name, value[:40], answer)
            assert len(str(answer.body)) < 2_000
    if model is not None:
        assert call(method, path, item, query={"unknown": "1"}).status == 422


@pytest.mark.parametrize("path", ["/v1/endpoints/{id}", "/v1/deliveries/{id}", "/v1/events/{id}"])
def test_ids_that_are_none_are_not_found(there: dict[str, str], path: str) -> None:
    kind = path.split("/")[2]
    right = there[kind]
    prefix, _, suffix = right.partition("_")
    wrong = [other for name, other in there.items() if name != kind]
    wrong += ["", ".", "..", "0", "\0", "é", "x" * 10_000, suffix, f"{prefix}_", right.upper(), right[:-1], right * 2]
    wrong += [f"{right}0", f" {right}", f"{right}\n", *(f"{prefix}_{digit * 26}" for digit in "z70")]
    wrong += [f"{right}/..", f"../{kind}/{right}", f"{right}?tenant=other", f"{right};", f"'{right}'", "' OR '1'='1"]
    for item in wrong:
        assert call("GET", path, item).status == 404, item
