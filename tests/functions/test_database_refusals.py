"""When the database is there and refuses: what is certain is said, what can be is repeated, no result is dropped."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

import ingest
from forbear.db import GIVE_WAY_S, Database, Target, Unavailable, hung_up
from infra.local.postgres import EmbeddedPostgres
from infra.torture.faults import limited
from tests.functions.builders import make_endpoint, one, post, run
from tests.functions.conftest import remembering
from tests.functions.events import body_of, http_event
from tests.functions.scripted import Claimer, always, running, until

type Connection = psycopg.Connection[Any]
BODY = b'{"tenant":"acme","type":"order.paid","payload":{}}'
FOR_EVER = 1_000_000


@pytest.fixture(autouse=True)
def calls(handlers: pytest.MonkeyPatch) -> list[object]:
    """Grows by one whenever ingest invokes a claimer."""
    calls: list[object] = []
    handlers.setattr("forbear.waking.invoke_claimer", remembering(calls))
    return calls


def refuse(connection: Connection, table: str, sqlstate: str, times: int) -> None:
    """Have inserts into a table fail so many times with an error of the server's."""
    connection.execute(
        "CREATE SEQUENCE public.refusals;"  # what a sequence counts is not rolled back
        " CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN"
        f" IF nextval('public.refusals') <= {times} THEN RAISE 'refused' USING ERRCODE = '{sqlstate}'; END IF;"
        " RETURN NEW; END $$;"
        f" CREATE TRIGGER refuse BEFORE INSERT ON forbear.{table} FOR EACH ROW EXECUTE FUNCTION public.refuse()"
    )


def take_in() -> dict[str, Any]:
    return ingest.handler(http_event("POST", "/v1/events", headers={}, body=BODY), None)


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_who_must_give_way_several_times_in_a_row_is_served(connection: Connection, sqlstate: str) -> None:
    make_endpoint(connection)
    refuse(connection, "events", sqlstate, len(GIVE_WAY_S))
    assert take_in()["statusCode"] == 202
    assert one(connection, "SELECT count(*) FROM forbear.events") == 1


@pytest.mark.parametrize("sqlstate", ["25006", "40001", "53100", "57014", "58030", "XX000"])
def test_an_event_that_the_database_cannot_take_gets_a_503_that_says_so(connection: Connection, sqlstate: str) -> None:
    make_endpoint(connection)
    refuse(connection, "events", sqlstate, FOR_EVER)
    answer = take_in()
    assert answer["statusCode"] == 503
    assert "nothing was stored" in body_of(answer)["detail"]
    assert one(connection, "SELECT count(*) FROM forbear.events") == 0


@pytest.mark.parametrize(("sqlstate", "times"), [("40001", 4), ("53100", 2), ("58030", 2), ("XX000", 2)])
def test_results_that_the_database_cannot_take_now_wait_until_it_can(
    connection: Connection, database_url: str, sqlstate: str, times: int
) -> None:
    """No attempt is made twice, and none counts as lost."""
    make_endpoint(connection)
    post(connection, *[b"1"] * 20)
    refuse(connection, "history", sqlstate, times)

    async def drained() -> Any:
        claimer = Claimer(database_url, always(200))
        async with running(claimer, 20) as task:
            await until(lambda: one(connection, "SELECT count(*) FROM forbear.history WHERE state = 'delivered'") == 20)
            return await task, claimer.sender.requests

    tally, requests = run(drained())
    assert (tally.delivered, tally.late, len(requests)) == (20, 0, 20)


def test_statements_run_as_they_were_written_for_whatever_the_servers_default_is(
    connection: Connection, database_url: str
) -> None:
    connection.execute("ALTER ROLE forbear_ingest SET default_transaction_isolation = 'serializable'")
    try:
        database = Database(Target(database_url))
        connection.execute(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = ''repeatable read''',"
            " current_database()); END $$"
        )
        level = database.run(lambda mine: one(mine, "SHOW transaction_isolation"), repeatable=True)
        database.close()
    finally:
        connection.execute("ALTER ROLE forbear_ingest RESET default_transaction_isolation")
    assert level == "read committed"


def test_who_stood_still_in_a_transaction_for_too_long_does_it_again(database_url: str) -> None:
    """As after a thaw: the server has rolled it back and hung up, so nothing was done."""
    database = Database(database_url)
    runs = []

    def work(mine: psycopg.Connection[Any]) -> int:
        runs.append(mine)
        with mine.transaction():
            mine.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{0 if len(runs) > 1 else 20}ms'")
            if len(runs) == 1:
                wait_for_the_farewell(mine)
            return int(one(mine, "SELECT 42"))

    assert database.run(work, repeatable=False) == 42
    assert len(runs) == 2
    database.close()


def wait_for_the_farewell(mine: psycopg.Connection[Any]) -> None:
    deadline = time.monotonic() + 10
    while not hung_up(mine):
        assert time.monotonic() < deadline


@pytest.mark.skipif(sys.platform != "linux", reason="limits of other processes are set on Linux only")
def test_of_a_server_that_ends_itself_nobody_knows_whether_it_wrote_the_commit(tmp_path: Path) -> None:
    """It cannot write its log ahead of it any more: a PANIC, under the same code as an error that is rolled back."""
    server = EmbeddedPostgres(tmp_path, durable=False)
    server.start()
    try:
        database = Database(server.url())

        def fill(mine: psycopg.Connection[Any]) -> None:
            with limited([one(mine, "SELECT pg_backend_pid()")], "fsize", 1 << 20):
                mine.execute("SELECT pg_logical_emit_message(true, 'more', repeat('x', 10_000_000))")

        with pytest.raises(Unavailable, match="could not write to log file") as raised:
            database.run(fill, repeatable=False)
        assert not raised.value.nothing_done
        # While it starts over, a shutdown may hang.
        assert database.run(lambda mine: one(mine, "SELECT 1"), repeatable=True) == 1
        database.close()
    finally:
        server.stop()
