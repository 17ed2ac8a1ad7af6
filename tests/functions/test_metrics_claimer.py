"""What a claimer counts, and that each way a delivery can end is counted once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest

import claimer as claimer_function
from forbear import measuring
from forbear.metrics import (
    ATTEMPTS,
    CLAIM_LATENCY,
    FINAL_STATUS,
    GAUGES,
    RETRY_DELAY,
    SCHEDULE_OFF,
    SETTLE_LATENCY,
    TIME_TO_SUCCESS,
    WAKE_CALLS_FAILED,
    Collector,
)
from forbear.settings import Settings
from forbear.waking import AwsWaking, invoke_claimer
from tests.functions.builders import make_endpoint, move_clock, one, post, run
from tests.functions.emf import counts, lines, values
from tests.functions.queue.leasing import LEASE_S, claim, endings, open_breaker
from tests.functions.scripted import (
    QUICK,
    SLOW,
    Claimer,
    CountingStore,
    ScriptedSender,
    always,
    answer,
    running,
    until,
)

type Connection = psycopg.Connection[tuple[Any, ...]]
type Output = pytest.CaptureFixture[str]

ONCE = {"schedule": {"kind": "ladder", "gaps_s": [0.01], "repeat_last": False, "jitter": {"kind": "none"}}}
NAMESPACE = "Forbear/Test"


def measured(url: str, sender: ScriptedSender | None = None, **options: Any) -> Claimer:
    """A claimer that writes down what it measures."""
    return Claimer(url, sender or always(200), collector=Collector(NAMESPACE), **options)


class TestEachEndIsCounted:
    def delivered(self, connection: Connection, url: str) -> None:
        make_endpoint(connection)
        post(connection, *[b"1"] * 3)
        run(measured(url).run())

    def exhausted(self, connection: Connection, url: str) -> None:
        make_endpoint(connection, policy=ONCE)
        post(connection, *[b"1"] * 3)
        run(measured(url, always(500)).run())

    def permanent(self, connection: Connection, url: str) -> None:
        make_endpoint(connection)
        post(connection, *[b"1"] * 3)
        run(measured(url, always(301)).run())

    def unsendable(self, connection: Connection, url: str) -> None:
        make_endpoint(connection)
        post(connection, *[b"1"] * 3)
        connection.execute("DELETE FROM forbear.secrets")
        run(measured(url).run())

    def expired(self, connection: Connection, url: str) -> None:
        make_endpoint(connection)
        post(connection, *[b"1"] * 3, expires_at=one(connection, "SELECT forbear.now()"))
        run(measured(url).run())

    def lost(self, connection: Connection, url: str) -> None:
        make_endpoint(connection)
        post(connection, *[b"1"] * 3)
        connection.execute("UPDATE forbear.queue SET lost = 4, attempts = 4")
        claim(connection)
        move_clock(connection, seconds=LEASE_S)
        run(measured(url).run())

    def circuit_open(self, connection: Connection, url: str) -> None:
        endpoint_id = make_endpoint(connection, policy={"breaker": {"dead_letter": True}})
        open_breaker(connection, endpoint_id, for_s=3600)
        post(connection, *[b"1"] * 3)
        run(measured(url).run())

    @pytest.mark.parametrize(
        "how", ["delivered", "exhausted", "permanent", "unsendable", "expired", "lost", "circuit_open"]
    )
    def test_once(self, connection: Connection, database_url: str, capsys: Output, how: str) -> None:
        getattr(self, how)(connection, database_url)
        assert endings(connection) == {how: 3}
        output = capsys.readouterr().out
        run(measured(database_url).run())
        output += capsys.readouterr().out
        assert counts(output, FINAL_STATUS) == {"delivered" if how == "delivered" else "dead": 3}

    def test_also_by_a_claimer_that_comes_later(
        self, connection: Connection, database_url: str, capsys: Output
    ) -> None:
        """One that ends deliveries and dies before it has told leaves the count behind."""
        make_endpoint(connection)
        post(connection, b"1")
        connection.execute("UPDATE forbear.queue SET lost = 4, attempts = 4")
        claim(connection)
        move_clock(connection, seconds=LEASE_S)
        assert one(connection, "SELECT forbear.reap(500)") == 1
        run(measured(database_url).run())
        assert counts(capsys.readouterr().out, FINAL_STATUS) == {"dead": 1}

    def test_but_a_cancelled_one_is_neither(self, connection: Connection, database_url: str, capsys: Output) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, b"1")
        connection.execute("UPDATE forbear.lanes SET deleted_at = forbear.now() WHERE endpoint_id = %s", (endpoint_id,))
        run(measured(database_url).run())
        assert endings(connection) == {"cancelled": 1}
        assert counts(capsys.readouterr().out, FINAL_STATUS) == {}

    def test_and_a_late_result_is_none(self, connection: Connection, database_url: str, capsys: Output) -> None:
        """The attempt is counted as lost, by whoever takes the delivery over, and the delivery when that is done."""
        make_endpoint(connection)
        post(connection, b"1")

        async def late() -> Any:
            connection.execute("UPDATE forbear.queue SET lease_until = forbear.now()")
            return answer(200)

        sender = ScriptedSender(lambda _, number: late() if number == 0 else answer(200))
        tally = run(measured(database_url, sender).run())
        assert (tally.late, tally.delivered) == (1, 1)
        output = capsys.readouterr().out
        assert counts(output, ATTEMPTS) == {"lost": 1, "success": 1}
        assert counts(output, FINAL_STATUS) == {"delivered": 1}


class TestAttempts:
    @pytest.mark.parametrize(
        ("status", "outcome"),
        [(200, "success"), (503, "retry"), (404, "limited"), (301, "permanent"), (410, "gone")],
    )
    def test_are_counted_by_outcome(
        self, connection: Connection, database_url: str, capsys: Output, status: int, outcome: str
    ) -> None:
        make_endpoint(connection, policy=SLOW)
        post(connection, *[b"1"] * 2)
        run(measured(database_url, always(status)).run())
        assert counts(capsys.readouterr().out, ATTEMPTS) == {outcome: 2}

    def test_that_were_broken_off_are_lost(self, connection: Connection, database_url: str, capsys: Output) -> None:
        make_endpoint(connection)
        post(connection, *[b"1"] * 2)

        async def work() -> None:
            async def hang() -> Any:
                await until(lambda: False)

            claimer = measured(database_url, ScriptedSender(lambda _r, _n: hang()))
            async with running(claimer, 4):
                await until(lambda: len(claimer.sender.requests) == 2)

        run(work())
        assert counts(capsys.readouterr().out, ATTEMPTS) == {"lost": 2}


class TestDurations:
    def test_time_to_success_counts_from_the_event(
        self, connection: Connection, database_url: str, capsys: Output
    ) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        move_clock(connection, seconds=100)
        post(connection, b"2")
        run(measured(database_url).run())
        new, old = sorted(values(capsys.readouterr().out, TIME_TO_SUCCESS))
        assert new >= 0
        assert old >= new + 100

    def test_what_a_replay_put_back_says_nothing_about_that(
        self, connection: Connection, database_url: str, capsys: Output
    ) -> None:
        make_endpoint(connection, policy=ONCE)
        post(connection, b"1")
        run(measured(database_url, always(500)).run())
        connection.execute(
            "INSERT INTO forbear.replays (kind, tenant, status, step_at)"
            " VALUES ('replay', 'acme', 'dead', forbear.now())"
        )
        run(measured(database_url).run())
        output = capsys.readouterr().out
        assert counts(output, FINAL_STATUS) == {"dead": 1, "delivered": 1}
        assert values(output, TIME_TO_SUCCESS) == []

    def test_retry_delays_are_those_that_were_chosen(
        self, connection: Connection, database_url: str, capsys: Output
    ) -> None:
        make_endpoint(connection, policy=QUICK)
        post(connection, b"1")
        run(measured(database_url, ScriptedSender(lambda _, number: answer(500 if number < 2 else 200))).run())
        assert values(capsys.readouterr().out, RETRY_DELAY) == [0.01, 0.01]

    def test_claims_and_settles_are_timed(self, connection: Connection, database_url: str, capsys: Output) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        run(measured(database_url).run())
        output = capsys.readouterr().out
        assert all(value > 0 for value in values(output, CLAIM_LATENCY))
        assert len(values(output, SETTLE_LATENCY)) == 1


class TestGauges:
    def test_are_read_at_the_start_and_at_the_end(self, database_url: str, capsys: Output) -> None:
        run(measured(database_url).run())
        output = capsys.readouterr().out
        assert {gauge: len(values(output, gauge)) for gauge in GAUGES} == dict.fromkeys(GAUGES, 2)
        assert all(line.namespace == NAMESPACE for line in lines(output))

    def test_are_read_now_and_then_in_between(
        self, database_url: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(measuring, "EVERY_S", 0.0)
        claimer = measured(database_url, linger_s=600)

        async def work() -> None:
            async with running(claimer):
                await claimer.look_again(4)
                claimer.loop.stop()

        run(work())
        assert len(values(capsys.readouterr().out, GAUGES[0])) > 4

    def test_that_cannot_be_read_stop_no_delivery(
        self, connection: Connection, database_url: str, capsys: Output, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Blind(CountingStore):
            async def measure(self) -> Any:
                return await self._rows("SELECT no_such_column")

        make_endpoint(connection)
        post(connection, b"1")
        run(measured(database_url, store=Blind).run())
        assert endings(connection) == {"delivered": 1}
        assert "the gauges could not be read" in caplog.text
        assert counts(capsys.readouterr().out, FINAL_STATUS) == {"delivered": 1}

    def test_a_tick_that_finds_another_claimer_awake_writes_nothing(
        self, connection: Connection, database_url: str, capsys: Output
    ) -> None:
        one(connection, "SELECT marked FROM forbear.stay_awake(gen_random_uuid(), '60 seconds', NULL)")
        run(measured(database_url).run(only_if_alone=True))
        assert capsys.readouterr().out == ""


class TestTheSweep:
    """Ticks are a second apart here."""

    def found(
        self, connection: Connection, url: str, capsys: Output, *, overdue_s: float = 60, sweeping: bool = True
    ) -> list[float]:
        make_endpoint(connection)
        post(connection, b"1")
        move_clock(connection, seconds=overdue_s)
        run(measured(url).run(only_if_alone=True, sweeping=sweeping))
        assert endings(connection) == {"delivered": 1}
        return values(capsys.readouterr().out, SCHEDULE_OFF)

    def test_tells_of_work_that_was_overdue_while_the_schedule_rested(
        self, connection: Connection, database_url: str, capsys: Output
    ) -> None:
        connection.execute("UPDATE forbear.control SET schedule = 'resting'")
        assert self.found(connection, database_url, capsys) == [1]

    def test_tells_too_where_only_the_note_says_that_the_schedule_ticked(
        self, connection: Connection, database_url: str, capsys: Output
    ) -> None:
        """Somebody switched it off, or the note came from a backup: it is switched on, whatever the note says."""
        connection.execute("UPDATE forbear.control SET schedule = 'ticking'")
        make_endpoint(connection)
        post(connection, b"1")
        move_clock(connection, seconds=60)
        claimer = measured(database_url)
        run(claimer.run(only_if_alone=True, sweeping=True))
        assert values(capsys.readouterr().out, SCHEDULE_OFF) == [1]
        assert claimer.waking.calls[0] == "tick"

    def test_does_not_of_work_that_has_only_just_come(
        self, connection: Connection, database_url: str, capsys: Output
    ) -> None:
        assert self.found(connection, database_url, capsys, overdue_s=0) == []

    def test_is_what_tells_and_not_a_tick(self, connection: Connection, database_url: str, capsys: Output) -> None:
        assert self.found(connection, database_url, capsys, sweeping=False) == []

    def test_that_finds_nothing_is_silent(self, database_url: str, capsys: Output) -> None:
        run(measured(database_url).run(only_if_alone=True, sweeping=True))
        assert values(capsys.readouterr().out, SCHEDULE_OFF) == []


class TestTheFunction:
    class Context:
        @staticmethod
        def get_remaining_time_in_millis() -> int:
            return 60_000

    @pytest.fixture
    def role(self) -> str:
        return "forbear_claimer"

    @pytest.fixture
    def call(self, handlers: pytest.MonkeyPatch) -> Any:
        """Calls the function, in an environment of its own."""
        handlers.setenv("FORBEAR_LINGER_S", "0")

        def calling(why: str) -> None:
            claimer_function.handler({"forbear": why}, self.Context)

        yield calling
        claimer_function.runner.run(claimer_function._store().aclose())
        claimer_function._store.cache_clear()

    def test_takes_the_sweep_for_what_it_is(
        self,
        connection: Connection,
        handlers: pytest.MonkeyPatch,
        call: Callable[[str], None],
        capsys: Output,
    ) -> None:
        handlers.setenv("FORBEAR_METRICS_NAMESPACE", NAMESPACE)
        make_endpoint(connection, policy=SLOW)
        post(connection, b"1")
        move_clock(connection, hours=1)
        call("sweep")
        output = capsys.readouterr().out
        assert values(output, SCHEDULE_OFF) == [1]
        assert counts(output, ATTEMPTS) == {"retry": 1}  # 127.0.0.1 is no address to send to

    def test_writes_no_metrics_unless_it_is_told_where(self, call: Callable[[str], None], capsys: Output) -> None:
        call("tick")
        assert lines(capsys.readouterr().out) == []


class TestWakeCallsThatFail:
    """Of whatever function: they are written at once."""

    KNOWN = Settings(
        database_url="postgresql://nobody@127.0.0.1/none",
        claimer_function="claimer",
        schedule_name="tick",
        metrics_namespace=NAMESPACE,
    )

    @pytest.fixture(autouse=True)
    def broken(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_service: str) -> Any:
            raise TimeoutError

        monkeypatch.setattr("forbear.waking._client", fail)

    def test_are_counted(self, capsys: Output) -> None:
        assert invoke_claimer(self.KNOWN, "wake") is False
        assert run(AwsWaking(self.KNOWN).keep_ticking()) is False
        assert run(AwsWaking(self.KNOWN).stop_ticking(60)) is False
        assert values(capsys.readouterr().out, WAKE_CALLS_FAILED) == [1, 1, 1]

    def test_are_only_logged_without_a_namespace(self, capsys: Output) -> None:
        assert invoke_claimer(replace(self.KNOWN, metrics_namespace=None), "wake") is False
        assert capsys.readouterr().out == ""
