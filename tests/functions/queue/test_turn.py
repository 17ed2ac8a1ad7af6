"""A turn's statements: one round trip, a transaction each, and what becomes of them when one of them fails."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest

from forbear.store import Result, Room, Settlement, Store, Turned
from infra.local.deployment import url_as
from tests.functions.builders import data_keys, make_endpoint, one, post, run
from tests.functions.queue.leasing import claim
from tests.functions.queue.storing import attempt_made, lease_of, url_of

type Connection = psycopg.Connection[tuple[Any, ...]]
ROOM = Room(slots=10, payload_bytes=1 << 20)


@pytest.fixture(autouse=True)
def endpoint_id(connection: Connection) -> UUID:
    return make_endpoint(connection)


@asynccontextmanager
async def opened(connection: Connection) -> AsyncIterator[Store]:
    store = Store(url_as(url_of(connection), "forbear_claimer"), data_keys())
    try:
        await store.keyring()
        yield store
    finally:
        await store.aclose()


def turn(connection: Connection, ask: Callable[[Store], Awaitable[Turned]]) -> Turned:
    """What a store of its own answers."""

    async def work() -> Turned:
        async with opened(connection) as store:
            return await ask(store)

    return run(work())


def settlement(connection: Connection, status: int = 200) -> Settlement:
    """What is leased now, as delivered."""
    post(connection, b"first")
    results = [
        Result(lease_of(row), "delivered", None, 0.0, limited=False, attempt=attempt_made("success", status))
        for row in claim(connection)
    ]
    assert results
    return Settlement(results)


def test_what_is_settled_and_what_is_claimed_come_back_together(connection: Connection) -> None:
    batch = settlement(connection)
    post(connection, b"second")
    turned = turn(connection, lambda store: store.turn(batch, ROOM, step=True))
    assert turned.settled is not None
    assert turned.settled.late == frozenset()
    assert [lease.payload for lease in turned.leases or ()] == [b"second"]
    assert turned.stepped is False
    assert one(connection, "SELECT count(*) FROM forbear.history") == 1


def test_it_is_one_round_trip_and_a_transaction_each(connection: Connection) -> None:
    batch = settlement(connection)
    post(connection, b"second")
    sent = 0

    async def work() -> None:
        nonlocal sent
        async with opened(connection) as store:
            waits = store._connection.wait  # type: ignore[union-attr]

            async def wait(*arguments: Any, **named: Any) -> Any:
                nonlocal sent
                sent += 1
                return await waits(*arguments, **named)

            store._connection.wait = wait  # type: ignore[union-attr, method-assign]
            await store.turn(batch, ROOM)

    run(work())
    # Entering and leaving the pipeline, and handing over its four statements, which waits for nothing.
    assert sent <= 6
    written = one(connection, "SELECT xmin::text FROM forbear.history")
    assert one(connection, "SELECT xmin::text FROM forbear.queue") != written


def test_without_a_partition_the_results_are_settled_all_the_same(connection: Connection) -> None:
    batch = settlement(connection)
    connection.execute("UPDATE forbear.queue SET lease_until = lease_until + interval '30 days'")
    connection.execute("UPDATE forbear.clock SET shift = '20 days'")
    turned = turn(connection, lambda store: store.turn(batch, ROOM))
    assert turned.settled is not None
    assert turned.settled.late == frozenset()
    assert turned.leases is None


def test_a_result_that_the_database_refuses_is_told_and_nothing_is_claimed(connection: Connection) -> None:
    batch = settlement(connection, 99)
    post(connection, b"second")
    with pytest.raises(psycopg.errors.CheckViolation):
        turn(connection, lambda store: store.turn(batch, ROOM))
    assert one(connection, "SELECT count(*) FROM forbear.queue WHERE lease_token IS NULL") == 1


@pytest.fixture
def no_claims(connection: Connection) -> Iterator[None]:
    connection.execute("ALTER FUNCTION forbear.absorb_wakes RENAME TO absorbed")
    yield
    connection.execute("ALTER FUNCTION forbear.absorbed RENAME TO absorb_wakes")


def test_a_claim_that_fails_undoes_no_settling_and_shows_by_itself(
    connection: Connection, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    batch = settlement(connection)
    request.getfixturevalue("no_claims")
    with caplog.at_level(logging.INFO):
        turned = turn(connection, lambda store: store.turn(batch, ROOM))
    assert "something of a turn failed" in caplog.text
    assert turned.settled is not None
    assert turned.settled.late == frozenset()
    assert turned.leases is None
    assert one(connection, "SELECT count(*) FROM forbear.history") == 1
    with pytest.raises(psycopg.errors.UndefinedFunction):
        turn(connection, lambda store: store.turn(room=ROOM))


def test_without_a_keyring_what_has_ended_is_settled(connection: Connection) -> None:
    batch = settlement(connection)
    connection.execute("DELETE FROM forbear.data_keys")

    async def work() -> Turned:
        store = Store(url_as(url_of(connection), "forbear_claimer"), data_keys())
        try:
            return await store.turn(batch, ROOM)
        finally:
            await store.aclose()

    turned = run(work())
    assert turned.settled is not None
    assert turned.leases is None


def test_a_delivery_without_its_event_harms_no_other(connection: Connection, caplog: pytest.LogCaptureFixture) -> None:
    """Retention does not make such; a restore by hand might."""
    make_endpoint(connection, tenant="other")
    first, *_ = [post(connection, b"payload")[0] for _ in range(3)]
    post(connection, b"payload", tenant="other")
    connection.execute("DELETE FROM forbear.events WHERE id = %s", (first,))
    turned = turn(connection, lambda store: store.turn(room=Room(slots=100, payload_bytes=1 << 20)))
    assert len(turned.leases or ()) == 3
    assert "has no event" in caplog.text
