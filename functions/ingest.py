"""The ingest function: takes events in, POST /v1/events and POST /v1/events/batch."""

from __future__ import annotations

from functools import cache
from typing import Any

from forbear.api import ApiRequest, ApiResponse, Operation, Problem, respond
from forbear.db import Database
from forbear.envelope import NewEvent, read_batch, read_event
from forbear.ids import Prefix, encode
from forbear.intake import Stored, store
from forbear.models.events import EventAccepted
from forbear.settings import settings
from forbear.waking import summon


@cache
def database() -> Database:
    """The connection of this execution environment."""
    return Database(settings().database_url)


def handler(event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Answer a request of the HTTP API (payload format 2.0)."""
    return respond(event, OPERATIONS)


def post_event(request: ApiRequest) -> ApiResponse:
    """Store one event."""
    (answer,) = _take_in([read_event(request.headers, request.body)])
    if isinstance(answer, Problem):
        raise answer
    return ApiResponse(202, answer)


def post_batch(request: ApiRequest) -> ApiResponse:
    """Store what is right of a batch, and say what is wrong with the rest."""
    entries = read_batch(request.headers, request.body)
    answers = iter(_take_in([entry for entry in entries if isinstance(entry, NewEvent)]))
    results = [next(answers) if isinstance(entry, NewEvent) else entry for entry in entries]
    return ApiResponse(207, {"results": [_result(result) for result in results]})


OPERATIONS: dict[str, Operation] = {"POST /v1/events": post_event, "POST /v1/events/batch": post_batch}


def _take_in(events: list[NewEvent]) -> list[EventAccepted | Problem]:
    if not events:
        return []
    intake = store(database(), events)
    if intake.must_wake:
        summon(database(), settings())
    return [_answer(stored) for stored in intake.stored]


def _answer(stored: Stored) -> EventAccepted | Problem:
    event_id = encode(Prefix.EVENT, stored.event_id)
    if stored.conflict:
        return Problem(409, f"this key was used for another event, {event_id}: use a new one", event_id=event_id)
    return EventAccepted(id=event_id, deliveries=stored.deliveries, duplicate=stored.duplicate)


def _result(answer: EventAccepted | Problem) -> dict[str, Any]:
    return answer.document() if isinstance(answer, Problem) else {"status": 202, **answer.model_dump()}
