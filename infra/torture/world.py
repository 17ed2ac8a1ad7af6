"""The world that is tortured: PostgreSQL with fsync on, the proxy before it, the local stack, and receivers.

One world serves many rounds. Owns starting and stopping it, and the faults that concern processes: killing functions
and restarting PostgreSQL. Knows no scenario and no ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
import psycopg

from infra.local.deployment import CLAIMER, FUNCTIONS, bring_up, local_stack
from infra.local.pool import LineSink
from infra.local.postgres import EmbeddedPostgres
from infra.local.stack import LocalStack, Timing
from infra.torture.authority import Authority
from infra.torture.names import Internet
from infra.torture.processes import owner_of
from infra.torture.proxy import Link, PostgresProxy
from infra.torture.receivers import Receivers
from infra.torture.wrong_clock import FOLDER, set_clocks

# A minute of the schedule, and what the claimer is told of it.
MINUTE_S = 1.0
KEY = "key"
# The functions run as everywhere, but for a clock that can be set wrong; the claimer's internet is made up.
RUNTIME = "infra.torture.runtime"
HANDLERS = {CLAIMER: "infra.torture.claimer.handler"}
_PATIENCE_S = 20.0
# After a crash PostgreSQL syncs its files: one by one, that is most of a round's time.
OPTIONS = ("-c", "max_connections=200", "-c", "recovery_init_sync_method=syncfs")


@dataclass
class World:
    """What a round acts on."""

    postgres: EmbeddedPostgres
    proxy: PostgresProxy
    stack: LocalStack
    receivers: Receivers
    client: httpx.AsyncClient
    internet: Internet
    authority: Authority
    _connection: psycopg.AsyncConnection[Any] | None = field(default=None, repr=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, repr=False)

    def pids(self, function: str) -> list[int]:
        """The processes of a function's environments, the longest running first."""
        return list(self.stack.functions.pids(function))

    async def kill(self, function: str) -> list[int]:
        """SIGKILL all environments of a function, and wait until they are gone. Gives their process ids."""
        pids = self.pids(function)
        await self._kill(function, pids)
        return pids

    async def kill_at(self, function: str, link: Link) -> int:
        """SIGKILL the one environment whose connection this is, and wait until it is gone. Gives its process id.

        What of it is still in the proxy is not passed on.

        Raises:
            LookupError: the connection is none of this function's.
        """
        pid = owner_of(link.client_port, self.proxy.port, self.pids(function))
        link.cut()
        await self._kill(function, [pid])
        return pid

    async def restart_postgres(self, how: Literal["kill", "fast"]) -> None:
        """End PostgreSQL, by SIGKILL or in order, and start it again; the proxy follows it to its new port."""
        if how == "kill":
            await asyncio.to_thread(_kill_server, self.postgres)
        await asyncio.to_thread(self.postgres.stop)
        await asyncio.to_thread(self.postgres.start)
        self.proxy.follow(self.postgres.port)

    async def sql(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement as the superuser, past the proxy. Gives its rows."""
        async with self._turn:
            for _ in range(2):
                if self._connection is None or self._connection.closed:
                    self._connection = await psycopg.AsyncConnection.connect(self.postgres.url(), autocommit=True)
                try:
                    cursor = await self._connection.execute(statement.encode(), parameters or None)
                    return await cursor.fetchall() if cursor.description else []
                except psycopg.OperationalError:  # PostgreSQL was restarted since
                    await self._connection.close()
            raise psycopg.OperationalError("PostgreSQL cannot be reached")

    async def move_clock(self, seconds: float) -> None:
        """Let time pass for everything that goes by the database's clock."""
        await self.sql("UPDATE forbear.clock SET shift = shift + %s * interval '1 second'", seconds)

    def set_clocks(self, seconds: dict[str, float]) -> None:
        """Have the machine's clock be ahead by so many seconds for these functions, and right for the others."""
        set_clocks(self.internet.folder, seconds)

    async def mend(self) -> None:
        """End all faults that this module or the proxy makes; processes come back by themselves."""
        self.set_clocks({})
        self.proxy.reset()
        await self.proxy.admit()
        if not self.postgres.is_alive:
            await self.restart_postgres("kill")

    async def close(self) -> None:
        """Close this object's own connection."""
        if self._connection is not None:
            await self._connection.close()

    async def _kill(self, function: str, pids: list[int]) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await until(lambda: not set(pids) & set(self.pids(function)), "killed processes to go")


async def until(condition: Callable[[], Any], what: str, patience_s: float = _PATIENCE_S) -> Any:
    """Wait for a condition to give something true, or something to await that does; gives that.

    Raises:
        TimeoutError: it did not.
    """
    end = time.monotonic() + patience_s
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        if time.monotonic() > end:
            raise TimeoutError(f"waited {patience_s:g} s for {what}")
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running(on_line: LineSink, environment: dict[str, str] | None = None) -> AsyncIterator[World]:
    """A world, for as long as the block lasts.

    Args:
        on_line: receives the functions' output.
        environment: settings of the functions that differ, as environment variables.
    """
    with TemporaryDirectory(prefix="forbear-torture-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        await asyncio.to_thread(folder.chmod, 0o755)
        postgres = EmbeddedPostgres(folder, options=OPTIONS)
        await asyncio.to_thread(postgres.start)
        try:
            await asyncio.to_thread(bring_up, postgres.url(), folder / KEY)
            internet = Path(folder) / "internet"
            internet.mkdir(mode=0o700)
            async with _serving(postgres, folder / KEY, Internet(internet), on_line, environment or {}) as world:
                yield world
        finally:
            await asyncio.to_thread(postgres.stop)


@asynccontextmanager
async def _serving(
    postgres: EmbeddedPostgres, key: Path, internet: Internet, on_line: LineSink, environment: dict[str, str]
) -> AsyncIterator[World]:
    authority = Authority(internet.folder)
    proxy, receivers = PostgresProxy(postgres.port), Receivers()
    await proxy.start()
    await receivers.start()
    parts = urlsplit(postgres.url())
    through = parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{proxy.port}").geturl()
    stack = local_stack(
        through,
        key,
        functions=[replace(spec, runtime=RUNTIME, handler=HANDLERS.get(spec.name, spec.handler)) for spec in FUNCTIONS],
        timing=Timing(minute_s=MINUTE_S, retry_delays_s=(MINUTE_S, 2 * MINUTE_S), grace_s=0.5),
        environment={
            "FORBEAR_TICK_S": str(MINUTE_S),
            "FORBEAR_ALLOW_NETWORKS": "127.0.0.1/32",  # where the receivers are, and nothing else
            FOLDER: str(internet.folder),
            **environment,
        },
        on_line=on_line,
    )
    await stack.start()
    try:
        async with httpx.AsyncClient(timeout=40, trust_env=False, limits=httpx.Limits(max_connections=100)) as client:
            world = World(postgres, proxy, stack, receivers, client, internet, authority)
            try:
                yield world
            finally:
                await world.mend()
                for function in FUNCTIONS:
                    await world.kill(function.name)
                await world.close()
    finally:
        await stack.stop()
        await receivers.stop()
        await proxy.stop()


def _kill_server(postgres: EmbeddedPostgres) -> None:
    """SIGKILL the postmaster, and wait until its children have noticed: the next one cannot start before."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        os.kill(postgres.pid, signal.SIGKILL)
    end = time.monotonic() + _PATIENCE_S
    while postgres.is_alive and time.monotonic() < end:
        time.sleep(0.01)
