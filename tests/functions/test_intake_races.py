"""Ingest against others at the same time, and against a line that breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from uuid import uuid4

import psycopg
import pytest

import ingest
from forbear.db import Database
from forbear.envelope import NewEvent
from forbear.intake import Intake, _storing, store
from forbear.round_trip import Statement, commit_and_ask
from tests.functions.builders import make_endpoint, move_clock, one
from tests.functions.conftest import forget, remembering
from tests.functions.events import body_of, http_event
from tests.functions.wire import SYNC, Wire, wire

type Connection = psycopg.Connection[Any]

BODY = b'{"tenant":"acme","type":"order.paid","payload":{}}'


def event(key: str | None = None, payload: bytes = b"{}") -> NewEvent:
    return NewEvent("acme", "order.paid", "application/json", payload, None, key)


@pytest.fixture
def databases(database_url: str) -> Iterator[Callable[[], Database]]:
    """Makes further ingest functions, as it were: each with a connection of its own."""
    with ExitStack() as stack:

        def make() -> Database:
            database = Database(database_url)
            stack.callback(database.close)
            return database

        yield make


def at_once(databases: Callable[[], Database], batches: list[list[NewEvent]]) -> list[Intake]:
    """Store each batch through its own connection, all starting at the same moment."""
    start = threading.Barrier(len(batches))

    def post(events: list[NewEvent]) -> Intake:
        database = databases()
        database.run(lambda connection: connection.execute("SELECT 1"), repeatable=True)
        start.wait()
        return store(database, events)

    with ThreadPoolExecutor(len(batches)) as pool:
        return list(pool.map(post, batches))


def test_fifty_parallel_posts_of_one_key_make_one_event(
    connection: Connection, databases: Callable[[], Database]
) -> None:
    make_endpoint(connection)
    answers = [intake.stored[0] for intake in at_once(databases, [[event("k")] for _ in range(50)])]
    assert len({answer.event_id for answer in answers}) == 1
    assert sorted(answer.duplicate for answer in answers) == [False] + [True] * 49
    assert {answer.deliveries for answer in answers} == {1}
    assert one(connection, "SELECT count(*) FROM forbear.events") == 1
    assert one(connection, "SELECT count(*) FROM forbear.queue") == 1


def test_of_parallel_posts_with_different_bodies_under_one_key_one_wins(
    connection: Connection, databases: Callable[[], Database]
) -> None:
    batches = [[event("k", b"%d" % (n % 2))] for n in range(20)]
    answers = [intake.stored[0] for intake in at_once(databases, batches)]
    (winner,) = (answer for answer in answers if not answer.duplicate and not answer.conflict)
    assert {answer.event_id for answer in answers} == {winner.event_id}
    assert sum(answer.duplicate for answer in answers) == 9
    assert sum(answer.conflict for answer in answers) == 10
    assert one(connection, "SELECT count(*) FROM forbear.events") == 1


def test_a_key_that_has_expired_is_taken_over_once(connection: Connection, databases: Callable[[], Database]) -> None:
    old = store(databases(), [event("k")]).stored[0]
    move_clock(connection, hours=25)
    answers = [intake.stored[0] for intake in at_once(databases, [[event("k")] for _ in range(20)])]
    assert len({answer.event_id for answer in answers} | {old.event_id}) == 2
    assert sorted(answer.duplicate for answer in answers) == [False] + [True] * 19
    assert one(connection, "SELECT count(*) FROM forbear.events") == 2


def test_batches_with_the_same_keys_in_opposite_order_do_not_deadlock(database_url: str) -> None:
    rounds, writers = 20, 4
    start = threading.Barrier(writers)

    def post(writer: int) -> int:
        made = 0
        with psycopg.connect(database_url, autocommit=True, row_factory=psycopg.rows.dict_row) as mine:
            for n in range(rounds):
                keys = [f"{n}/{i}" for i in range(30)]
                storing = _storing([event(key) for key in (keys if writer % 2 else reversed(keys))])
                start.wait()
                # Not through Database: it would try again after a deadlock.
                rows, _ = commit_and_ask(mine, storing, Statement("SELECT 1"))
                made += sum(not duplicate for _, _, duplicate, _ in rows)
        return made

    with ThreadPoolExecutor(writers) as pool:
        assert sum(pool.map(post, range(writers))) == rounds * 30


def test_a_claimer_that_falls_asleep_and_an_ingest_never_miss_each_other(
    connection: Connection, database_url: str, databases: Callable[[], Database]
) -> None:
    make_endpoint(connection)
    claimer_id, rounds = uuid4(), 400
    start = threading.Barrier(2)

    def fall_asleep(sleeper: Connection) -> bool:
        """A claimer's last two steps, each a transaction: take the mark away, look once more."""
        start.wait()
        sleeper.execute("DELETE FROM forbear.claimers WHERE id = %s", (claimer_id,))
        return bool(one(sleeper, "SELECT EXISTS (SELECT FROM forbear.wakes)"))

    def post(database: Database) -> bool:
        start.wait()
        return store(database, [event()]).must_wake

    missed = 0
    database = databases()
    with psycopg.connect(database_url, autocommit=True) as sleeper, ThreadPoolExecutor(2) as pool:
        for _ in range(rounds):
            connection.execute("DELETE FROM forbear.claimers")
            connection.execute("DELETE FROM forbear.wakes")
            connection.execute("INSERT INTO forbear.claimers VALUES (%s, 'infinity')", (claimer_id,))
            looked, called = pool.submit(fall_asleep, sleeper), pool.submit(post, database)
            missed += not any([looked.result(), called.result()])
    assert missed == 0


