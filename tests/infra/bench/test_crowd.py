"""What is put into the tables directly is as Forbear writes it: it is claimed, sent and found like anything else."""

from __future__ import annotations

import time

from infra.bench.crowd import Crowd, break_off, finish, post, settle_in, wait
from infra.bench.draining import drainer
from infra.bench.processor import server_cpu_s
from infra.bench.world import World
from tests.functions.builders import one


def test_what_waits_is_delivered(world: World) -> None:
    with world.connect() as connection:
        crowd = settle_in(world, connection, Crowd(0, 3, f"{world.receiver_url}/"))
        wait(connection, crowd, 10, b"{}")
        assert one(connection, "SELECT count(DISTINCT event_id) FROM forbear.queue WHERE due_at <= forbear.now()") == 10
        with drainer(world.key) as draining:
            assert draining.drain(world.url("claimer"), 7).delivered == 7
        assert one(connection, "SELECT count(*) FROM forbear.deliveries WHERE state = 'delivered'") == 7
        assert one(connection, "SELECT count(*) FROM forbear.deliveries WHERE state = 'pending'") == 3


def test_what_is_finished_has_its_attempt(world: World) -> None:
    with world.connect() as connection:
        crowd = settle_in(world, connection, Crowd(0, 3, f"{world.receiver_url}/"))
        finish(connection, crowd, 10, b"{}")
        joined = (
            "forbear.deliveries d JOIN forbear.attempts a ON a.delivery_id = d.id"
            " JOIN forbear.events e ON e.id = d.event_id"
        )
        ended = "d.state = 'delivered' AND a.verdict = 'success'"
        assert one(connection, f"SELECT count(*) FROM {joined} WHERE {ended}") == 10


def test_a_broken_crowd_is_not_claimed(world: World) -> None:
    with world.connect() as connection:
        dead = settle_in(world, connection, Crowd(0, 2, f"{world.receiver_url}/"))
        wait(connection, dead, 4, b"{}")
        break_off(connection, dead)
        living = settle_in(world, connection, Crowd(2, 1, f"{world.receiver_url}/"))
        post(connection, [b"{}"], living.tenants)
        claimed = connection.execute("SELECT endpoint_id FROM forbear.claim(500, 1000000, 200)").fetchall()
        assert claimed == [(living.ids[0],)]


def test_the_servers_cpu_time_keeps_that_of_ended_backends(world: World) -> None:
    before = server_cpu_s(world.server.pid)
    with world.connect() as connection:
        pid = one(connection, "SELECT pg_backend_pid()")
        connection.execute("SELECT count(*) FROM generate_series(1, 1500000)")
        during = server_cpu_s(world.server.pid)
    with world.connect() as connection:
        while one(connection, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid):
            time.sleep(0.005)
    assert during - before >= 0.05
    assert server_cpu_s(world.server.pid) >= during
