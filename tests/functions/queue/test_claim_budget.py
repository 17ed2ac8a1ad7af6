"""The retry budget: how many retries go beside first attempts, by the bucket alone and through claims."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.functions.builders import make_endpoint, post
from tests.functions.queue.leasing import claim, count, fetch, freeze, ready_in_s, settle

type Connection = psycopg.Connection[tuple[Any, ...]]

FULL = float("inf")
ALL = {"concurrency": 1000}


@pytest.fixture(autouse=True)
def _standing_clock(connection: Connection) -> None:
    freeze(connection)


class Bucket:
    """The bucket as a claim uses it: time passes, first attempts deposit, retries withdraw."""

    def __init__(self, connection: Connection, *, ratio: float, floor_per_s: float, window_s: float) -> None:
        self._connection = connection
        self._ratio, self._floor, self._window = ratio, floor_per_s, window_s
        self._tokens, self._deposits = FULL, 0.0
        self.wait(0)

    def wait(self, seconds: float) -> None:
        row = fetch(
            self._connection,
            "SELECT tokens, deposits FROM forbear.budget(%s, %s, %s, %s, %s)",
            *(self._tokens, self._deposits, seconds, self._floor, self._window),
        )
        self._tokens, self._deposits = row.tokens, row.deposits

    def deposit(self, first_attempts: int) -> None:
        self._deposits += self._ratio * first_attempts

    def withdraw(self) -> bool:
        """Take a token for a retry, if there is one."""
        if self.balance < 1 - 1e-6:
            return False
        taken = min(1.0, self._deposits)
        self._deposits -= taken
        self._tokens -= 1 - taken
        return True

    @property
    def balance(self) -> float:
        return self._tokens + self._deposits

    def retries(self) -> int:
        """How many retries go at once."""
        number = 0
        while self.withdraw():
            number += 1
        return number


class TestPublishedFigures:
    def test_finagle(self, connection: Connection) -> None:
        """com.twitter.finagle.service.RetryBudget: 20 % and 10 a second over 10 s, as in its documentation."""
        assert Bucket(connection, ratio=0.2, floor_per_s=10, window_s=10).retries() == 100
        fed = Bucket(connection, ratio=0.2, floor_per_s=10, window_s=10)
        fed.deposit(1000)
        assert fed.retries() == 100 + 200

    def test_finagles_deposits_are_forgotten(self, connection: Connection) -> None:
        fed = Bucket(connection, ratio=0.2, floor_per_s=10, window_s=10)
        fed.deposit(1000)
        fed.wait(200)
        assert fed.retries() == 100

    def test_grpc(self, connection: Connection) -> None:
        """gRFC A6 with maxTokens 10 and tokenRatio 0.1.

        It lets go while more than half of the tokens are left. Since tokens come in steps of the ratio, that is a
        bucket of half of them less one step: five less 0.1.
        """
        bucket = Bucket(connection, ratio=0.1, floor_per_s=0.49, window_s=10)
        assert [bucket.withdraw() for _ in range(5)] == [True, True, True, True, False]
        bucket.deposit(1)
        assert bucket.withdraw()
        assert not bucket.withdraw()

    def test_ten_percent(self, connection: Connection) -> None:
        """Site Reliability Engineering, chapter 21: retries are at most a tenth of the requests."""
        bucket = Bucket(connection, ratio=0.1, floor_per_s=0.001, window_s=60)
        bucket.retries()
        sent = 0
        for _ in range(300):
            bucket.wait(1)
            bucket.deposit(100)
            sent += bucket.retries()
        assert sent == pytest.approx(300 * 10, rel=0.01)
        assert sent <= 300 * (10 + 0.001) + 1


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ratio=st.floats(0, 2),
    floor=st.floats(0.001, 50),
    window=st.floats(1, 60),
    steps=st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 300)), max_size=12),
)
def test_no_more_retries_than_the_share_and_the_floor_allow(
    connection: Connection, ratio: float, floor: float, window: float, steps: list[tuple[int, int]]
) -> None:
    """Over any time: a share of the first attempts, the floor's rate, and what was saved up before."""
    bucket = Bucket(connection, ratio=ratio, floor_per_s=floor, window_s=window)
    sent, seconds, firsts = bucket.retries(), 0.0, 0
    assert sent <= max(1, floor * window) + 1e-6
    for microseconds, first_attempts in steps:
        passed_s = microseconds / 1e6
        bucket.wait(passed_s)
        bucket.deposit(first_attempts)
        seconds, firsts = seconds + passed_s, firsts + first_attempts
        sent += bucket.retries()
        assert sent <= max(1, floor * window) + floor * seconds + ratio * firsts + 1e-2
        assert bucket.balance >= 0


