from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import psycopg
import pytest

from forbear.sealed import open_headers, open_secret
from tests.functions.builders import keyring_of, make_endpoint, post
from tests.functions.queue.leasing import (
    LEASE_S,
    claim,
    close_to,
    fetch,
    freeze,
    limits,
    ready_in_s,
    settle,
    several,
)

type Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture(autouse=True)
def _standing_clock(connection: Connection) -> None:
    """Times are compared to the microsecond."""
    freeze(connection)


def test_a_lease_carries_all_that_is_needed_to_send(connection: Connection) -> None:
    url = "https://r.example/x?y=%2F"
    endpoint_id = make_endpoint(connection, url=url, headers={"x-one": "1"}, secret="whsec_MQ==")
    (event_id,) = post(connection, b'{"z":1,"a":2}', event_type="order.paid")
    (lease,) = claim(connection)
    now = fetch(connection, "SELECT forbear.now() AS now").now
    assert (lease.event_id, lease.endpoint_id) == (event_id, endpoint_id)
    assert (lease.payload, lease.event_type, lease.content_type) == (b'{"z":1,"a":2}', "order.paid", "application/json")
    assert (lease.generation, lease.attempt, lease.tries, lease.limited, lease.held_s) == (1, 1, 0, 0, 0.0)
    assert lease.started_at is None, "no attempt came before this one"
    assert (lease.lease_until - now).total_seconds() == LEASE_S
    assert not lease.probe
    endpoint = json.loads(lease.endpoint)
    assert endpoint["url"] == url
    keyring = keyring_of(connection)
    assert open_headers(keyring, endpoint_id, endpoint["headers"]) == {"x-one": "1"}
    assert [open_secret(keyring, endpoint_id, one) for one in endpoint["secrets"]] == ["whsec_MQ=="]
    assert endpoint["policy"]["timeout_s"] == 15
    assert json.loads(lease.control)["state"] == "closed"


@pytest.mark.parametrize("timeout_s", [1, 7.5, 30])
def test_a_lease_outlasts_the_request_by_thirty_seconds_whatever_its_timeout(
    connection: Connection, timeout_s: float
) -> None:
    make_endpoint(connection, policy={"timeout_s": timeout_s})
    post(connection, b"1")
    (lease,) = claim(connection)
    now = fetch(connection, "SELECT forbear.now() AS now").now
    assert (lease.lease_until - now).total_seconds() == timeout_s + 30


def test_the_endpoint_comes_once_a_lane_and_secrets_that_sign_come_in_order(connection: Connection) -> None:
    endpoint_id = make_endpoint(connection)
    new = fetch(connection, "SELECT secret FROM forbear.secrets").secret
    for name, age in (("1.oldd", "1 hour"), ("1.gone", "-1 second")):
        connection.execute(
            "INSERT INTO forbear.secrets (endpoint_id, secret, created_at, expires_at)"
            " VALUES (%s, %s, forbear.now() - interval '1 day' - %s::interval, forbear.now() + %s::interval)",
            (endpoint_id, name, age, age),
        )
    post(connection, *[b"1"] * 5)
    leases = claim(connection)
    assert [lease.endpoint is None for lease in leases].count(False) == 1
    assert [lease.control is None for lease in leases].count(False) == 1
    (first,) = [lease.endpoint for lease in leases if lease.endpoint is not None]
    assert json.loads(first)["secrets"] == [new, "1.oldd"]


def test_what_is_leased_is_not_leased_again(connection: Connection) -> None:
    make_endpoint(connection)
    post(connection, *[b"1"] * 20)
    assert len(claim(connection)) == 20
    connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now(), low_water = '-infinity'")
    assert claim(connection) == []


def test_a_lane_is_looked_at_when_its_next_delivery_is_due(connection: Connection) -> None:
    endpoint_id = make_endpoint(connection)
    post(connection, b"1")
    (lease,) = claim(connection)
    assert ready_in_s(connection, endpoint_id) == math.inf, "an empty lane waits to be woken"
    settle(connection, [lease], "retry", delay_s=60)
    assert claim(connection) == []
    assert ready_in_s(connection, endpoint_id) == 60
    freeze(connection, forward_s=59.9)
    assert claim(connection) == []
    freeze(connection, forward_s=0.1)
    (again,) = claim(connection)
    assert (again.attempt, again.tries) == (2, 1)


