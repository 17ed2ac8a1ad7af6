"""Many endpoints, and as many deliveries as are wanted: put into the tables directly, for ingest would take hours.

Owns the shape of what it makes: endpoint n of a crowd belongs to tenant `t<n>`, wants everything, and its URL ends with
its number; each delivery has an event of its own. Rows are as Forbear writes them, and indexes are kept meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from forbear.event_types import matching_patterns
from forbear.policy.model import Policy
from forbear.sealed import seal_secret
from forbear.signing import generate_secret
from infra.bench.filling import EVENT_TYPE, keyring
from infra.bench.world import World

# So many rows a transaction: a failure then does not leave ten million dead ones.
STEP = 500_000

# The n-th id of a kind, in the order of its time: a UUIDv7 of this millisecond, with the number where chance would be.
_ID = "(%(stamp)s::text || '-7{kind}00-8000-' || lpad(to_hex(n), 12, '0'))::uuid"
_EVENT, _DELIVERY = _ID.format(kind="0"), _ID.format(kind="1")
_PLACE = "%(first)s + n %% %(lanes)s"
_ENDPOINT = f"('00000000-0000-4000-8000-' || lpad(to_hex({_PLACE}), 12, '0'))::uuid"
_ROWS = "FROM generate_series(%(from)s::bigint, %(to)s::bigint) n"

_EVENTS = f"""
    INSERT INTO forbear.events (id, tenant, type, content_type, payload)
    SELECT {_EVENT}, 't' || ({_PLACE}), '{EVENT_TYPE}', 'application/json', %(payload)s {_ROWS}
"""
_WAITING = f"""
    INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes)
    SELECT {_DELIVERY}, {_EVENT}, {_ENDPOINT}, %(now)s - (%(number)s - n) * interval '1 microsecond',
           octet_length(%(payload)s) {_ROWS}
"""
_WAKE = f"""
    INSERT INTO forbear.wakes (endpoint_ids, due_ats)
    SELECT array_agg({_ENDPOINT}), array_agg(%(now)s - %(number)s * interval '1 microsecond')
    FROM generate_series(0, %(lanes)s::bigint - 1) n GROUP BY n / 1000
"""
_FINISHED = f"""
    INSERT INTO forbear.history (id, event_id, endpoint_id, payload_bytes, state, generation, attempts, ended_at)
    SELECT {_DELIVERY}, {_EVENT}, {_ENDPOINT}, octet_length(%(payload)s), 'delivered', 1, 1, %(now)s {_ROWS}
"""
_ATTEMPTS = f"""
    INSERT INTO forbear.history_attempts (delivery_id, number, generation, started_at, latency_ms, url, address,
                                          request_headers, status, response_headers, verdict, ended_at)
    SELECT {_DELIVERY}, 1, 1, %(now)s - interval '5 milliseconds', 5, %(url)s || ({_PLACE}), '127.0.0.1:80',
           %(request)s, 200, %(response)s, 'success', %(now)s {_ROWS}
