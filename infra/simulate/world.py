"""The simulation's hold on its database: the clock, the endpoint, the arrivals.

Owns what is done to the database from outside of Forbear: it moves the clock, makes the endpoint and puts in what
arrives. Deliveries are claimed and settled by Forbear's own code, which does not pass through here.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg.rows import DictRow, dict_row

from forbear.data_keys import DataKeys
from forbear.db import statement
from forbear.policy.model import Policy
from forbear.sealed import seal_secret
from forbear.signing import generate_secret
from forbear.vault import KEY_BYTES, Purpose

START: Final = datetime(2030, 1, 1, tzinfo=UTC)
"""When every simulation begins, by the database's clock."""

TENANT: Final = "simulated"
PAYLOAD: Final = b"{}"
AHEAD: Final = 5_000  # arrivals that are put in at once
_NUMBER: Final = (1 << 48) - 1

type Connection = psycopg.AsyncConnection[DictRow]


class Bare:
    """No key outside: a data key lies in a simulation's database as it is, and there is nothing to keep."""

    def new_key(self, purpose: Purpose) -> bytes:  # noqa: ARG002 - as in forbear.vault.Wrapping
        """Make a data key."""
        return os.urandom(KEY_BYTES)

    def unwrap(self, wrapped: bytes, purpose: Purpose) -> bytes:  # noqa: ARG002
        """Give it as it is."""
        return wrapped


def at(seconds: float) -> datetime:
    """A time of the simulation by the database's clock."""
    return START + timedelta(seconds=seconds)


def number_of(delivery_id: UUID) -> int:
    """Which arrival a delivery is, from 0."""
    return delivery_id.int & _NUMBER


@dataclass(frozen=True, slots=True)
class Lane:
    """The endpoint's state as the database has it.

    Attributes:
        breaker: The breaker's state.
        limit: The adaptive limit; None at the policy's own.
        ready_s: From when on a claim may find something, in virtual seconds; infinity if none will as things are.
        disabled: Why it is disabled; None if it is not.
        dropped: Deliveries that ended at this very time because the breaker is open.
    """

    breaker: str
    limit: int | None
    ready_s: float
    disabled: str | None
    dropped: int


class World:
    """One simulation's database. Use `world` to open it.

    Args:
        connection: For everything but arrivals, in autocommit mode.
        feeder: For arrivals, which are put in while others work.
        endpoint: The endpoint's id.
        policy: Its policy.
        arrivals: When events arrive, in seconds from the start, in order.
    """

    def __init__(
        self, connection: Connection, feeder: Connection, endpoint: UUID, policy: Policy, arrivals: Sequence[float]
    ) -> None:
        self._connection = connection
        self._feeder = feeder
        self._endpoint = endpoint
        self._policy = policy
        self._arrivals = arrivals
        self._there = 0
        self._coming: asyncio.Task[int] | None = None

    async def move_to(self, now: float) -> None:
        """Set the clock, and let be there whatever arrives until then."""
        await self._connection.execute("UPDATE forbear.clock SET frozen_at = %s", (at(now),))
        while self.next_arrival <= now:
            number = await (self._coming or self._feed())
            # Their lane is told of them only now, so that it makes no difference how long that took.
            wake = {"endpoint": self._endpoint, "due_at": at(self.next_arrival)}
            await self._connection.execute(_sql("wake"), wake)
            self._there += number
            self._coming = self._feed()

    @property
    def next_arrival(self) -> float:
        """When the first arrival that the database does not know of yet arrives; infinity if there is none."""
        return self._arrivals[self._there] if self._there < len(self._arrivals) else math.inf

    async def lane(self) -> Lane:
        """Look at the endpoint."""
        cursor = await self._connection.execute(_sql("lane"), {"endpoint": self._endpoint})
        row = await cursor.fetchone()
        if row is None:
            raise RuntimeError("the endpoint has vanished from the simulation's database")
        return Lane(
            breaker=row["breaker_state"],
            limit=row["concurrency_limit"],
            ready_s=math.inf if row["ready_at"] is None else (row["ready_at"] - START).total_seconds(),
            disabled=row["disabled_reason"],
            dropped=row["dropped"],
        )

    async def lift(self, limit: int | None, *, lifted: bool) -> None:
        """Lift the endpoint's limits of concurrency, or set them again: the policy's and the adaptive one, `limit`."""
        await self._connection.execute(
            _sql("lift"),
            {
                "endpoint": self._endpoint,
                "lifted": lifted,
                "limit": limit,
                "concurrency": self._policy.limits.concurrency,
                "timeout_s": self._policy.timeout_s,
            },
        )

    async def aclose(self) -> None:
        """Stop putting in what arrives."""
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.gather(self._coming, return_exceptions=True)

    def _feed(self) -> asyncio.Task[int]:
        """Put in the next arrivals. Gives how many."""
        first = self._there
        return asyncio.create_task(self._put_in(first, self._arrivals[first : first + AHEAD]))

    async def _put_in(self, first: int, times: Sequence[float]) -> int:
        if times:
            await self._feeder.execute(
                _sql("arrive"),
                {
                    "first": first,
                    "start": START,
                    "times": list(times),
                    "tenant": TENANT,
                    "payload": PAYLOAD,
                    "endpoint": self._endpoint,
                },
                binary=True,
            )
        return len(times)