class TestClaims:
    def failed_ones(self, connection: Connection, number: int) -> None:
        """So many deliveries whose first attempt has failed, due again now."""
        post(connection, *[b"failed"] * number)
        settle(connection, claim(connection), "retry", delay_s=0)

    def endpoint(self, connection: Connection, **budget: float) -> UUID:
        return make_endpoint(connection, policy={"limits": ALL, "budget": budget, "breaker": None, "adaptive": None})

    def claimed(self, connection: Connection) -> tuple[int, int]:
        """Claim what may go. Gives how many first attempts and how many retries went."""
        leases = claim(connection, slots=1000)
        return sum(lease.tries == 0 for lease in leases), sum(lease.tries > 0 for lease in leases)

    def test_what_is_over_waits_for_the_floor_and_first_attempts_go(self, connection: Connection) -> None:
        endpoint_id = self.endpoint(connection, ratio=0.0, floor_per_s=0.5, window_s=10)
        self.failed_ones(connection, 20)
        assert self.claimed(connection) == (0, 5)
        assert ready_in_s(connection, endpoint_id) == 2, "a token comes every two seconds"
        post(connection, *[b"new"] * 3)
        assert self.claimed(connection) == (3, 0)
        assert ready_in_s(connection, endpoint_id) == 2
        freeze(connection, forward_s=1)
        assert self.claimed(connection) == (0, 0)
        freeze(connection, forward_s=1)
        assert self.claimed(connection) == (0, 1)

    def test_first_attempts_earn_retries(self, connection: Connection) -> None:
        self.endpoint(connection, ratio=0.1, floor_per_s=0.001, window_s=60)
        self.failed_ones(connection, 20)
        freeze(connection, forward_s=6000)
        assert self.claimed(connection) == (0, 1), "what the first attempts earned is forgotten, one is saved up"
        post(connection, *[b"new"] * 30)
        assert self.claimed(connection) == (30, 0), "deposits count from the next claim on"
        freeze(connection)
        connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now()")
        assert self.claimed(connection) == (0, 3)

    def test_without_a_budget_all_go(self, connection: Connection) -> None:
        make_endpoint(connection, policy={"limits": ALL, "budget": None, "breaker": None, "adaptive": None})
        self.failed_ones(connection, 50)
        assert self.claimed(connection) == (0, 50)

    def test_no_first_attempt_is_behind_a_retry_that_waits(self, connection: Connection) -> None:
        """However many retries are due and how much older they are, a first attempt is found by one look."""
        self.endpoint(connection, ratio=0.0, floor_per_s=0.001, window_s=1)
        self.failed_ones(connection, 300)
        self.claimed(connection)
        freeze(connection, forward_s=1)
        post(connection, b"new")
        assert self.claimed(connection) == (1, 0)

    def test_a_probe_needs_no_token(self, connection: Connection) -> None:
        make_endpoint(connection, policy={"budget": {"ratio": 0, "floor_per_s": 0.001, "window_s": 1}})
        self.failed_ones(connection, 3)
        assert self.claimed(connection) == (0, 1)
        connection.execute(
            "UPDATE forbear.lanes SET breaker_state = 'open', breaker_until = forbear.now(), ready_at = forbear.now()"
        )
        (lease,) = claim(connection)
        assert lease.probe

    @pytest.mark.parametrize("seconds", [1, 300, 36_000])
    def test_a_clock_that_was_set_back_stops_no_claim(self, connection: Connection, seconds: int) -> None:
        self.endpoint(connection, ratio=0.5, floor_per_s=1, window_s=1)
        self.failed_ones(connection, 20)
        connection.execute("SELECT forbear.make_partitions(forbear.now() - interval '1 day', 3)")
        freeze(connection, forward_s=-seconds)
        post(connection, b"new")
        connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now(), low_water = '-infinity'")
        assert self.claimed(connection)[0] == 1

    def test_nothing_is_lost_over_it(self, connection: Connection) -> None:
        self.endpoint(connection, ratio=0.1, floor_per_s=1, window_s=10)
        self.failed_ones(connection, 40)
        for _ in range(60):
            settle(connection, claim(connection))
            freeze(connection, forward_s=1)
        assert count(connection, "forbear.queue") == 0
        assert count(connection, "forbear.history WHERE state = 'delivered'") == 40
