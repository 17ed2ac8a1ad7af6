"""What ingest writes about a request: one short line, if it stored something."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

import ingest
from forbear.metrics import DELIVERIES, DUPLICATES, EVENTS
from tests.functions.builders import make_endpoint
from tests.functions.conftest import forget, remembering
from tests.functions.emf import lines
from tests.functions.events import http_event

type Connection = psycopg.Connection[Any]
type Output = pytest.CaptureFixture[str]

# CloudWatch takes half a dollar a gigabyte: an eighth of a dollar for a million requests.
MOST_BYTES = 260


@pytest.fixture
def role() -> str:
    return "forbear_ingest"


@pytest.fixture(autouse=True)
def watched(handlers: pytest.MonkeyPatch) -> None:
    """Ingest writes metrics, and wakes nobody."""
    handlers.setenv("FORBEAR_METRICS_NAMESPACE", "Forbear/Forbear")
    handlers.setattr("forbear.waking.invoke_claimer", remembering([]))


def send(*events: dict[str, Any], key: str | None = None) -> int:
    """Post one event, or several as a batch. Gives the status."""
    headers = {"content-type": "application/json"} | ({"idempotency-key": key} if key else {})
    path, body = ("/v1/events", events[0]) if len(events) == 1 else ("/v1/events/batch", {"events": events})
    response = ingest.handler(http_event("POST", path, headers=headers, body=json.dumps(body).encode()), None)
    return int(response["statusCode"])


def event(payload: int = 1, **more: object) -> dict[str, Any]:
    return {"tenant": "acme", "type": "order.paid", "payload": payload, **more}


def told(capsys: Output) -> dict[str, float]:
    """The values of the only line."""
    (line,) = lines(capsys.readouterr().out)
    assert (line.namespace, line.dimensions) == ("Forbear/Forbear", {})
    return {name: value for name, (value,) in line.values.items()}


def test_an_event_and_its_deliveries_are_one_short_line(connection: Connection, capsys: Output) -> None:
    for _ in range(3):
        make_endpoint(connection)
    assert send(event()) == 202
    output = capsys.readouterr().out
    (line,) = lines(output)
    assert line.values == {EVENTS.name: [1], DELIVERIES.name: [3]}
    assert len(output) <= MOST_BYTES


def test_a_repeat_is_an_event_and_a_duplicate_without_new_deliveries(connection: Connection, capsys: Output) -> None:
    make_endpoint(connection)
    send(event(), key="once")
    capsys.readouterr()
    assert send(event(), key="once") == 202
    assert told(capsys) == {EVENTS.name: 1, DUPLICATES.name: 1}


def test_a_batch_is_one_line(connection: Connection, capsys: Output) -> None:
    make_endpoint(connection)
    assert send(event(1), event(2, id="a"), event(2, id="a"), {"tenant": ""}) == 207
    assert told(capsys) == {EVENTS.name: 3, DUPLICATES.name: 1, DELIVERIES.name: 2}


def test_what_stores_nothing_writes_nothing(connection: Connection, capsys: Output) -> None:
    """The API counts it."""
    send(event(1), key="taken")
    capsys.readouterr()
    assert send(event(2), key="taken") == 409
    assert send({"tenant": ""}) == 422
    assert send({"tenant": ""}, {"tenant": ""}) == 207
    assert lines(capsys.readouterr().out) == []


def test_a_database_that_is_away_writes_nothing(handlers: pytest.MonkeyPatch, capsys: Output) -> None:
    handlers.setenv("FORBEAR_DATABASE_URL", "postgresql://nobody@127.0.0.1:9/none")
    forget()
    assert send(event()) == 503
    assert lines(capsys.readouterr().out) == []


def test_without_a_namespace_there_are_no_lines(handlers: pytest.MonkeyPatch, capsys: Output) -> None:
    handlers.delenv("FORBEAR_METRICS_NAMESPACE")
    forget()
    assert send(event()) == 202
    assert capsys.readouterr().out == ""