def test_of_ingests_at_once_one_calls_the_claimer(connection: Connection, databases: Callable[[], Database]) -> None:
    make_endpoint(connection)
    assert sum(intake.must_wake for intake in at_once(databases, [[event()] for _ in range(20)])) == 1


def test_a_repeat_does_not_rely_on_a_call_that_its_first_ingest_may_not_have_made(
    connection: Connection, databases: Callable[[], Database]
) -> None:
    make_endpoint(connection)
    database = databases()
    assert store(database, [event("key")]).must_wake, "it dies between its commit and this call"
    assert store(database, [event("other")]).must_wake is False, "it relies on that call"
    again = store(database, [event("key")])
    assert again.stored[0].duplicate
    assert again.must_wake

    connection.execute("INSERT INTO forbear.claimers VALUES (%s, 'infinity')", (uuid4(),))
    assert store(database, [event("key")]).must_wake is False, "somebody is awake"
    connection.execute("DELETE FROM forbear.claimers")
    connection.execute("DELETE FROM forbear.wakes")
    assert store(database, [event("key")]).must_wake is False, "there is nothing to do"


def test_the_question_is_asked_in_another_transaction_that_sees_the_first(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True, row_factory=psycopg.rows.dict_row) as mine:
        ((first,),), asked = commit_and_ask(
            mine,
            Statement("SELECT pg_current_xact_id()::text"),
            Statement("SELECT pg_current_xact_id()::text, pg_current_snapshot()::text"),
        )
        assert asked is not None
        second, snapshot = asked
        assert first != second
        assert one(mine, "SELECT pg_visible_in_snapshot(%s::xid8, %s::pg_snapshot) AS seen", first, snapshot)


def test_a_statement_that_fails_takes_the_question_with_it_and_leaves_the_connection_usable(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True, row_factory=psycopg.rows.dict_row) as mine:
        with pytest.raises(psycopg.errors.DivisionByZero):
            commit_and_ask(mine, Statement("SELECT 1 / 0"), Statement("SELECT forbear.call_claimer()"))
        assert one(mine, "SELECT count(*) FROM forbear.claimers") == 0
        assert commit_and_ask(mine, Statement("SELECT $1::text", ["1"]), Statement("SELECT 2")) == ([("1",)], (2,))
        assert commit_and_ask(mine, Statement("SELECT $1::text", [None]), Statement("SELECT 2")) == ([(None,)], (2,))


def test_statements_are_prepared_once_a_connection(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True, row_factory=psycopg.rows.dict_row) as mine:
        for n in range(3):
            with pytest.raises(psycopg.errors.UndefinedTable):
                commit_and_ask(mine, Statement("SELECT * FROM nowhere"), Statement("SELECT 1"))
            given = Statement("SELECT $1::text", [str(n)])
            assert commit_and_ask(mine, given, Statement("SELECT 2")) == ([(str(n),)], (2,))
        names = mine.execute("SELECT statement FROM pg_prepared_statements ORDER BY name").fetchall()
        assert [row["statement"] for row in names] == ["BEGIN", "SELECT $1::text", "COMMIT", "SELECT 2"]


