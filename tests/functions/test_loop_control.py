"""What the outcomes of attempts change about an endpoint, through the claim loop and the real SQL."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from forbear.db import MAKE_PARTITIONS, statement
from forbear.policy.breaker import BreakerState
from forbear.policy.verdict import ErrorClass
from tests.functions.builders import make_endpoint, move_clock, post, run
from tests.functions.queue.leasing import breaker, control, fetch
from tests.functions.scripted import SLOW, Claimer, ScriptedSender, always, answer, failure

type Connection = psycopg.Connection[tuple[Any, ...]]

NEVER_OPEN = {"breaker": {"failures": 10_000}}


def never() -> ScriptedSender:
    """A receiver that does not answer in time."""
    return ScriptedSender(lambda _request, _number: failure(ErrorClass.TIMEOUT))


class TestAdaptiveConcurrency:
    @pytest.mark.parametrize("sender", [lambda: always(503), never])
    def test_overload_lowers_it_once_a_round_trip_and_success_raises_it(
        self, connection: Connection, database_url: str, sender: Any
    ) -> None:
        """However many of a batch say so: they all speak of the same moment."""
        endpoint_id = make_endpoint(connection, policy=SLOW | NEVER_OPEN | {"limits": {"concurrency": 20}})
        post(connection, *[b"1"] * 20)
        run(Claimer(database_url, sender()).run())
        assert control(connection, endpoint_id).limit == 18
        move_clock(connection, seconds=1)
        post(connection, *[b"2"] * 18)
        run(Claimer(database_url, always(200)).run())
        assert control(connection, endpoint_id).limit == 19

    def test_a_slow_99th_percentile_lowers_it(self, connection: Connection, database_url: str) -> None:
        adaptive = {"decrease": 0.1, "slow_s": 3.0, "samples": 10}
        endpoint_id = make_endpoint(connection, policy={"limits": {"concurrency": 10}, "adaptive": adaptive})
        post(connection, *[b"1"] * 30)
        slowly = replace(answer(200), latency_s=3.5)
        run(Claimer(database_url, ScriptedSender(lambda _request, _number: slowly)).run())
        limit = control(connection, endpoint_id).limit
        assert limit is not None
        assert limit < 10

    def test_a_trickle_that_fails_leaves_half_its_width(self, connection: Connection, database_url: str) -> None:
        """The next one ends where this one was still borne."""
        endpoint_id = make_endpoint(connection, policy=SLOW | {"limits": {"concurrency": 100}})
        post(connection, *[b"1"] * 5)
        run(Claimer(database_url, always(500)).run())
        move_clock(connection, seconds=31)
        post(connection, *[b"2"] * 100)
        run(Claimer(database_url, ScriptedSender(lambda _, n: answer(200 if n < 20 else 503))).run())
        opened = control(connection, endpoint_id)
        assert opened.breaker.state is BreakerState.OPEN
        assert opened.breaker.trips == 2
        assert opened.limit == 8, "it failed while 16 were allowed"


class TestAutoDisable:
    POLICY: Any = SLOW | NEVER_OPEN

    def fail(self, connection: Connection, database_url: str, status: int = 500) -> None:
        connection.execute(MAKE_PARTITIONS)
        post(connection, b"1")
        run(Claimer(database_url, always(status)).run())

    def test_five_days_of_failures_disable_it_and_say_why(
        self, connection: Connection, database_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        endpoint_id = make_endpoint(connection, policy=self.POLICY)
        with caplog.at_level(logging.WARNING):
            for hours in (0, 30, 30, 30, 29):
                move_clock(connection, hours=hours)
                self.fail(connection, database_url)
                assert not fetch(connection, "SELECT held FROM forbear.lanes").held
            move_clock(connection, hours=1)
            self.fail(connection, database_url)
        lane = fetch(connection, "SELECT held, disabled_reason AS reason FROM forbear.lanes")
        assert lane.held
        assert "no success" in lane.reason
        assert any(str(endpoint_id) in record.getMessage() for record in caplog.records), "the log tells it"

    def test_a_success_begins_it_anew(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection, policy=self.POLICY)
        for status in (500, 500, 500, 500, 500, 200, 500):
            move_clock(connection, hours=29)
            self.fail(connection, database_url, status)
        assert not fetch(connection, "SELECT held FROM forbear.lanes").held

    def test_once_enabled_it_is_not_disabled_by_the_next_failure(
        self, connection: Connection, database_url: str
    ) -> None:
        endpoint_id = make_endpoint(connection, policy=self.POLICY)
        for _ in range(6):
            move_clock(connection, hours=30)
            self.fail(connection, database_url)
        assert fetch(connection, "SELECT held FROM forbear.lanes").held
        enable = {"id": endpoint_id, "tenant": None}
        connection.execute(statement("enable_endpoint"), enable)
        self.fail(connection, database_url)
        assert not fetch(connection, "SELECT held FROM forbear.lanes").held


def test_a_batch_of_successes_writes_no_lane(connection: Connection, database_url: str) -> None:
    """What works costs no row beside its own."""
    endpoint_id = make_endpoint(connection)
    version = control(connection, endpoint_id).version
    post(connection, *[b"1"] * 50)
    run(Claimer(database_url, always(200)).run())
    assert control(connection, endpoint_id).version == version
    assert breaker(connection, endpoint_id).state is BreakerState.CLOSED