@asynccontextmanager
async def world(url: str, policy: Policy, arrivals: Sequence[float], duration_s: float) -> AsyncIterator[World]:
    """Prepare a migrated database for a simulation: an endpoint, a stopped clock, partitions for all its days.

    Args:
        url: PostgreSQL connection URL of a database that nobody else uses.
        policy: The endpoint's policy.
        arrivals: When events arrive, in seconds from the start, in order.
        duration_s: For how long.
    """
    async with await _connect(url) as connection, await _connect(url) as feeder:
        await connection.execute("UPDATE forbear.clock SET frozen_at = %s", (START,))
        days = int(duration_s / 86_400) + 2
        await connection.execute("SELECT forbear.make_partitions(%s, %s)", (START, days))
        opened = World(connection, feeder, await _endpoint(connection, policy), policy, arrivals)
        try:
            yield opened
        finally:
            await opened.aclose()


async def _connect(url: str) -> Connection:
    return await psycopg.AsyncConnection.connect(url, autocommit=True, row_factory=dict_row)


async def _endpoint(connection: Connection, policy: Policy) -> UUID:
    """Store an endpoint as the API does, by a data key of the simulation's own."""
    made = {"purpose": Purpose.SECRETS.value, "wrapped": Bare().new_key(Purpose.SECRETS)}
    await connection.execute("DELETE FROM forbear.data_keys")
    await connection.execute(statement("make_data_key"), made)
    data_keys = DataKeys(Purpose.SECRETS, Bare)
    keyring = data_keys.ring(await (await connection.execute(*data_keys.statement)).fetchall())
    row = await (await connection.execute("SELECT forbear.new_id() AS id")).fetchone()
    if row is None:
        raise RuntimeError("the simulation's database gives no id")
    endpoint_id = UUID(str(row["id"]))
    parameters: dict[str, Any] = {
        "id": endpoint_id,
        "tenant": TENANT,
        "url": "https://receiver.example/",
        "event_types": ["*"],
        "description": "",
        "headers": None,
        "policy": policy.model_dump_json(),
        "paused": False,
        "secret": seal_secret(keyring, endpoint_id, generate_secret()),
    }
    async with connection.transaction():
        await connection.execute(statement("tenant_row"), parameters)
        await connection.execute(statement("create_endpoint"), parameters)
    return endpoint_id


@cache
def _sql(name: str) -> str:
    return (files("infra.simulate") / f"{name}.sql").read_text(encoding="utf-8")
