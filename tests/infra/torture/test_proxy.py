"""The proxy before a real PostgreSQL: what passes, what is held, cut, refused, and at which step it calls back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from urllib.parse import urlsplit

import psycopg
import pytest

from infra.torture.processes import owner_of
from infra.torture.proxy import Link, PostgresProxy, Where
from infra.torture.world import until

type Connect = Callable[[], psycopg.AsyncConnection[tuple[int]]]
ROWS = "SELECT n FROM generate_series(1, 3) n"


@pytest.fixture
async def proxy(database_url: str) -> AsyncIterator[PostgresProxy]:
    running = PostgresProxy(int(urlsplit(database_url).port or 0))
    await running.start()
    yield running
    await running.stop()


async def connect(proxy: PostgresProxy, database_url: str) -> psycopg.AsyncConnection[tuple[int]]:
    parts = urlsplit(database_url)
    through = parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{proxy.port}").geturl()
    return await psycopg.AsyncConnection.connect(through, autocommit=True, prepare_threshold=None, connect_timeout=5)


async def fetch(connection: psycopg.AsyncConnection[tuple[int]], sql: str = ROWS) -> list[tuple[int]]:
    return await (await connection.execute(sql.encode(), binary=True)).fetchall()


async def test_what_passes_is_what_was_sent_and_is_counted(proxy: PostgresProxy, database_url: str) -> None:
    async with await connect(proxy, database_url) as connection:
        assert await fetch(connection) == [(1,), (2,), (3,)]
        async with connection.pipeline():
            cursors = [await connection.execute(ROWS) for _ in range(3)]
        assert [len(await cursor.fetchall()) for cursor in cursors] == [3, 3, 3]
        large = await fetch(connection, "SELECT length(repeat('x', 5000000))")
        assert large == [(5_000_000,)]
    assert proxy.count("forbear", "generate_series") == 4
    await until(lambda: not proxy.links, "the connection to end")


@pytest.mark.parametrize("where", ["before", "half", "first byte", "answered"])
async def test_a_step_is_called_once_and_then_all_goes_on(
    proxy: PostgresProxy, database_url: str, where: Where
) -> None:
    called = []

    async def call(link: Link) -> None:
        called.append(link.role)

    step = proxy.at("forbear", "generate_series", where, call)
    async with await connect(proxy, database_url) as connection:
        assert [len(await fetch(connection)) for _ in range(2)] == [3, 3]
    assert called == ["forbear"]
    assert step.fired.is_set()
    assert step.done.is_set()


@pytest.mark.parametrize(("where", "stored"), [("before", 0), ("half", 0), ("first byte", 1), ("answered", 1)])
async def test_what_is_cut_before_it_was_whole_is_not_done_and_what_is_cut_later_is(
    proxy: PostgresProxy, database_url: str, where: Where, stored: int
) -> None:
    async def cut(link: Link) -> None:
        link.cut()

    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as direct:
        await direct.execute("CREATE TABLE public.kept (n int)")
        step = proxy.at(None, "INSERT INTO public.kept", where, cut)
        async with await connect(proxy, database_url) as connection:
            with pytest.raises(psycopg.OperationalError):
                await connection.execute("INSERT INTO public.kept VALUES (%s)", (1,))
        await step.done.wait()
        cursor = await direct.execute("SELECT count(*) FROM public.kept")
        assert await cursor.fetchone() == (stored,)


async def test_a_step_waits_for_an_answer_with_rows_and_for_a_request_of_its_size(
    proxy: PostgresProxy, database_url: str
) -> None:
    async def call(_link: Link) -> None:
        pass

    rows = proxy.at(None, "generate_series", "answered", call, least_rows=3)
    size = proxy.at(None, "SELECT", "before", call, least_bytes=10_000)
    async with await connect(proxy, database_url) as connection:
        await fetch(connection, "SELECT n FROM generate_series(1, 2) n")
        assert not rows.fired.is_set()
        await fetch(connection)
        assert rows.fired.is_set()
        assert not size.fired.is_set()
        await connection.execute("SELECT %s", ("x" * 10_000,))
        assert size.fired.is_set()


async def test_what_a_callback_raises_is_kept_and_harms_nobody(proxy: PostgresProxy, database_url: str) -> None:
    async def fail(_link: Link) -> None:
        raise LookupError

    proxy.at(None, "generate_series", "before", fail)
    async with await connect(proxy, database_url) as connection:
        assert len(await fetch(connection)) == 3
    assert [type(error) for error in proxy.failures] == [LookupError]


async def test_only_the_roles_connections_are_cut(proxy: PostgresProxy, database_url: str) -> None:
    async with await connect(proxy, database_url) as connection:
        assert proxy.cut("forbear_claimer") == 0
        assert len(await fetch(connection)) == 3
        assert proxy.cut("forbear") == 1
        with pytest.raises(psycopg.OperationalError):
            await fetch(connection)


async def test_new_connections_are_refused_and_old_ones_stay(proxy: PostgresProxy, database_url: str) -> None:
    async with await connect(proxy, database_url) as connection:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError, match="refused"):
            await connect(proxy, database_url)
        assert len(await fetch(connection)) == 3
        await proxy.admit()
        async with await connect(proxy, database_url) as another:
            assert len(await fetch(another)) == 3


async def test_frozen_nothing_passes_and_thawed_everything_does(proxy: PostgresProxy, database_url: str) -> None:
    async with await connect(proxy, database_url) as connection:
        proxy.freeze("forbear")
        fetching = asyncio.create_task(fetch(connection))
        connecting = asyncio.create_task(connect(proxy, database_url))
        await until(lambda: len(proxy.links) == 2, "the second connection")
        done, _ = await asyncio.wait([fetching, connecting], timeout=0.2)
        assert not done
        proxy.thaw()
        assert len(await fetching) == 3
        async with await connecting as another:
            assert len(await fetch(another)) == 3


async def test_a_delay_holds_what_passes(proxy: PostgresProxy, database_url: str) -> None:
    async with await connect(proxy, database_url) as connection:
        proxy.delay(0.05, "forbear")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await fetch(connection)
        assert loop.time() - began >= 0.1  # to the server and back
        proxy.reset()
        assert len(await fetch(connection)) == 3


async def test_it_follows_postgresql_to_another_port(proxy: PostgresProxy, database_url: str) -> None:
    port = proxy.upstream[1]
    proxy.follow(1)
    with pytest.raises(psycopg.OperationalError):
        await connect(proxy, database_url)
    proxy.follow(port)
    async with await connect(proxy, database_url) as connection:
        assert len(await fetch(connection)) == 3


async def test_a_connections_process_is_found_by_its_port(proxy: PostgresProxy, database_url: str) -> None:
    async with await connect(proxy, database_url):
        (link,) = proxy.links
        assert owner_of(link.client_port, proxy.port, [1, os.getpid()]) == os.getpid()
        with pytest.raises(LookupError):
            owner_of(link.client_port, proxy.port, [])
