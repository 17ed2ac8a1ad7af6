"""Wrong states are impossible, whoever writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.conftest import TEMPLATE
from tests.functions.builders import make_endpoint, post
from tests.functions.queue.leasing import claim, settle

type Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(scope="module")
def world_url(server_url: str) -> Iterator[str]:
    """A database of this module's with a pending, a leased and a finished delivery; the first has an attempt."""
    name = f"constraints_{uuid4().hex}"
    with psycopg.connect(f"{server_url}postgres", autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
        with psycopg.connect(f"{server_url}{name}", autocommit=True) as connection:
            make_endpoint(connection)
            post(connection, b"1", b"2", b"3")
            pending, _, finished = claim(connection)
            settle(connection, [pending], "retry")
            settle(connection, [finished])
        yield f"{server_url}{name}"
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def world(world_url: str) -> Iterator[Connection]:
    """A connection to it, whose changes are rolled back."""
    with psycopg.connect(world_url) as connection:
        yield connection
        connection.rollback()


WRONG = {
    "a lease without an end": "UPDATE forbear.queue SET lease_until = NULL WHERE lease_token IS NOT NULL",
    "a lease without a token": "UPDATE forbear.queue SET lease_token = NULL WHERE lease_token IS NOT NULL",
    "a lease without a beginning": "UPDATE forbear.queue SET claimed_at = NULL WHERE lease_token IS NOT NULL",
    "a pending delivery with a lease's end": "UPDATE forbear.queue SET lease_until = now() WHERE lease_token IS NULL",
    "a lease of a delivery that nobody began": (
        "UPDATE forbear.queue SET started_at = NULL, held_mark = NULL WHERE lease_token IS NOT NULL"
    ),
    "a lease that is no attempt": "UPDATE forbear.queue SET attempts = 0 WHERE lease_token IS NOT NULL",
    "more tries than attempts": "UPDATE forbear.queue SET tries = 9",
    "more losses than attempts": "UPDATE forbear.queue SET lost = 9",
    "more limited tries than tries": "UPDATE forbear.queue SET limited = 2",
    "a negative number of tries": "UPDATE forbear.queue SET tries = -1",
    "a negative number of attempts": "UPDATE forbear.queue SET attempts = -1",
    "generation zero": "UPDATE forbear.queue SET generation = 0",
    "a payload of negative length": "UPDATE forbear.queue SET payload_bytes = -1",
    "a dead one without a reason": "UPDATE forbear.history SET state = 'dead'",
    "a delivered one with a reason": "UPDATE forbear.history SET reason = 'exhausted'",
    "an unknown reason": "UPDATE forbear.history SET state = 'dead', reason = 'bored'",
    "an unknown state": "UPDATE forbear.history SET state = 'pending'",
    "a history of negative attempts": "UPDATE forbear.history SET attempts = -1",
    "attempt zero": "UPDATE forbear.queue_attempts SET number = 0",
    "an unknown verdict": "UPDATE forbear.queue_attempts SET verdict = 'fine'",
    "a status that is none": "UPDATE forbear.queue_attempts SET status = 1000",
    "a success that failed": "UPDATE forbear.queue_attempts SET verdict = 'success', error = 'timeout'",
    "a success without a status": "UPDATE forbear.history_attempts SET status = NULL",
    "a late result that counted": "UPDATE forbear.history_attempts SET late = true",
    "an attempt that came to nothing": "UPDATE forbear.queue_attempts SET status = NULL, error = NULL",
    "more of a response than is kept": "UPDATE forbear.queue_attempts SET response_body = repeat('x', 16385)::bytea",
    "a breaker that is open for ever": "UPDATE forbear.lanes SET breaker_state = 'open'",
    "a closed breaker with a cool-down": "UPDATE forbear.lanes SET breaker_until = now()",
    "a half-open breaker without a probe": "UPDATE forbear.lanes SET breaker_state = 'half_open_probe'",
    "a probe of a closed breaker": "UPDATE forbear.lanes SET probe_until = now()",
    "an unknown breaker state": "UPDATE forbear.lanes SET breaker_state = 'ajar'",
    "disabled for no reason": "UPDATE forbear.lanes SET disabled_at = now()",
    "a reason for not being disabled": "UPDATE forbear.lanes SET disabled_reason = 'gone'",
    "no concurrency": "UPDATE forbear.lanes SET concurrency = 0",
    "no rate": "UPDATE forbear.lanes SET rate_per_s = 0",
    "no burst": "UPDATE forbear.lanes SET burst = 0",
    "a held lane that nobody holds": "UPDATE forbear.lanes SET held = true",
    "a wake row that says for some lanes only when": (
        "INSERT INTO forbear.wakes (endpoint_ids, due_ats) VALUES (ARRAY[gen_random_uuid()], '{}')"
    ),
    "an endpoint that wants nothing": "UPDATE forbear.endpoints SET event_types = '{}'",
    "headers that are not sealed": "UPDATE forbear.endpoints SET headers = '{}'",
    "a secret that is not sealed": "UPDATE forbear.secrets SET secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'",
    "a data key that is for nothing": "UPDATE forbear.data_keys SET purpose = 'fun'",
}


@pytest.mark.parametrize("wrong", WRONG)
def test_it_cannot_be_written(world: Connection, wrong: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        world.execute(WRONG[wrong])


DOUBLE = {
    "two attempts with one number": "INSERT INTO forbear.queue_attempts SELECT * FROM forbear.queue_attempts",
    "a kept attempt twice": "INSERT INTO forbear.history_attempts SELECT * FROM forbear.history_attempts",
    "a delivery twice": "INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes)"
    " SELECT id, event_id, endpoint_id, due_at, payload_bytes FROM forbear.queue LIMIT 1",
    "an end twice": "INSERT INTO forbear.history SELECT * FROM forbear.history",
    "an event twice": "INSERT INTO forbear.events SELECT * FROM forbear.events LIMIT 1",
    "a second clock": "INSERT INTO forbear.clock DEFAULT VALUES",
    "a second control row": "INSERT INTO forbear.control DEFAULT VALUES",
    "two secrets that sign for ever": (
        "INSERT INTO forbear.secrets SELECT endpoint_id, '1.AAAA', created_at + interval '1 s' FROM forbear.secrets"
    ),
}


@pytest.mark.parametrize("double", DOUBLE)
def test_there_is_only_one_of_it(world: Connection, double: str) -> None:
    with pytest.raises(psycopg.errors.UniqueViolation):
        world.execute(DOUBLE[double])


def test_the_second_clock_cannot_hide_behind_its_key(world: Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        world.execute("INSERT INTO forbear.clock (only_row) VALUES (false)")


def test_a_lane_needs_its_endpoint(connection: Connection) -> None:
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        connection.execute(
            "INSERT INTO forbear.lanes (endpoint_id, tenant, timeout_s, concurrency) VALUES (%s, 'acme', 15, 1)",
            (uuid4(),),
        )


def test_held_follows_from_what_holds_the_lane(connection: Connection) -> None:
    make_endpoint(connection)
    held = "SELECT held, held_since IS NOT NULL FROM forbear.lanes"
    for change, expected in (
        ("paused_at = now()", True),
        ("tenant_paused_at = now()", True),
        ("paused_at = NULL", True),
        ("disabled_at = now(), disabled_reason = 'by hand'", True),
        ("tenant_paused_at = NULL", True),
        ("disabled_at = NULL, disabled_reason = NULL", False),
        ("paused_at = now()", True),
        ("deleted_at = now()", False),
    ):
        connection.execute(f"UPDATE forbear.lanes SET {change}")
        assert connection.execute(held).fetchone() == (expected, expected), change
