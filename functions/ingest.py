"""The ingest function: takes events in, POST /v1/events and POST /v1/events/batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

from forbear.access import Elsewhere, authorise
from forbear.api import ApiRequest, ApiResponse, Operation, Problem, respond
from forbear.api_keys import ApiKey
from forbear.db import Database, Target
from forbear.envelope import NewEvent, read_batch, read_event
from forbear.ids import Prefix, encode
from forbear.intake import Stored, store
from forbear.metrics import DELIVERIES, DUPLICATES, EVENTS, write
from forbear.routes import KeyScope
from forbear.settings import settings
from forbear.waking import prepare, summon

logger = logging.getLogger(__name__)

type Answer = dict[str, Any] | Problem
"""What a producer is told of an event: `models.events.EventAccepted`, or a problem."""


@cache
def database() -> Database:
    """The connection of this execution environment."""
    return Database(Target.of(settings()), while_waking=lambda: prepare(settings()))


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer a request of the HTTP API (payload format 2.0)."""
    return respond(event, OPERATIONS, context, database)


def post_event(request: ApiRequest) -> ApiResponse:
    """Store one event."""
    try:
        event = read_event(request.headers, request.body)
    except Problem:
        _take_in([], request.caller.key)
        raise
    (answer,) = _take_in([event], request.caller.key)
    if isinstance(answer, Problem):
        raise answer
    return ApiResponse(202, answer)


def post_batch(request: ApiRequest) -> ApiResponse:
    """Store what is right of a batch, and say what is wrong with the rest."""
    try:
        entries = read_batch(request.headers, request.body)
    except Problem:
        _take_in([], request.caller.key)
        raise
    answers = iter(_take_in([entry for entry in entries if isinstance(entry, NewEvent)], request.caller.key))
    results = [next(answers) if isinstance(entry, NewEvent) else entry for entry in entries]
    return ApiResponse(207, {"results": [_result(result) for result in results]})


OPERATIONS: dict[str, Operation] = {"POST /v1/events": post_event, "POST /v1/events/batch": post_batch}


def _take_in(events: list[NewEvent], key: ApiKey | None) -> list[Answer]:
    if not events:
        if key is not None:  # nothing to store is no way around the check
            authorise(database(), key, KeyScope.INGEST)
        return []
    try:
        intake = store(database(), events, key)
    except Elsewhere as refused:
        # Rare, so it may cost another round trip: what is the key's own tenant's is stored without the rest.
        own = [event for event in events if event.tenant == refused.tenant]
        answers = iter(_take_in(own, key))
        return [next(answers) if event.tenant == refused.tenant else Problem(403, refused.detail) for event in events]
    _measure(intake.stored)
    if intake.must_wake:
        summon(database(), settings())
    return [_answer(stored) for stored in intake.stored]


def _measure(stored: Sequence[Stored]) -> None:
    """Write a line about a request that stored something, with no more in it than there is: it is paid for as log.

    The events are committed: whatever goes wrong here is no reason to say anything else.
    """
    accepted = [one for one in stored if not one.conflict]
    counts = {
        EVENTS: len(accepted),
        DUPLICATES: sum(one.duplicate for one in accepted),
        DELIVERIES: sum(one.deliveries for one in accepted if not one.duplicate),
    }
    try:
        write(settings().metrics_namespace, {metric: number for metric, number in counts.items() if number})
    except Exception:
        logger.exception("events were stored and not counted")


def _answer(stored: Stored) -> Answer:
    event_id = encode(Prefix.EVENT, stored.event_id)
    if stored.conflict:
        return Problem(409, f"this key was used for another event, {event_id}: use a new one", event_id=event_id)
    return {"id": event_id, "deliveries": stored.deliveries, "duplicate": stored.duplicate}


def _result(answer: Answer) -> dict[str, Any]:
    return answer.document() if isinstance(answer, Problem) else {"status": 202, **answer}
