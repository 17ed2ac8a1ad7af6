"""The races that the design names, with connections and threads of their own, as many rounds as fit a few seconds."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import count as numbers
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from forbear.policy.control import Control
from tests.functions.builders import make_endpoint, one, post
from tests.functions.queue.leasing import (
    LEASE_S,
    Settled,
    breaker,
    claim,
    control,
    count,
    failing,
    fetch,
    freeze,
    keep_late,
    limits,
    open_breaker,
    reap,
    settle,
)

type Connection = psycopg.Connection[tuple[Any, ...]]
type Connect = Callable[[], Connection]

FOR_S = 3.0


def together(*works: Callable[[], object]) -> list[Any]:
    """Run all at once, each in a thread. Gives what they gave; raises what one of them raised."""
    start = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> object:
        start.wait()
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [future.result() for future in [pool.submit(run, work) for work in works]]


def deadlocks(connection: Connection) -> int:
    """How many deadlocks the server has resolved in this database."""
    return int(fetch(connection, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").deadlocks)


class TestAnEmptyingLaneAgainstACommittingInsert:
    def test_an_insert_that_is_open_while_a_claim_empties_the_lane_is_found_after_its_commit(
        self, connection: Connection, connect: Connect
    ) -> None:
        producer = connect()
        lanes = 5
        for n in range(lanes):
            make_endpoint(connection, event_types=(f"t{n}",))
        rng = random.Random(1)
        for round_ in range(150):
            lane = f"t{rng.randrange(lanes)}"
            if rng.random() < 0.7:
                post(connection, b"before", event_type=lane)
            with producer.transaction():
                post(producer, b"open", event_type=lane)
                for _ in range(rng.randint(1, 2)):
                    settle(connection, claim(connection))
                    if rng.random() < 0.3:
                        post(connection, b"meanwhile", event_type=lane)
            found = [lease.payload for lease in claim(connection)]
            assert b"open" in found, f"round {round_}"
            connection.execute("DELETE FROM forbear.queue")

    def test_producers_and_claimers_at_once_lose_nothing(self, connection: Connection, connect: Connect) -> None:
        lanes = 24
        for n in range(lanes):
            make_endpoint(connection, event_types=(f"t{n}",))
        producers = [connect() for _ in range(2)]
        claimers = [connect() for _ in range(3)]
        rng = random.Random(2)
        end = time.monotonic() + FOR_S
        rounds = 0
        while time.monotonic() < end:
            rounds += 1
            done = threading.Event()

            def produce(producer: Connection, mine: list[str]) -> None:
                for lane in mine:
                    with producer.transaction():
                        post(producer, b"1", event_type=lane)
                        if rng.random() < 0.5:
                            producer.execute("SELECT 1")  # open for a round trip more

            def produce_all(producer: Connection, mine: list[str]) -> Callable[[], None]:
                return lambda: produce(producer, mine)

            def consume(claimer: Connection, done: threading.Event = done) -> int:
                taken = 0
                while not done.is_set():
                    leases = claim(claimer)
                    settle(claimer, leases)
                    taken += len(leases)
                return taken

            order = [f"t{n}" for n in range(lanes)]
            rng.shuffle(order)
            with ThreadPoolExecutor(len(claimers)) as pool:
                consuming = [pool.submit(consume, claimer) for claimer in claimers]
                together(*(produce_all(producer, order[n::2]) for n, producer in enumerate(producers)))
                done.set()
                taken = sum(future.result() for future in consuming)
            settle(connection, rest := claim(connection))
            assert taken + len(rest) == lanes, f"round {rounds}"
        assert rounds > 10
        assert count(connection, "forbear.queue") == 0
        assert count(connection, "forbear.history") == rounds * lanes


class TestLimitsWithSeveralClaimers:
    CLAIMERS = 4

    def test_never_over_the_concurrency_and_never_twice(self, connection: Connection, connect: Connect) -> None:
        for n in (1, 2, 3, 5):
            make_endpoint(connection, event_types=(f"t{n}",), policy=limits(concurrency=n))
            for _ in range(3):
                post(connection, *[b"1"] * 400, event_type=f"t{n}")
        claimed: list[tuple[UUID, int]] = []
        over: list[Any] = []
        in_flight = (
            "SELECT q.endpoint_id, count(*) AS number, l.concurrency FROM forbear.queue q"
            " JOIN forbear.lanes l USING (endpoint_id) WHERE q.lease_token IS NOT NULL"
            " GROUP BY 1, 3 HAVING count(*) > l.concurrency"
        )
        end = time.monotonic() + FOR_S

        def work(claimer: Connection, rng: random.Random) -> None:
            held: list[Any] = []
            while time.monotonic() < end:
                leases = claim(claimer)
                claimed.extend((lease.delivery_id, lease.attempt) for lease in leases)
                over.extend(claimer.execute(in_flight).fetchall())
                held += leases
                rng.shuffle(held)
                some = rng.randint(0, 4)
                settle(claimer, held[:some], "delivered" if rng.random() < 0.7 else "retry", delay_s=0)
                held = held[some:]

        together(*(bound(work, connect(), random.Random(n)) for n in range(self.CLAIMERS)))
        assert over == []
        assert len(claimed) > 200
        assert [lease for lease, times in Counter(claimed).items() if times > 1] == []
        assert deadlocks(connection) == 0

    def test_a_rate_holds_over_all_claimers_together(self, connection: Connection, connect: Connect) -> None:
        make_endpoint(connection, policy=limits(rate_per_s=40, burst=5))
        post(connection, *[b"1"] * 400)
        end = time.monotonic() + 1.5

        def work(claimer: Connection) -> int:
            taken = 0
            while time.monotonic() < end:
                leases = claim(claimer)
                settle(claimer, leases)
                taken += len(leases)
            return taken

        began = time.monotonic()
        taken = sum(together(*(bound(work, connect()) for _ in range(self.CLAIMERS))))
        assert 30 < taken <= 5 + 40 * (time.monotonic() - began) + 1

    def test_exactly_one_probe_goes(self, connection: Connection, connect: Connect) -> None:
        freeze(connection)
        endpoints = [make_endpoint(connection, event_types=(f"t{n}",)) for n in range(8)]
        claimers = [connect() for _ in range(self.CLAIMERS)]
        for n in range(8):
            post(connection, *[b"1"] * 60, event_type=f"t{n}")
        for _ in range(25):
            for endpoint_id in endpoints:
                open_breaker(connection, endpoint_id, for_s=1)
            freeze(connection, forward_s=1)
            probes = [lease for leases in together(*(bound(claim, one) for one in claimers)) for lease in leases]
            probes += claim(connection)
            assert Counter(lease.endpoint_id for lease in probes) == dict.fromkeys(endpoints, 1)
            assert all(lease.probe for lease in probes)
            settle(connection, probes, "return")

    def test_two_that_count_failures_of_one_lane_lose_none(self, connection: Connection, connect: Connect) -> None:
        """The compare-and-swap, with the caller deciding again."""
        endpoint_id = make_endpoint(connection)

        def count_failures(claimer: Connection) -> None:
            seen = control(claimer, endpoint_id)
            for _ in range(50):
                while True:
                    after = failing(seen, seen.breaker.failures + 1)
                    stale = settle(claimer, [], changes=[(endpoint_id, seen, after)]).stale
                    if not stale:
                        seen = replace(after, version=seen.version + 1)
                        break
                    seen = stale[endpoint_id]

        together(*(bound(count_failures, connect()) for _ in range(self.CLAIMERS)))
        assert breaker(connection, endpoint_id).failures == 50 * self.CLAIMERS


def bound(work: Callable[..., object], *arguments: object) -> Callable[[], object]:
    return lambda: work(*arguments)


class TestFallingAsleepAgainstAWakeUp:
    def sees_work(self, claimer: Connection, claimer_id: UUID) -> bool:
        return bool(
            one(claimer, "SELECT next_at IS NOT NULL AND next_at <= clock FROM forbear.outlook(%s)", claimer_id)
        )

    def test_of_an_ingest_and_a_claimer_that_falls_asleep_at_least_one_sees_the_other(
        self, connection: Connection, connect: Connect
    ) -> None:
        make_endpoint(connection)
        producer, claimer = connect(), connect()
        claimer_id = uuid4()
        rng = random.Random(3)
        outcomes: Counter[tuple[bool, bool]] = Counter()
        end = time.monotonic() + FOR_S
        while time.monotonic() < end or len(outcomes) < 2:
            one(claimer, "SELECT marked FROM forbear.stay_awake(%s, '5 seconds', NULL)", claimer_id)
            head_start = rng.uniform(-0.003, 0.003)

            def ingest(head_start: float = head_start) -> bool:
                wait_a_little(-head_start)
                post(producer, b"1")
                return bool(one(producer, "SELECT forbear.call_claimer()"))

            def fall_asleep(head_start: float = head_start) -> bool:
                wait_a_little(head_start)
                claimer.execute("DELETE FROM forbear.claimers WHERE id = %s", (claimer_id,))
                return self.sees_work(claimer, claimer_id)

            called, seen = together(ingest, fall_asleep)
            assert called or seen, f"after {sum(outcomes.values())} rounds"
            outcomes[called, seen] += 1
            connection.execute("DELETE FROM forbear.queue")
            connection.execute("DELETE FROM forbear.wakes")
            connection.execute("DELETE FROM forbear.claimers")
        assert sum(outcomes.values()) > 100

    def test_of_several_that_fall_asleep_the_last_one_knows_that_it_is(
        self, connection: Connection, connect: Connect
    ) -> None:
        claimers = [(connect(), uuid4()) for _ in range(3)]
        for _ in range(100):
            for claimer, claimer_id in claimers:
                one(claimer, "SELECT marked FROM forbear.stay_awake(%s, '5 seconds', NULL)", claimer_id)

            def fall_asleep(claimer: Connection, claimer_id: UUID) -> int:
                claimer.execute("DELETE FROM forbear.claimers WHERE id = %s", (claimer_id,))
                return int(one(claimer, "SELECT others FROM forbear.outlook(%s)", claimer_id))

            assert 0 in together(*(bound(fall_asleep, *claimer) for claimer in claimers))

    @pytest.mark.parametrize("limit", [1, 4])
    def test_of_ten_that_start_at_once_as_many_stay_as_may(
        self, connection: Connection, connect: Connect, limit: int
    ) -> None:
        claimers = [connect() for _ in range(10)]

        def start(claimer: Connection) -> bool:
            return bool(
                one(claimer, "SELECT marked FROM forbear.stay_awake(gen_random_uuid(), '5 seconds', %s)", limit)
            )

        for _ in range(25):
            assert sum(together(*(bound(start, claimer) for claimer in claimers))) == limit
            assert count(connection, "forbear.claimers") == limit
            connection.execute("DELETE FROM forbear.claimers")

    def test_of_ten_that_call_at_once_one_invokes(self, connection: Connection, connect: Connect) -> None:
        callers = [connect() for _ in range(10)]

        def call(caller: Connection) -> bool:
            return bool(one(caller, "SELECT forbear.call_claimer()"))

        for _ in range(25):
            assert sum(together(*(bound(call, caller) for caller in callers))) == 1
            connection.execute("UPDATE forbear.claimers SET awake_until = forbear.now()")


def wait_a_little(seconds: float) -> None:
    """Let so little time pass that a timer would not do."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class TestEverythingAtOnce:
    """Random operations of several claimers, an operator and producers: no deadlock, nothing lost, nothing twice."""

    LANES = 8

    def test_no_deadlock_and_nothing_lost(self, connection: Connection, connect: Connect) -> None:
        endpoints = [
            make_endpoint(connection, event_types=(f"t{n}", "all"), policy=limits(concurrency=20))
            for n in range(self.LANES)
        ]
        ids = numbers()
        end = time.monotonic() + FOR_S
        old: list[Any] = []  # leases that somebody has settled or lost: their results come late

        def claimer(mine: Connection, rng: random.Random) -> None:
            held: list[Any] = []
            while time.monotonic() < end:
                match rng.choice(("claim", "claim", "settle", "settle", "lose", "late", "reap", "breakers", "replay")):
                    case "claim":
                        held += claim(mine, slots=60)
                    case "settle":
                        rng.shuffle(held)
                        some, held = held[:20], held[20:]
                        batch = some + rng.sample(old, min(3, len(old)))
                        rng.shuffle(batch)
                        outcome = rng.choice(("delivered", "retry", "dead", "return"))
                        answer = settle(
                            *(mine, batch, outcome),
                            reason="permanent",
                            delay_s=rng.choice((0, 0, 1)),
                            changes=self.some_changes(mine, endpoints, rng) if rng.random() < 0.3 else (),
                            waits=dict.fromkeys(rng.sample(endpoints, 2), 0.01) if rng.random() < 0.2 else {},
                        )
                        assert isinstance(answer, Settled)
                        if outcome != "return":  # no result of an attempt that was not made can come late
                            old.extend(some[:2])
                    case "lose":
                        if held and rng.random() < 0.1:
                            gone = held.pop()
                            mine.execute(
                                "UPDATE forbear.queue SET lease_until = forbear.now()"
                                " WHERE id = %s AND lease_token = %s",
                                (gone.delivery_id, gone.lease_token),
                            )
                            # Only now: another claimer might give it back while it still stands, and keep it as late.
                            old.append(gone)
                    case "late":
                        for lease in rng.sample(old, min(2, len(old))):
                            keep_late(mine, lease)
                    case "reap":
                        reap(mine)
                    case "breakers":
                        settle(mine, [], changes=self.some_changes(mine, endpoints, rng))
                    case "replay":
                        one(mine, "SELECT forbear.replay_step(20)")
            settle(mine, held, "return")

        def operator(mine: Connection, rng: random.Random) -> None:
            while time.monotonic() < end:
                endpoint_id = rng.choice(endpoints)
                match rng.choice(("pause", "resume", "cancel", "replay", "resume")):
                    case "pause":
                        mine.execute(
                            "UPDATE forbear.lanes SET paused_at = forbear.now() WHERE endpoint_id = %s", (endpoint_id,)
                        )
                    case "resume":
                        mine.execute("UPDATE forbear.lanes SET paused_at = NULL WHERE endpoint_id = %s", (endpoint_id,))
                    case "cancel":
                        with mine.transaction():
                            mine.execute(
                                "SELECT FROM forbear.lanes WHERE endpoint_id = %s FOR NO KEY UPDATE", (endpoint_id,)
                            )
                            one(mine, "SELECT forbear.cancel_lane(%s, 7)", endpoint_id)
                    case "replay":
                        mine.execute(
                            "INSERT INTO forbear.replays (kind, endpoint_id, status, step_at)"
                            " VALUES ('replay', %s, %s, forbear.now())",
                            (endpoint_id, rng.choice(("dead", "cancelled"))),
                        )

        def producer(mine: Connection, rng: random.Random) -> int:
            posted = 0
            while time.monotonic() < end:
                wide = rng.random() < 0.2
                post(mine, *[b"%d" % next(ids)] * 3, event_type="all" if wide else f"t{rng.randrange(self.LANES)}")
                posted += 3 * (self.LANES if wide else 1)
            return posted

        works = [bound(claimer, connect(), random.Random(n)) for n in range(3)]
        posted = together(
            *works, bound(operator, connect(), random.Random(8)), bound(producer, connect(), random.Random(9))
        )[-1]
        assert deadlocks(connection) == 0
        self.drain(connection)
        assert count(connection, "forbear.queue") == count(connection, "forbear.queue_attempts") == 0
        assert count(connection, "forbear.history") == posted
        assert one(connection, "SELECT count(DISTINCT id) FROM forbear.history") == posted
        gaps = (
            "(SELECT h.id FROM forbear.history h LEFT JOIN forbear.history_attempts a ON a.delivery_id = h.id"
            " GROUP BY h.id, h.attempts HAVING count(a.number) <> h.attempts OR max(a.number) > h.attempts) g"
        )
        assert count(connection, gaps) == 0

    def some_changes(
        self, connection: Connection, endpoints: list[UUID], rng: random.Random
    ) -> list[tuple[UUID, Control, Control]]:
        """Count a failure, or none, of some lanes, in any order."""
        changes = []
        for endpoint_id in rng.sample(endpoints, 3):
            before = control(connection, endpoint_id)
            changes.append((endpoint_id, before, failing(before, rng.randrange(4))))
        return changes

    def drain(self, connection: Connection) -> None:
        """Let go of everything and deliver what is left."""
        connection.execute("UPDATE forbear.lanes SET paused_at = NULL")
        while one(connection, "SELECT count(*) FROM forbear.replays WHERE ended_at IS NULL"):
            one(connection, "SELECT forbear.replay_step(1000)")
        freeze(connection, forward_s=LEASE_S)
        reap(connection)
        idle = 0
        while idle < 10:
            leases = claim(connection)
            settle(connection, leases)
            freeze(connection, forward_s=1.0)
            idle = 0 if leases else idle + 1
            if idle and not count(connection, "forbear.queue"):
                return
        raise AssertionError(f"{count(connection, 'forbear.queue')} are stuck")