"""
_REQUEST = (
    b"POST /1 HTTP/1.1\r\nwebhook-id: evt_00000000000000000000000000\r\nwebhook-timestamp: 1700000000\r\n"
    b"webhook-signature: v1,0000000000000000000000000000000000000000000=\r\ncontent-type: application/json\r\n"
    b"idempotency-key: dlv_00000000000000000000000000\r\nforbear-attempt: 1\r\n"
)
_RESPONSE = b"server: nginx\r\ndate: Thu, 01 Jan 2026 00:00:00 GMT\r\ncontent-length: 0\r\n"


@dataclass(frozen=True, slots=True)
class Crowd:
    """Endpoints in a row.

    Attributes:
        first: the number of the first one.
        number: how many they are.
        url: what each one's URL begins with; its number follows.
    """

    first: int
    number: int
    url: str

    @property
    def ids(self) -> list[UUID]:
        """Their ids, in order."""
        return [UUID(f"00000000-0000-4000-8000-{n:012x}") for n in self._numbers]

    @property
    def tenants(self) -> list[str]:
        """Their tenants, in order."""
        return [f"t{n}" for n in self._numbers]

    @property
    def _numbers(self) -> range:
        return range(self.first, self.first + self.number)


def settle_in(
    world: World, connection: psycopg.Connection[Any], crowd: Crowd, policy: Mapping[str, Any] | None = None
) -> Crowd:
    """Make the endpoints of a crowd, with their lanes, subscriptions and secrets. Gives it back.

    Args:
        world: whose key file seals their secrets.
        connection: the superuser's, in autocommit mode.
        crowd: which ones.
        policy: what their policy has that differs from the default.
    """
    ring = keyring(world, connection)
    text = Policy.model_validate(policy or {}).model_dump_json()
    rows = list(zip(crowd.ids, crowd.tenants, strict=True))
    with connection.transaction():
        _copy(
            connection,
            "forbear.endpoints (id, tenant, url, event_types, policy)",
            ((each, tenant, crowd.url + tenant[1:], "{*}", text) for each, tenant in rows),
        )
        _copy(connection, "forbear.lanes (endpoint_id, tenant)", rows)
        _copy(
            connection,
            "forbear.subscriptions (tenant, pattern, endpoint_id)",
            ((tenant, "*", each) for each, tenant in rows),
        )
        _copy(
            connection,
            "forbear.secrets (endpoint_id, secret)",
            ((each, seal_secret(ring, each, generate_secret())) for each in crowd.ids),
        )
    return crowd


def wait(connection: psycopg.Connection[Any], crowd: Crowd, number: int, payload: bytes) -> None:
    """Have so many due deliveries wait, in turn for each endpoint of a crowd, and wake their lanes.

    Args:
        connection: the superuser's, in autocommit mode.
        crowd: whose they are.
        number: how many in all.
        payload: each one's.
    """
    parameters = _parameters(connection, crowd, number, payload)
    _in_steps(connection, (_EVENTS, _WAITING), parameters)
    connection.execute(_WAKE, {**parameters, "lanes": min(number, crowd.number)})


def finish(connection: psycopg.Connection[Any], crowd: Crowd, number: int, payload: bytes) -> None:
    """Have so many deliveries be in the history, delivered today, each with its attempt.

    Args:
        connection: the superuser's, in autocommit mode.
        crowd: whose they are, in turn.
        number: how many in all.
        payload: each one's.
    """
    parameters = _parameters(connection, crowd, number, payload)
    _in_steps(connection, (_EVENTS, _FINISHED, _ATTEMPTS), parameters)


def break_off(connection: psycopg.Connection[Any], crowd: Crowd) -> None:
    """Open the breakers of a crowd for a day: its endpoints are dead."""
    connection.execute(
        "UPDATE forbear.lanes SET breaker_state = 'open', breaker_until = forbear.now() + interval '1 day',"
        " ready_at = forbear.now() + interval '1 day' WHERE endpoint_id = ANY (%s)",
        (crowd.ids,),
    )


def post(connection: psycopg.Connection[Any], payloads: list[bytes], tenants: list[str]) -> list[UUID]:
    """Take events in, through the SQL that ingest runs, in one transaction. Gives their ids, in order."""
    number = len(payloads)
    rows = connection.execute(
        "SELECT event_id FROM forbear.ingest(%s, %s, %s, %b, %s::timestamptz[], %s, %s::text[], %s::bytea[])"
        " ORDER BY n",
        (
            *(tenants, [EVENT_TYPE] * number, ["application/json"] * number, payloads, [None] * number),
            *([" ".join(matching_patterns(EVENT_TYPE))] * number, [None] * number, [None] * number),
        ),
    ).fetchall()
    return [row[0] for row in rows]


def _parameters(connection: psycopg.Connection[Any], crowd: Crowd, number: int, payload: bytes) -> dict[str, Any]:
    now, stamp = connection.execute("SELECT forbear.now(), substr(forbear.new_id()::text, 1, 13)").fetchone() or (
        None,
        None,
    )
    return {
        "stamp": stamp,
        "now": now,
        "number": number,
        "payload": payload,
        "first": crowd.first,
        "lanes": crowd.number,
        "url": crowd.url,
        "request": _REQUEST,
        "response": _RESPONSE,
    }


def _in_steps(connection: psycopg.Connection[Any], statements: Iterable[str], parameters: dict[str, Any]) -> None:
    for statement in statements:
        for start in range(1, parameters["number"] + 1, STEP):
            end = min(start + STEP - 1, parameters["number"])
            connection.execute(statement.encode(), {**parameters, "from": start, "to": end})


def _copy(connection: psycopg.Connection[Any], table: str, rows: Iterable[tuple[object, ...]]) -> None:
    with connection.cursor() as cursor, cursor.copy(f"COPY {table} FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)
