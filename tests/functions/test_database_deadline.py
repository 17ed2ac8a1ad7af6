"""When the database says nothing any more: every request is answered in time, and nothing is done twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

import ingest
import manage
from forbear import db
from forbear.api import HTTP_API_S, MARGIN_S, _time_s
from forbear.db import Database, Unavailable
from forbear.deadline import BoundedConnection, TimeIsUp, left_s, within
from tests.functions.builders import make_endpoint, one
from tests.functions.conftest import forget, remembering
from tests.functions.events import Context, body_of, http_event
from tests.functions.gate import Shut, gate
from tests.functions.wire import wire

type Connection = psycopg.Connection[Any]

BODY = b'{"tenant":"acme","type":"order.paid","payload":{}}'
# What the database gets of it is short, for it will not answer anyhow.
SHORT_S = MARGIN_S + 0.6


@pytest.fixture
def calls(handlers: pytest.MonkeyPatch) -> list[object]:
    """Grows by one whenever ingest invokes a claimer."""
    calls: list[object] = []
    handlers.setattr("forbear.waking.invoke_claimer", remembering(calls))
    return calls


pytestmark = pytest.mark.usefixtures("calls")


def post(key: str | None = None, time_s: float = SHORT_S) -> dict[str, Any]:
    """Post an event; the answer comes while there is time."""
    context = Context(time_s)
    headers = {"idempotency-key": key} if key else {}
    answer = ingest.handler(http_event("POST", "/v1/events", headers=headers, body=BODY), context)
    assert context.get_remaining_time_in_millis() > 0
    return answer


def backend_of(database: Database) -> int:
    return int(database.run(lambda mine: one(mine, "SELECT pg_backend_pid()"), repeatable=True))


@contextmanager
def stopped(backend: int) -> Iterator[None]:
    """A server process that stands still while its connection stays open."""
    os.kill(backend, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(backend, signal.SIGCONT)


def test_a_server_that_stands_still_is_left_in_time_and_the_repeat_is_stored_once(connection: Connection) -> None:
    make_endpoint(connection)
    with stopped(backend_of(ingest.database())):
        answer = post("k")
        assert answer["statusCode"] == 503
        assert int(answer["headers"]["retry-after"]) > 0
        assert "send it again with the same key" in body_of(answer)["detail"]
    # The server goes on with what it was sent, beside the repeat.
    assert post("k", 29)["statusCode"] == 202
    assert one(connection, "SELECT count(*) FROM forbear.events") == 1


def test_without_a_key_it_says_that_nobody_knows(connection: Connection) -> None:
    with stopped(backend_of(ingest.database())):
        detail = body_of(post())["detail"]
    assert "not known" in detail
    assert "Idempotency-Key" in detail


def test_an_event_whose_commit_was_answered_is_accepted_whatever_comes_after(
    database_url: str, connection: Connection, handlers: pytest.MonkeyPatch, calls: list[object]
) -> None:
    """The answer to COMMIT is the last that comes: whether a claimer is awake is not known, so one is called."""
    make_endpoint(connection)
    with wire(database_url) as (line, url):
        handlers.setenv("FORBEAR_DATABASE_URL", url)
        forget()
        assert post("first", time_s=29)["statusCode"] == 202
        calls.clear()
        line.watch()
        line.stall = True
        line.cut_at_answer = lambda answer: answer.find(b"COMMIT\0") + len(b"COMMIT\0")
        answer = post(time_s=MARGIN_S + 3)
        assert (answer["statusCode"], body_of(answer)["duplicate"]) == (202, False)
        assert len(calls) == 1
        forget()
    assert one(connection, "SELECT count(*) FROM forbear.events") == 2


def test_a_change_that_waits_for_somebodys_lock_is_given_up_in_time(connection: Connection) -> None:
    pause = http_event("POST", "/v1/pause", body=b"{}")
    with connection.transaction():
        connection.execute("LOCK forbear.control IN ACCESS EXCLUSIVE MODE")
        context = Context(SHORT_S)
        answer = manage.handler(pause, context)
        assert context.get_remaining_time_in_millis() > 0
    assert answer["statusCode"] == 503
    assert "not known" in body_of(answer)["detail"]
    assert manage.handler(pause, Context(29))["statusCode"] < 300


@pytest.mark.parametrize("size", [1, 20_000_000], ids=["sent", "not even sent"])
def test_a_connection_that_was_given_up_is_not_used_again(size: int, database_url: str) -> None:
    """Not even when it cannot be told so, because the server takes no more bytes."""
    database = Database(database_url)
    with stopped(backend_of(database)), pytest.raises(Unavailable, match="did not answer in time"), within(0.3):
        database.run(lambda mine: mine.execute("SELECT %s::bytea", (b"x" * size,)), repeatable=False)
    assert database.run(lambda mine: one(mine, "SELECT 7"), repeatable=False) == 7
    database.close()


def test_what_waiting_does_not_mend_is_told_at_once(database_url: str) -> None:
    """A wrong password is asked for once; a database that keeps silent, again and again."""
    with gate(database_url.replace("forbear:", "forbear:not-"), None) as wrong, within(20):
        with pytest.raises(Unavailable, match="password authentication failed") as caught:
            Database(wrong.url).run(lambda mine: mine.execute("SELECT 1"), repeatable=True)
        assert (wrong.came, caught.value.nothing_done) == (1, True)
        assert left_s() > 0
    with gate(database_url, Shut.SILENT) as silent, within(2.0):
        with pytest.raises(Unavailable, match="did not answer in time") as caught:
            Database(silent.url).run(lambda mine: mine.execute("SELECT 1"), repeatable=True)
        assert silent.came > 1
        assert caught.value.nothing_done


def test_a_connection_that_rested_for_long_is_not_trusted(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a freeze the server's farewell may have been missed: what is sent then may vanish."""
    database = Database(database_url)
    first = backend_of(database)
    assert backend_of(database) == first
    monkeypatch.setattr(db, "TRUSTED_FOR_S", -1.0)
    assert backend_of(database) != first
    database.close()


def test_a_connection_is_not_trusted_after_the_clock_was_set_back(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long it rested cannot be told then."""
    database = Database(database_url)
    first = backend_of(database)
    earlier = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: earlier)
    assert backend_of(database) != first
    database.close()


def test_the_nearest_deadline_holds_and_ends_with_its_block() -> None:
    with within(100):
        with within(10), within(1_000):
            assert left_s() <= 10
        assert 10 < left_s() <= 100
    assert left_s() > 1e9


def test_a_transaction_that_fails_after_the_deadline_ends_as_late(database_url: str) -> None:
    """Its ROLLBACK is not waited for, and neither hides what it was about."""
    with BoundedConnection.connect(database_url, autocommit=True, row_factory=dict_row) as connection:
        with pytest.raises(TimeIsUp) as late:
            fail_late(connection)
        assert "too late" in str(late.value.__context__)
        assert connection.closed


def fail_late(connection: BoundedConnection) -> None:
    with within(0.1), connection.transaction():
        connection.execute("SELECT 1")
        while left_s() > 0:
            pass
        raise ValueError("too late")


def test_what_is_asked_by_the_http_api_ends_before_that_gives_up() -> None:
    """However long the function may take: replay has a URL of its own, by which it may take longer."""
    assert _time_s(Context(60), by_url=False) == HTTP_API_S - MARGIN_S
    assert _time_s(Context(60), by_url=True) > HTTP_API_S
    assert _time_s(Context(5), by_url=False) <= 5 - MARGIN_S
