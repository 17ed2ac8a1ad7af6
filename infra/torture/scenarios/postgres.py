"""PostgreSQL killed, restarted, standing still, cut off, read-only, full, or in others' hands."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psycopg

from infra.local.deployment import CLAIMER
from infra.torture.faults import family, in_flight, limited, pause, send, standing_still, traffic
from infra.torture.ledger import Acknowledged, Receipt
from infra.torture.scenario import QUICK, Round, Scenario
from infra.torture.world import World, until

# PostgreSQL's log is in segments of 16 MiB, which a limit of a file's size must let through.
FILE_BYTES = 17 << 20
# Longer than any lease here.
LONG_S = 60.0


async def server_killed(played: Round) -> None:
    """The postmaster and all its children, at random instants."""
    async with traffic(played):
        for _ in range(played.rng.randint(1, 2)):
            await in_flight(played, 2)
            await pause(played, 0.3)
            played.strike()
            send(signal.SIGKILL, family(played.world.postgres.pid))
            await played.world.restart_postgres("kill")


async def backend_killed(played: Round) -> None:
    """One server process is enough: PostgreSQL ends all the others and starts over."""
    world = played.world
    async with traffic(played):
        for _ in range(played.rng.randint(1, 3)):
            await in_flight(played, 2)
            backends = await played.until(lambda: _backends(world), "a function to be connected")
            mine = await world.sql("SELECT pg_backend_pid()")
            await pause(played, 0.2)
            played.strike()
            send(signal.SIGKILL, [played.rng.choice(backends)[0]])
            await _started_over(world, mine)


async def _backends(world: World) -> list[Any]:
    """The processes of the server that functions are connected to."""
    return await world.sql(
        "SELECT pid FROM pg_stat_activity WHERE usename LIKE 'forbear\\_%' AND state IS NOT NULL ORDER BY pid"
    )


async def server_restarted(played: Round) -> None:
    """In order (fast): what is under way is rolled back."""
    async with traffic(played):
        for _ in range(played.rng.randint(1, 2)):
            await in_flight(played, 2)
            await pause(played, 0.3)
            played.strike()
            await played.world.restart_postgres("fast")


async def stands_still(played: Round) -> None:
    """For longer than leases last: what was sent meanwhile is answered, and its result comes too late."""
    world = played.world
    await played.endpoint()
    played.hold()
    posted = played.rng.randint(5, 30)
    await played.post(posted)
    await in_flight(played, posted)
    coming = asyncio.create_task(played.post(played.rng.randint(1, 5)))
    await pause(played, 0.1)
    played.strike()
    world.proxy.freeze()
    with standing_still(family(world.postgres.pid)):
        played.release()
        await pause(played, 1.0, 0.2)
    # Nothing passes yet: to everybody else the server has stood still all this time.
    await world.move_clock(LONG_S)
    if played.rng.random() < 0.5:
        world.proxy.cut()
    world.proxy.thaw()
    await coming


async def connections_cut(played: Round) -> None:
    """All or one, wherever they are in what they do."""
    proxy = played.world.proxy
    async with traffic(played):
        for _ in range(played.rng.randint(3, 8)):
            await in_flight(played, 1)
            await pause(played, 0.15)
            played.strike()
            if played.rng.random() < 0.3:
                proxy.cut(played.rng.choice([None, "forbear_claimer", "forbear_ingest"]))
            elif links := sorted(proxy.links, key=lambda link: link.client_port):
                played.rng.choice(links).cut()


async def writer_reads_only(played: Round) -> None:
    """As after a fail-over: the connections stand, and refuse to write. Then the writer is back."""
    async with traffic(played):
        for _ in range(played.rng.randint(1, 3)):
            await in_flight(played, 2)
            played.strike()
            async with _setting(played.world, "default_transaction_read_only", "on"):
                await pause(played, 0.8, 0.1)


async def disk_full(played: Round) -> None:
    """Tables cannot grow: events are refused, with a word that nothing was stored, and results wait."""
    world = played.world
    await _fill(world)
    async with traffic(played):
        await in_flight(played, 2)
        played.strike()
        with limited(family(world.postgres.pid), "fsize", FILE_BYTES):
            for _ in range(300):
                refusal = await _refusal(played)
                if refusal is not None:
                    break
            await pause(played, 0.8, 0.2)
            backends = family(world.postgres.pid)
        # Those that began under the limit have it from the postmaster.
        with limited(backends, "fsize", FILE_BYTES):
            pass
    played.expect(
        refusal is not None and "nothing was stored" in refusal,
        f"with its disk full the database took everything, or ingest said {refusal!r}",
    )


async def gives_way(played: Round) -> None:
    """Serialization failures now here, now there, several in a row; and a server whose default is another isolation."""
    world = played.world
    tables = "events", "wakes", "history", "queue_attempts", "claimers"
    level = played.rng.choice(["serializable", "repeatable read"])
    sqlstate = played.rng.choice(["40001", "40P01"])
    await world.sql(
        "CREATE OR REPLACE FUNCTION public.torture() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF random() < 0.25 THEN RAISE 'give way' USING ERRCODE = '{sqlstate}'; END IF; RETURN NULL; END $$"
    )
    async with traffic(played), _setting(world, "default_transaction_isolation", level):
        try:
            for table in tables:
                await world.sql(
                    f"CREATE TRIGGER torture AFTER INSERT ON forbear.{table} EXECUTE FUNCTION public.torture()"
                )
            for _ in range(played.rng.randint(2, 4)):
                world.stack.functions.invoke_async(CLAIMER, b'{"forbear": "full"}')
                await in_flight(played, 1)
                played.strike()
                await pause(played, 0.6)
        finally:
            for table in tables:
                await world.sql(f"DROP TRIGGER IF EXISTS torture ON forbear.{table}")


async def deadlocks(played: Round) -> None:
    """Somebody locks deliveries and lanes in the wrong order, and takes his time."""
    world = played.world
    counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    before = (await world.sql(counted))[0][0]

    async def answer(receipt: Receipt) -> int:
        await asyncio.sleep(played.rng.uniform(0.02, 0.1))
        return played.rng.choice([204, 500]) if receipt.path.endswith("/failing") else 204

    async with traffic(played), _setting(world, "deadlock_timeout", "20ms"):
        # Failures that are counted: settling them locks lanes, and then deliveries.
        patient = {"kind": "ladder", "gaps_s": [1], "repeat_last": True, "retries": 30, "jitter": {"kind": "none"}}
        breaker = {"failures": 10_000}
        await played.endpoint("/failing", policy={**QUICK, "schedule": patient, "breaker": breaker})
        played.behave(answer)
        await in_flight(played, 2)
        played.strike()

        async def deadlocked() -> bool:
            with contextlib.suppress(psycopg.errors.DeadlockDetected):
                await _lock_the_wrong_way_round(played)
            return bool((await world.sql(counted))[0][0] > before)

        await played.until(deadlocked, "a deadlock")
        for _ in range(10):
            await deadlocked()
        played.behave(lambda _receipt: 204)


async def transaction_held(played: Round) -> None:
    """A snapshot from long ago, and for a while a lock on a lane: the queue turns over all the same."""
    world = played.world
    async with traffic(played), await psycopg.AsyncConnection.connect(world.postgres.url()) as holder:
        await holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await holder.execute("SELECT count(*) FROM forbear.queue")
        for _ in range(2):
            played.strike()
            await pause(played, 0.4)
            await in_flight(played, 1)
        await world.move_clock(played.rng.uniform(1, 100))
        async with await psycopg.AsyncConnection.connect(world.postgres.url()) as locker:
            await locker.execute(
                "SELECT FROM forbear.lanes WHERE tenant = %s ORDER BY endpoint_id LIMIT 1 FOR UPDATE", (played.tenant,)
            )
            await pause(played, 0.6, 0.2)
        await pause(played, 0.5)
        await holder.rollback()


async def _started_over(world: World, before: list[tuple[Any, ...]]) -> None:
    """Wait until the server answers by another process than before: it ends them all when it starts over."""

    async def answers_anew() -> bool:
        try:
            return await world.sql("SELECT pg_backend_pid()") != before
        except psycopg.OperationalError:
            return False

    await until(answers_anew, "the server to start over")


@asynccontextmanager
async def _setting(world: World, name: str, value: str) -> AsyncIterator[None]:
    """A setting of the server's, for running sessions, too, for as long as the block lasts."""

    async def reload(statement: str, *, there: bool) -> None:
        await world.sql(statement)
        await world.sql("SELECT pg_reload_conf()")

        async def read() -> bool:
            return bool((await world.sql(f"SHOW {name}"))[0][0] == value) is there

        await until(read, f"{name} to be read")

    await reload(f"ALTER SYSTEM SET {name} = '{value}'", there=True)
    try:
        yield
    finally:
        await reload(f"ALTER SYSTEM RESET {name}", there=False)


