"""The first events after a pause: Aurora takes 15 to 30 seconds to wake, and API Gateway ends a request at 30."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import psycopg
import pytest

import ingest
from forbear.db import CONNECTION_OPTIONS, Database
from tests.functions.builders import make_endpoint, one, post, run
from tests.functions.conftest import remembering
from tests.functions.events import Context, body_of, http_event
from tests.functions.gate import Gate, Shut, gate
from tests.functions.scripted import Claimer, always

type Connection = psycopg.Connection[Any]

BODY = b'{"tenant":"acme","type":"order.paid","payload":{}}'
WAYS = tuple(Shut)


class Producers:
    """One a way of being shut, all at once, each with an ingest function of its own."""

    def __init__(self, database_url: str, handlers: pytest.MonkeyPatch) -> None:
        self._database_url = database_url
        self._handlers = handlers
        self._of_thread = threading.local()

    def post(self, hold_s: float | None, time_s: float) -> dict[Shut, list[dict[str, Any]]]:
        """Post an event each, and again under the same key until it is accepted.

        Args:
            hold_s: how long the database is held back; None: until the first answer.
            time_s: what the function has for a request.

        Returns:
            The answers, in order.
        """
        with self._handlers.context() as patch, ExitStack() as stack, ThreadPoolExecutor(len(WAYS)) as pool:
            patch.setattr(ingest, "database", lambda: self._of_thread.database)
            gates = {way: stack.enter_context(gate(self._database_url, way)) for way in WAYS}
            posted = {way: pool.submit(self._post, gates[way], way.value, hold_s, time_s) for way in WAYS}
            return {way: future.result() for way, future in posted.items()}

    def _post(self, closed: Gate, key: str, hold_s: float | None, time_s: float) -> list[dict[str, Any]]:
        self._of_thread.database = Database(closed.url)
        if hold_s is not None:
            closed.open_after(hold_s)
        answers: list[dict[str, Any]] = []
        while not answers or answers[-1]["statusCode"] == 503:
            context = Context(time_s)
            answers.append(
                ingest.handler(http_event("POST", "/v1/events", headers={"idempotency-key": key}, body=BODY), context)
            )
            assert context.get_remaining_time_in_millis() > 0, "the answer came in time"
            if answers[-1]["statusCode"] == 503:
                assert self._stored(key) == 0, "nothing is half done"
            if hold_s is None:
                closed.open()
                hold_s = 0
        self._of_thread.database.close()
        return answers

    def _stored(self, key: str) -> int:
        with psycopg.connect(self._database_url) as connection:
            return int(one(connection, "SELECT count(*) FROM forbear.idempotency_keys WHERE key = %s", key))


@pytest.fixture
def producers(database_url: str, handlers: pytest.MonkeyPatch) -> Producers:
    handlers.setattr("forbear.waking.invoke_claimer", remembering([]))
    return Producers(database_url, handlers)


def check_refusal(answer: dict[str, Any]) -> None:
    assert answer["statusCode"] == 503
    assert int(answer["headers"]["retry-after"]) > 0
    assert "nothing was stored" in body_of(answer)["detail"]


# 25 s leave it a second and a half, which is a promise only where nothing else runs.
@pytest.mark.parametrize("hold_s", [10, pytest.param(25, marks=pytest.mark.e2e)])
def test_a_database_that_wakes_in_time_takes_the_event(
    hold_s: int, producers: Producers, connection: Connection
) -> None:
    """The whole real time: whether it refuses connections, drops them or holds them, the event that woke it is in."""
    make_endpoint(connection)
    answers = producers.post(hold_s, 29.0)
    assert [[answer["statusCode"] for answer in answers[way]] for way in WAYS] == [[202]] * len(WAYS)
    assert one(connection, "SELECT count(*) FROM forbear.events") == len(WAYS)
    assert one(connection, "SELECT count(*) FROM forbear.queue") == len(WAYS)


@pytest.mark.parametrize(
    ("hold_s", "time_s"), [(None, 3.5), pytest.param(60, 29.0, marks=pytest.mark.e2e)], ids=["scaled", "60"]
)
def test_a_database_that_does_not_wake_in_time_is_503_and_the_repeat_is_stored_once(
    hold_s: int | None, time_s: float, producers: Producers, connection: Connection
) -> None:
    """In time, with Retry-After and nothing stored; the same key again, and at last it is accepted, as a new event."""
    make_endpoint(connection)
    for each in producers.post(hold_s, time_s).values():
        *refused, accepted = each
        assert refused
        for answer in refused:
            check_refusal(answer)
        assert (accepted["statusCode"], body_of(accepted)["duplicate"]) == (202, False)
    assert one(connection, "SELECT count(*) FROM forbear.events") == len(WAYS)
    assert one(connection, "SELECT count(*) FROM forbear.queue") == len(WAYS)


@pytest.mark.parametrize("way", WAYS)
def test_a_claimer_waits_until_its_database_is_awake(
    way: Shut, database_url: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(CONNECTION_OPTIONS, "connect_timeout", 2)
    make_endpoint(connection)
    post(connection, b"1")
    with gate(database_url, way) as closed:
        closed.open_after(1.0)
        claimer = Claimer(closed.url, always(200))
        assert run(claimer.run()).claimed == 1
    assert claimer.sender.bodies == [b"1"]
