"""An event is stored in the same way by itself and in a batch, which two SQL functions see to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.functions.builders import make_endpoint, move_clock

type Connection = psycopg.Connection[Any]
type Post = Callable[..., tuple[UUID, int, bool, bool]]

ONE = "SELECT event_id, deliveries, duplicate, conflict FROM forbear.ingest(%s, %s, %s, %b, %s, %s, %s, %s)"
SEVERAL = (
    "SELECT event_id, deliveries, duplicate, conflict"
    " FROM forbear.ingest(%s, %s, %s, %b, %s::timestamptz[], %s, %s::text[], %s::bytea[])"
)


def post(connection: Connection, way: str, key: str | None = None, digest: bytes = b"1") -> tuple[Any, ...]:
    """Store an event of the way's tenant. Gives the answer."""
    values = [way, "a.b", "text/plain", b"payload", "2031-01-01T00:00:00Z", "a.b a.* *", key, digest if key else None]
    sql, parameters = (ONE, values) if way == "one" else (SEVERAL, [[value] for value in values])
    row = connection.execute(sql, parameters).fetchone()
    assert row is not None
    return tuple(row)


def story(connection: Connection, way: str) -> list[Any]:
    """What happens to a tenant's events, ids replaced by their order. The clock is moved on by 25 hours."""
    told = [post(connection, way)]  # nobody wants it
    for types in (("*", "a.*", "a.b"), ("a.b",), ("b.*",)):
        make_endpoint(connection, tenant=way, event_types=types)
    told += [post(connection, way), post(connection, way, "k"), post(connection, way, "k")]
    told += [post(connection, way, "k", b"2"), post(connection, way, "other", b"2")]
    move_clock(connection, hours=25)
    told += [post(connection, way, "k", b"2"), post(connection, way, "k"), post(connection, way, "k", b"2")]
    ids = list(dict.fromkeys(event_id for event_id, *_ in told))
    return [(ids.index(event_id), *rest) for event_id, *rest in told]


def left(connection: Connection, way: str) -> list[Any]:
    """What is stored of it, ids and times left out."""
    return connection.execute(
        "SELECT e.type, e.content_type, e.payload, e.expires_at, count(q.id), count(DISTINCT q.endpoint_id),"
        "       array_agg(DISTINCT (q.payload_bytes, q.expires_at)::text),"
        "       bool_and(w.due_ats[array_position(w.endpoint_ids, q.endpoint_id)] = q.due_at)"
        " FROM forbear.events e LEFT JOIN forbear.queue q ON q.event_id = e.id"
        " LEFT JOIN forbear.wakes w ON q.due_at = ANY (w.due_ats)"
        " WHERE e.tenant = %s GROUP BY e.id ORDER BY e.id",
        (way,),
    ).fetchall()


def test_an_event_by_itself_is_stored_as_one_in_a_batch(connection: Connection) -> None:
    by_itself, in_a_batch = story(connection, "one"), story(connection, "several")
    assert by_itself == in_a_batch
    assert by_itself == [
        (0, 0, False, False),
        (1, 2, False, False),
        (2, 2, False, False),
        (2, 2, True, False),
        (2, 2, False, True),
        (3, 2, False, False),
        (4, 2, False, False),
        (4, 2, False, True),
        (4, 2, True, False),
    ]
    assert left(connection, "one") == left(connection, "several")


@pytest.mark.parametrize("way", ["one", "several"])
def test_a_repeat_counts_deliveries_that_have_ended(connection: Connection, way: str) -> None:
    make_endpoint(connection, tenant=way)
    post(connection, way, "k")
    connection.execute(
        "WITH gone AS (DELETE FROM forbear.queue RETURNING *)"
        " INSERT INTO forbear.history (id, event_id, endpoint_id, payload_bytes, state, generation, attempts, ended_at)"
        " SELECT id, event_id, endpoint_id, payload_bytes, 'delivered', 1, 1, forbear.now() FROM gone"
    )
    assert post(connection, way, "k")[1:] == (1, True, False)