async def _fill(world: World) -> None:
    """Make today's tables of events and attempts larger than files may be."""
    # So many bytes are kept in their row, as they are.
    rows = "SELECT decode(repeat('f0', 1900), 'hex') AS bytes FROM generate_series(1, %s)"
    events = (
        "INSERT INTO forbear.events (id, tenant, type, content_type, payload)"
        f" SELECT forbear.new_id(), 'filler', 'filler', 'text/plain', bytes FROM ({rows}) RETURNING tableoid"
    )
    attempts = (
        "INSERT INTO forbear.history_attempts (delivery_id, number, generation, started_at, latency_ms, url,"
        " request_headers, status, verdict, ended_at)"
        f" SELECT uuidv7(), 1, 1, now(), 1, '', bytes, 204, 'success', forbear.now() FROM ({rows}) RETURNING tableoid"
    )
    for statement in (events, attempts):
        table = (await world.sql(statement, 1))[0][0]
        missing = FILE_BYTES - (await world.sql("SELECT pg_relation_size(%s::oid)", table))[0][0]
        if missing > 0:
            await world.sql(statement, missing // 1900 + 100)


async def _refusal(played: Round) -> str | None:
    """Post one event, once. None: it was acknowledged. Otherwise what was said."""
    payload = '{"big": "%s"}' % ("x" * 1500)
    answer = await played.world.client.post(
        f"{played.world.stack.api_url}/v1/events",
        content=f'{{"tenant":"{played.tenant}","type":"torture.once","payload":{payload}}}',
        headers={"content-type": "application/json"},
    )
    if answer.status_code == 202:
        played.acknowledged[answer.json()["id"]] = Acknowledged(answer.json()["deliveries"], payload.encode())
        return None
    return answer.text


async def _lock_the_wrong_way_round(played: Round) -> None:
    async with await psycopg.AsyncConnection.connect(played.world.postgres.url()) as mine:
        locked: Any = await mine.execute(
            "SELECT q.endpoint_id FROM forbear.queue q JOIN forbear.lanes l USING (endpoint_id)"
            " WHERE l.tenant = %s AND q.lease_token IS NOT NULL ORDER BY q.id DESC LIMIT 20 FOR UPDATE OF q",
            (played.tenant,),
        )
        await locked.fetchall()
        await pause(played, 0.15, 0.02)
        await mine.execute(
            "SELECT FROM forbear.lanes WHERE tenant = %s ORDER BY endpoint_id DESC FOR UPDATE", (played.tenant,)
        )


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("postgres-killed", "A server that dies and recovers has all that was acknowledged.", server_killed),
    Scenario("postgres-backend-killed", "One server process that dies costs connections, no event.", backend_killed),
    Scenario("postgres-restarted", "A restart costs retries, no event and no delivery.", server_restarted),
    Scenario(
        "postgres-stands-still",
        "What was sent before a long standstill comes too late to count, and is sent once more.",
        stands_still,
    ),
    Scenario("postgres-connections-cut", "A connection may end at any byte.", connections_cut),
    Scenario("postgres-reads-only", "A writer that became a reader is left, and found again.", writer_reads_only),
    Scenario("postgres-disk-full", "What cannot be stored is not acknowledged, and all goes on after.", disk_full),
    Scenario("postgres-gives-way", "Who must give way to another transaction goes again.", gives_way),
    Scenario("postgres-deadlocks", "A deadlock costs a moment, and no result.", deadlocks),
    Scenario("postgres-transaction-held", "Nobody else's transaction holds the queue up.", transaction_held),
)