def test_deliveries_of_a_lane_go_in_the_order_in_which_they_are_due(connection: Connection) -> None:
    make_endpoint(connection)
    post(connection, *[b"%d" % n for n in range(30)])
    taken = 0
    while leases := claim(connection, slots=20):
        settle(connection, leases)
        assert {int(lease.payload) for lease in leases} == set(range(taken, taken + len(leases)))
        taken += len(leases)
    assert taken == 30


class TestFairness:
    def test_lanes_take_turns_when_slots_are_few(self, connection: Connection) -> None:
        endpoints = several(connection, 10)
        post(connection, *[b"1"] * 50, event_type="t0")
        for n in range(1, 10):
            post(connection, b"1", b"2", event_type=f"t{n}")
        leases = claim(connection, slots=30)
        taken = Counter(lease.endpoint_id for lease in leases)
        assert set(taken) == set(endpoints)
        assert max(taken.values()) <= 2

    def test_when_slots_run_out_every_lane_had_its_first_before_any_had_its_second(
        self, connection: Connection
    ) -> None:
        several(connection, 8)
        for n in range(8):
            post(connection, *[b"1"] * 5, event_type=f"t{n}")
        # 8 lanes of a share of one each, but only five slots: the five that were ready first.
        assert set(Counter(lease.endpoint_id for lease in claim(connection, slots=5)).values()) == {1}
        rest = claim(connection, slots=5)
        assert len({lease.endpoint_id for lease in rest}) == len(rest)

    def test_who_was_left_out_comes_first_the_next_time(self, connection: Connection) -> None:
        several(connection, 6)
        for n in range(6):
            post(connection, *[b"1"] * 5, event_type=f"t{n}")
        first = {lease.endpoint_id for lease in claim(connection, slots=3)}
        freeze(connection, forward_s=0.01)
        second = {lease.endpoint_id for lease in claim(connection, slots=3)}
        assert len(first) == len(second) == 3
        assert not first & second

    def test_a_noisy_lane_does_not_keep_a_quiet_one_waiting(self, connection: Connection) -> None:
        noisy, *quiet = several(connection, 100)
        for _ in range(4):
            post(connection, *[b"1"] * 500, event_type="t0")
        claim(connection, slots=200)
        for n in range(1, 100):
            post(connection, b"1", event_type=f"t{n}")
        taken = Counter(lease.endpoint_id for _ in range(2) for lease in claim(connection, slots=200))
        assert set(quiet) <= set(taken)
        assert taken[noisy] < 60

    def test_no_lane_fills_the_slots_however_slow_it_is(self, connection: Connection) -> None:
        # Ten endpoints that never answer, one after the other, each with all the slots that are left.
        several(connection, 11, policy=limits(concurrency=1000))
        free = 1000
        for n in range(10):
            post(connection, *[b"1"] * 500, event_type=f"t{n}")
            while leases := claim(connection, slots=min(free, 500)):
                free -= len(leases)
        assert free > 10
        post(connection, b"1", event_type="t10")
        assert len(claim(connection, slots=free)) == 1

    def test_at_most_so_many_lanes_are_taken_at_a_time(self, connection: Connection) -> None:
        several(connection, 12)
        for n in range(12):
            post(connection, b"1", event_type=f"t{n}")
        assert [len(claim(connection, lanes=5)) for _ in range(4)] == [5, 5, 2, 0]


class TestBatches:
    def test_payload_bytes_bound_a_batch(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, *[b"x" * 100] * 30)
        assert [len(claim(connection, payload_bytes=1000)) for _ in range(4)] == [10, 10, 10, 0]

    def test_one_delivery_always_goes_however_large(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, b"x" * 5000, b"x" * 10, b"x" * 5000)
        assert [[len(lease.payload) for lease in claim(connection, payload_bytes=100)] for _ in range(3)] == [
            *([5000], [10], [5000])
        ]

    def test_slots_bound_a_batch(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"1"] * 10)
        assert len(claim(connection, slots=4)) in (1, 2), "a lane alone gets no more than half of the slots"
        assert ready_in_s(connection, endpoint_id) == 1, "what it has in flight counts against its share"

    def test_a_lane_that_was_cut_short_by_bytes_is_ready_at_once(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection)
        post(connection, *[b"x" * 100] * 30)
        claim(connection, payload_bytes=1000)
        assert ready_in_s(connection, endpoint_id) == 0