@pytest.mark.parametrize("gone", ["DEALLOCATE ALL", "ALTER TABLE answers ALTER n TYPE text"])
def test_what_is_no_longer_prepared_as_it_was_is_prepared_anew(
    connection: Connection, database_url: str, gone: str
) -> None:
    """Somebody stands between, or a migration changed what it answers: nothing was done, so it is done once more."""
    connection.execute("CREATE TABLE answers AS SELECT 1 AS n")
    mine = Database(database_url)
    asked = Statement("SELECT * FROM answers")

    def work(line: Any) -> Any:
        return commit_and_ask(line, asked, Statement("SELECT 2"))

    try:
        assert mine.run(work, repeatable=False) == ([(1,)], (2,))
        if gone.startswith("DEALLOCATE"):
            mine.run(lambda line: line.execute(gone), repeatable=False)
        else:
            connection.execute(gone)
        ((answer,),), asked_too = mine.run(work, repeatable=False)
        assert (str(answer), asked_too) == ("1", (2,))
    finally:
        mine.close()


def test_a_question_that_fails_does_not_undo_what_is_committed(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True, row_factory=psycopg.rows.dict_row) as mine:
        assert commit_and_ask(mine, Statement("SELECT 1"), Statement("SELECT 1 / 0")) == ([(1,)], None)
        assert one(mine, "SELECT 3") == 3


class Line:
    """The ingest function behind a line that tests can watch and cut."""

    def __init__(self, line: Wire, calls: list[object]) -> None:
        self.wire = line
        self.calls = calls
        assert self.post()[0] == 202
        self.calls.clear()
        line.watch()

    def post(self, key: str | None = None, path: str = "/v1/events", body: bytes = BODY) -> tuple[int, Any, Any]:
        headers = {"idempotency-key": key} if key else {}
        result = ingest.handler(http_event("POST", path, headers=headers, body=body), None)
        return result["statusCode"], result["headers"], body_of(result)


@pytest.fixture
def line(url_of: Callable[[str], str], connection: Connection, handlers: pytest.MonkeyPatch) -> Iterator[Line]:
    """The function with its connection open, and one event stored."""
    calls: list[object] = []
    handlers.setattr("forbear.waking.invoke_claimer", remembering(calls))
    make_endpoint(connection)
    with wire(url_of("forbear_ingest")) as (proxy, url):
        handlers.setenv("FORBEAR_DATABASE_URL", url)
        forget()
        yield Line(proxy, calls)
        forget()


def stored(connection: Connection) -> int:
    """How many events are there, the fixture's left out."""
    return int(one(connection, "SELECT count(*) FROM forbear.events")) - 1


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not happened():
        assert time.monotonic() < deadline


def up_to(message: bytes) -> Callable[[bytes], int | None]:
    """Let an answer through to the end of its first message that begins like this; nothing if it has none."""

    def cut(answer: bytes) -> int | None:
        at = answer.find(message)
        return None if at < 0 else at + len(message)

    return cut


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/events", BODY),
        ("/v1/events", BODY.replace(b"{}", b'"%s"' % (b"x" * 500_000))),
        ("/v1/events/batch", b'{"events":[%s]}' % b",".join([BODY] * 100)),
    ],
)
@pytest.mark.parametrize("key", [None, "k"])
def test_an_event_or_a_batch_costs_one_round_trip(line: Line, path: str, body: bytes, key: str | None) -> None:
    line.wire.hold_answers = True
    assert line.post(key, path, body)[0] in {202, 207}
    kinds = [kind for kind, _ in line.wire.sent]
    end = kinds.index(SYNC) + 1
    assert kinds[:end].count(b"E") == 4, "Execute: BEGIN, the statement, COMMIT, the question"
    assert {answered for _, answered in line.wire.sent[:end]} == {0}, "nothing that was sent waited for an answer"
    assert set(kinds[end:]) <= {b"H"}, "a Flush, which asks for nothing"


