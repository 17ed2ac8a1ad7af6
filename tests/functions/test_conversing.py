"""What a served connection promises beyond psycopg's."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import psycopg
import pytest
import uvloop

from forbear.conversing import ServedConnection
from tests.functions.builders import one
from tests.functions.scripted import until

SLEEPING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [asyncio.new_event_loop, uvloop.new_event_loop]


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[ServedConnection]:
    connection = await ServedConnection.connect(url, autocommit=True)
    try:
        yield connection
    finally:
        await connection.close()


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    """Runs a coroutine."""

    def run(work: Any) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(asyncio.wait_for(work, 30))

    return run


def test_answers_come_in_pieces_and_are_whole(database_url: str, run: Callable[[Any], Any]) -> None:
    async def ask() -> Any:
        async with connected(database_url) as connection:
            cursor = await connection.execute("SELECT repeat(n::text, 1000) FROM generate_series(1, 5000) n")
            return await cursor.fetchall()

    assert run(ask()) == [(str(n) * 1000,) for n in range(1, 5001)]


def test_what_the_socket_takes_in_small_pieces_arrives_as_a_whole(database_url: str, run: Callable[[Any], Any]) -> None:
    """In a pipeline, psycopg itself waits for the answer once the last statement is handed over, written or not."""

    async def ask() -> Any:
        async with connected(database_url) as connection:
            with socket.socket(fileno=os.dup(connection.fileno())) as narrow:
                narrow.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            lengths = []
            for _ in range(5):
                async with connection.pipeline():
                    first = await connection.execute("SELECT octet_length(%b::bytea)", (b"x" * 2_000_000,))
                    second = await connection.execute("SELECT octet_length(%b::bytea)", (b"x" * 1_000_000,))
                lengths.append((await first.fetchall(), await second.fetchall()))
            return lengths

    assert run(ask()) == [([(2_000_000,)], [(1_000_000,)])] * 5


def test_errors_are_raised_and_the_connection_goes_on(database_url: str, run: Callable[[Any], Any]) -> None:
    async def ask() -> Any:
        async with connected(database_url) as connection:
            with pytest.raises(psycopg.errors.DivisionByZero):
                await connection.execute("SELECT 1 / 0")
            return await (await connection.execute("SELECT 1")).fetchall()

    assert run(ask()) == [(1,)]


@pytest.mark.parametrize("at_work", [False, True])
def test_a_connection_that_has_ended_or_ends_meanwhile_is_told(
    connection: psycopg.Connection[Any], database_url: str, run: Callable[[Any], Any], at_work: bool
) -> None:
    async def ask() -> None:
        async with connected(database_url) as waiting:
            sleeping = asyncio.create_task(waiting.execute("SELECT pg_sleep(60)"))
            if at_work:
                await until(lambda: one(connection, SLEEPING) == 1)
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (waiting.info.backend_pid,))
            with pytest.raises(psycopg.OperationalError):
                await sleeping

    run(ask())


def test_who_is_cancelled_ends_the_statement_and_the_connection(
    connection: psycopg.Connection[Any], database_url: str, run: Callable[[Any], Any]
) -> None:
    async def ask() -> None:
        async with connected(database_url) as waiting:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await waiting.execute("SELECT pg_sleep(60)")
            assert waiting.closed

    run(ask())
    while one(connection, SLEEPING):
        pass  # the suite's time limit ends it


def test_who_is_cancelled_twice_leaves_a_closed_connection_too(
    connection: psycopg.Connection[Any], database_url: str, run: Callable[[Any], Any]
) -> None:
    async def ask() -> None:
        async with connected(database_url) as waiting:
            asking = asyncio.create_task(waiting.execute("SELECT pg_sleep(60)"))
            await until(lambda: one(connection, SLEEPING) == 1)
            asking.cancel()
            await asyncio.sleep(0)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert waiting.closed
            connection.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'PgSleep'")

    run(ask())


def test_nothing_is_left_in_the_loop(database_url: str) -> None:
    async def ask() -> None:
        loop = asyncio.get_running_loop()
        async with connected(database_url) as connection:
            await connection.execute("SELECT 1")
            assert not loop.remove_reader(connection.fileno())
            assert not loop.remove_writer(connection.fileno())

    asyncio.run(ask())