class TestConcurrency:
    def test_no_more_are_in_flight_than_the_endpoint_allows(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(concurrency=3))
        post(connection, *[b"1"] * 10)
        leases = claim(connection)
        assert len(leases) == 3
        connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now()")
        assert claim(connection) == []
        settle(connection, leases[:2])
        assert ready_in_s(connection, endpoint_id) == 1
        assert len(claim(connection)) == 2, "the settle woke the saturated lane"

    @pytest.mark.parametrize("waiting", [0, 1])
    def test_a_lane_that_gave_exactly_its_quota(self, connection: Connection, waiting: int) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(concurrency=3))
        post(connection, *[b"1"] * (3 + waiting))
        assert len(claim(connection)) == 3
        assert ready_in_s(connection, endpoint_id) == (1 if waiting else math.inf)
        assert fetch(connection, "SELECT saturated FROM forbear.lanes").saturated == bool(waiting)

    def test_a_lapsed_lease_frees_its_place(self, connection: Connection) -> None:
        make_endpoint(connection, policy=limits(concurrency=1))
        post(connection, b"1", b"2")
        assert len(claim(connection)) == 1
        freeze(connection, forward_s=LEASE_S)
        assert len(claim(connection)) == 1

    def test_a_second_later_a_saturated_lane_is_looked_at_again_even_if_no_settle_woke_it(
        self, connection: Connection
    ) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(concurrency=1))
        post(connection, b"1", b"2")
        claim(connection)
        for _ in range(3):
            assert ready_in_s(connection, endpoint_id) == 1
            freeze(connection, forward_s=1)
            assert claim(connection) == []


class TestRate:
    def test_a_burst_goes_at_once_and_the_rest_as_the_tokens_come(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(rate_per_s=2, burst=4))
        post(connection, *[b"1"] * 20)
        assert len(claim(connection)) == 4
        assert close_to(ready_in_s(connection, endpoint_id), 0.5)
        taken = []
        for _ in range(8):
            freeze(connection, forward_s=0.5)
            taken.append(len(claim(connection)))
        assert taken == [1] * 8

    def test_tokens_add_up_to_the_burst_and_no_further(self, connection: Connection) -> None:
        make_endpoint(connection, policy=limits(rate_per_s=10, burst=3))
        post(connection, *[b"1"] * 10)
        claim(connection)
        freeze(connection, forward_s=3600)
        assert len(claim(connection)) == 3

    def test_looking_too_early_costs_no_token(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(rate_per_s=1, burst=1))
        post(connection, *[b"1"] * 3)
        assert len(claim(connection)) == 1
        for _ in range(9):
            freeze(connection, forward_s=0.1)
            connection.execute("UPDATE forbear.lanes SET ready_at = forbear.now()")
            assert claim(connection) == []
        assert close_to(ready_in_s(connection, endpoint_id), 0.1)
        freeze(connection, forward_s=0.1)
        assert len(claim(connection)) == 1

    def test_a_slow_rate_is_kept_over_long(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(rate_per_s=0.01))
        post(connection, *[b"1"] * 3)
        assert len(claim(connection)) == 1
        assert close_to(ready_in_s(connection, endpoint_id), 100)

    def test_concurrency_bounds_a_lane_that_has_tokens(self, connection: Connection) -> None:
        endpoint_id = make_endpoint(connection, policy=limits(rate_per_s=100, burst=100, concurrency=2))
        post(connection, *[b"1"] * 10)
        leases = claim(connection)
        assert len(leases) == 2
        assert ready_in_s(connection, endpoint_id) == 1
        settle(connection, leases)
        assert len(claim(connection)) == 2

    def test_a_rate_that_is_set_later_starts_with_its_burst(self, connection: Connection) -> None:
        make_endpoint(connection)
        post(connection, *[b"1"] * 50)
        claim(connection, slots=50)
        connection.execute("UPDATE forbear.lanes SET rate_per_s = 1, burst = 5, ready_at = forbear.now()")
        assert len(claim(connection)) == 5