def test_whether_a_claimer_is_awake_is_asked_after_the_commit(line: Line, connection: Connection) -> None:
    connection.execute("DELETE FROM forbear.wakes")
    connection.execute("UPDATE forbear.claimers SET awake_until = 'infinity'")
    line.wire.pause = True
    with ThreadPoolExecutor(1) as pool:
        posted = pool.submit(line.post)
        assert line.wire.paused.wait(10)
        # The server has done what it was sent so far, and waits for more.
        inserted = (
            "SELECT EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE relation = 'forbear.wakes'::regclass AND wait_event = 'ClientRead')"
        )
        wait_until(lambda: one(connection, inserted))
        # A claimer falls asleep: it takes its mark away, looks once more, and cannot see what is not committed.
        connection.execute("DELETE FROM forbear.claimers")
        assert not one(connection, "SELECT EXISTS (SELECT FROM forbear.wakes)")
        line.wire.resume.set()
        assert posted.result()[0] == 202
    assert len(line.calls) == 1


def test_without_a_key_a_line_lost_after_the_commit_is_unavailable_and_nobody_repeats_it(
    line: Line, connection: Connection
) -> None:
    line.wire.cut_at_answer = lambda _: 0
    status, headers, problem = line.post()
    assert status == 503
    assert int(headers["retry-after"]) > 0
    assert "not known" in problem["detail"]
    assert "Idempotency-Key" in problem["detail"]
    assert stored(connection) == 1
    assert line.post()[0] == 202, "the next one has a line of its own"


def test_without_a_key_a_line_lost_before_the_commit_is_unavailable_too(line: Line, connection: Connection) -> None:
    line.wire.cut_at_once = True
    status, _, problem = line.post()
    assert status == 503
    assert "not known" in problem["detail"]
    assert stored(connection) == 0


def test_with_a_key_a_line_lost_after_the_commit_is_repeated_and_wakes_a_claimer(
    line: Line, connection: Connection
) -> None:
    line.wire.cut_at_answer = lambda _: 0
    status, _, answer = line.post("k")
    assert (status, answer["deliveries"], answer["duplicate"]) == (202, 1, True)
    assert stored(connection) == 1
    assert len(line.calls) == 1, "the answer that was lost may have told us to"


def test_with_a_key_a_line_lost_before_the_commit_is_repeated(line: Line, connection: Connection) -> None:
    line.wire.cut_at_once = True
    status, _, answer = line.post("k")
    assert (status, answer["duplicate"]) == (202, False)
    assert stored(connection) == 1


def test_a_line_lost_once_the_commit_is_confirmed_is_a_success(line: Line, connection: Connection) -> None:
    line.wire.cut_at_answer = up_to(b"COMMIT\0")
    status, _, answer = line.post()
    assert (status, answer["deliveries"], answer["duplicate"]) == (202, 1, False)
    assert stored(connection) == 1
    assert len(line.calls) == 1, "whether a claimer is awake could not be asked"


def test_a_batch_without_keys_is_not_repeated_and_one_with_a_key_is(line: Line, connection: Connection) -> None:
    batch = b'{"events":[%s,%s]}' % (BODY, BODY)
    line.wire.cut_at_answer = lambda _: 0
    assert line.post(None, "/v1/events/batch", batch)[0] == 503
    line.wire.cut_at_answer = None
    assert line.post("warm")[0] == 202
    line.wire.watch()
    line.wire.cut_at_answer = lambda _: 0
    status, _, answer = line.post("b", "/v1/events/batch", batch)
    assert status == 207
    assert [result["duplicate"] for result in answer["results"]] == [True, True]
    assert stored(connection) == 2 + 1 + 2


def test_a_connection_that_the_server_closed_meanwhile_is_replaced_unseen(line: Line, connection: Connection) -> None:
    killed = (
        "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity"
        " WHERE application_name = 'forbear' AND datname = current_database()"
    )
    assert one(connection, killed) == 1
    assert line.post()[0] == 202


def test_a_writer_that_became_a_reader_is_left_and_the_event_stored_once(line: Line, connection: Connection) -> None:
    read_only = "SET default_transaction_read_only = on"
    ingest.database().run(lambda mine: mine.execute(read_only), repeatable=True)
    assert line.post()[0] == 202
    assert stored(connection) == 1
