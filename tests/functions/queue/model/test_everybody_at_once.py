"""The real operations of everybody at once, from several threads: what holds after any step holds after all of these.

The rows are judged by the model's invariants. How many runs there are, FORBEAR_MODEL_RUNS says; each has a seed.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import psycopg
import pytest

from forbear import intake, replays
from forbear.api import ApiRequest, ApiResponse, Problem
from forbear.db import Database
from forbear.envelope import NewEvent
from forbear.ids import Prefix, encode
from forbear.leases import Lease
from forbear.manage import cancelling, endpoints, pauses, secrets, sending
from forbear.manage.backend import Backend
from forbear.models.replays import ReplayIn
from forbear.settings import settings
from forbear.settling import Settling, Tally
from tests.functions.builders import data_keys, one
from tests.functions.manage.calling import create, ep_id
from tests.functions.queue.leasing import count, freeze
from tests.functions.queue.model.invariants import check
from tests.functions.queue.model.policies import POLICIES
from tests.functions.queue.model.reaching import drain
from tests.functions.queue.model.world import KINDS, LossyStore, attempted

type Connection = psycopg.Connection[Any]
type Operation = Callable[[Backend, ApiRequest], ApiResponse]

RUNS = int(os.environ.get("FORBEAR_MODEL_RUNS", "3"))
OPERATIONS = 120
TYPES = ("order.paid", "order.sent", "ping")
ON_ENDPOINT: tuple[Operation, ...] = (
    *(endpoints.pause, endpoints.resume, endpoints.resume, endpoints.enable, endpoints.enable),
    *(endpoints.reset_breaker, secrets.rotate, endpoints.read),
)
# What a call may answer but success: what it names is gone, or its state is another by now.
REFUSED = {404, 409}


class Everybody:
    """One run.

    Args:
        url_of: the database by role.
        connection: the owner's.
        seed: of all choices; how they interleave is up to the threads.
    """

    def __init__(self, url_of: Callable[[str], str], connection: Connection, seed: int) -> None:
        self.url_of, self.connection, self.seed = url_of, connection, seed
        rng = Random(seed)
        self.made = [
            ep_id(create(tenant=tenant, event_types=[pattern], policy=POLICIES[name])["id"])
            for tenant, pattern in (("acme", "*"), ("acme", "order.*"), ("acme", "*"), ("blue", "*"), ("blue", "ping"))
            for name in [rng.choice(sorted(POLICIES))]
        ]
        self.deliveries = 0
        self.adding = threading.Lock()

    def run(self) -> None:
        works = (self.claimer, self.claimer, self.producer, self.operator, self.replayer)
        with ThreadPoolExecutor(len(works)) as pool:
            for done in [pool.submit(work, Random(f"{self.seed} {n}")) for n, work in enumerate(works)]:
                done.result()

    def add(self, number: int) -> None:
        with self.adding:
            self.deliveries += number

    def claimer(self, rng: Random) -> None:
        with asyncio.Runner() as runner:
            store = LossyStore(self.url_of("forbear_claimer"), data_keys())
            settling, hand = Settling(store, Tally()), list[Lease]()
            for _ in range(OPERATIONS):
                match rng.choice(
                    ("claim", "claim", "settle", "settle", "settle", "again", "lose", "reap", "step", "time")
                ):
                    case "claim":
                        leases = runner.run(store.claim(rng.choice((1, 20, 200)), 1 << 20))
                        settling.learn(leases)
                        hand += leases
                    case "settle" if hand:
                        rng.shuffle(hand)
                        cut = rng.randrange(len(hand) + 1)
                        batch = [
                            attempted(lease, rng.choice(KINDS), store.now(), store.monotonic(), rng)
                            for lease in hand[:cut]
                        ]
                        hand = hand[cut:]
                        for _ in range(rng.choice((1, 1, 2))):  # twice, as if the answer had been lost
                            settling.results += batch
                            runner.run(settling.settle())
                    case "lose" if hand:
                        if rng.random() < 0.5:
                            runner.run(store.give_up(hand))
                        hand = []
                    case "reap":
                        runner.run(store.reap())
                    case "step":
                        runner.run(store.replay_step())
                    case "time" if rng.random() < 0.3:
                        self.forward(rng)
            runner.run(store.aclose())

    def forward(self, rng: Random) -> None:
        """Move everybody's clock on."""
        with psycopg.connect(self.url_of("forbear"), autocommit=True) as connection:
            seconds = rng.choice((1, 6, 31, 46))
            connection.execute("UPDATE forbear.clock SET shift = shift + make_interval(secs => %s)", (seconds,))

    def producer(self, rng: Random) -> None:
        database = Database(self.url_of("forbear_ingest"))
        for _ in range(OPERATIONS):
            events = [
                NewEvent(
                    *(rng.choice(("acme", "acme", "blue")), rng.choice(TYPES), "text/plain", b"x" * rng.randrange(99)),
                    *(None, rng.choice((None, None, f"k{rng.randrange(40)}"))),
                )
                for _ in range(rng.randrange(1, 5))
            ]
            stored = intake.store(database, events).stored
            self.add(sum(answer.deliveries for answer in stored if not answer.duplicate and not answer.conflict))
        database.close()

    def operator(self, rng: Random) -> None:
        backend = Backend(Database(self.url_of("forbear_manage")), settings())
        for _ in range(OPERATIONS // 2):
            endpoint_id = rng.choice(self.made)
            with suppress(_Refused):
                match rng.choice(("on one", "on one", "on one", "test", "policy", "tenant", "all", "cancel", "delete")):
                    case "on one":
                        _call(rng.choice(ON_ENDPOINT), backend, endpoint_id, {})
                    case "test":
                        _call(sending.send_test, backend, endpoint_id)
                        self.add(1)
                    case "policy":
                        policy = {"preset": None, "policy": POLICIES[rng.choice(sorted(POLICIES))]}
                        _call(endpoints.change, backend, endpoint_id, policy)
                    case "tenant":
                        for operation in (pauses.pause_tenant, pauses.resume_tenant):
                            _call(operation, backend, "acme")
                    case "all":
                        for operation in (pauses.pause_everything, pauses.resume_everything):
                            _call(operation, backend)
                    case "cancel":
                        chosen = {"endpoint": encode(Prefix.ENDPOINT, endpoint_id)}
                        _call(cancelling.cancel, backend, None, {"filter": rng.choice((chosen, {"tenant": "acme"}))})
                    case "delete" if rng.random() < 0.2 and len(self.made) > 3:
                        self.made.remove(endpoint_id)
                        _call(endpoints.delete, backend, endpoint_id)
        backend.database.close()

    def replayer(self, rng: Random) -> None:
        database = Database(self.url_of("forbear_replay"))
        backend = Backend(Database(self.url_of("forbear_manage")), settings())
        begun: list[UUID] = []
        for _ in range(OPERATIONS // 2):
            endpoint_id = rng.choice(self.made)
            with suppress(_Refused):
                match rng.choice(("filter", "filter", "ids", "backfill", "cancel", "cancel some")):
                    case "filter":
                        wanted = {"endpoint": encode(Prefix.ENDPOINT, endpoint_id)}
                        wanted |= {"status": rng.choice(("dead", "delivered", "cancelled"))}
                        order = {"filter": wanted} | rng.choice(({}, {"rate": 50}))
                        begun.append(_order(database, order))
                    case "ids" if ids := self.some_ids(rng):
                        begun.append(_order(database, {"deliveries": ids}))
                    case "backfill":
                        since = f"{datetime.now(UTC) - timedelta(minutes=1):%Y-%m-%dT%H:%M:%SZ}"
                        _call(sending.backfill, backend, endpoint_id, {"since": since})
                    case "cancel" if begun:
                        replays.cancel(database, rng.choice(begun), None)
                    case "cancel some" if ids := self.some_ids(rng):
                        _call(cancelling.cancel, backend, None, {"deliveries": ids})
        database.close()
        backend.database.close()

    def some_ids(self, rng: Random) -> list[str]:
        """Some deliveries, wherever they are."""
        with psycopg.connect(self.url_of("forbear")) as connection:
            ids = [row[0] for row in connection.execute("SELECT id FROM forbear.deliveries LIMIT 300")]
        return [encode(Prefix.DELIVERY, each) for each in rng.sample(ids, min(len(ids), 20))]


class _Refused(Exception):
    """A call met what is gone, or is another by now."""


def _order(database: Database, order: dict[str, Any]) -> UUID:
    try:
        return replays.submit(database, ReplayIn.model_validate_json(json.dumps(order)), None).id
    except Problem as problem:
        raise _refused(problem) from problem


def _call(operation: Operation, backend: Backend, item: UUID | str | None = None, body: object = None) -> None:
    """Call an operation of the management API on an endpoint, a tenant or nothing."""
    path = {"tenant": item} if isinstance(item, str) else {"id": encode(Prefix.ENDPOINT, item)} if item else {}
    text = b"" if body is None else json.dumps(body).encode()
    try:
        operation(backend, ApiRequest("POST", "", path, {}, {"content-type": "application/json"}, text))
    except Problem as problem:
        raise _refused(problem) from problem


def _refused(problem: Problem) -> Exception:
    return _Refused() if problem.status in REFUSED else problem


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(RUNS))
def test_whatever_everybody_does_at_once_nothing_is_lost_stuck_or_torn(
    seed: int, handlers: pytest.MonkeyPatch, connection: Connection, url_of: Callable[[str], str], database_url: str
) -> None:
    def url(role: str) -> str:
        return database_url if role == "forbear" else url_of(role)

    everybody = Everybody(url, connection, seed)
    everybody.run()
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert one(connection, deadlocks) == 0
    freeze(connection)
    check(connection)
    made = "SELECT coalesce(sum(matched), 0)::int FROM forbear.replays WHERE kind = 'backfill'"
    assert count(connection, "forbear.deliveries") == everybody.deliveries + one(connection, made)
    drain(connection)
    check(connection)
    assert count(connection, "forbear.history") == everybody.deliveries + one(connection, made)
