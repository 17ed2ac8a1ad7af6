"""The group end-to-end at tiny scale, and that what it counts is counted right."""

from __future__ import annotations

import psycopg
import pytest

from infra.bench.counting import counted
from infra.bench.filling import fill, make_endpoints, payload
from infra.bench.groups import end_to_end
from infra.bench.posting import Job, PostingFailed, producers
from infra.bench.turns import take_turns
from infra.bench.world import Scale, World


@pytest.mark.timeout(300)
def test_a_run_gives_every_figure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_to_end, "_QUICK", end_to_end._Sizes(100, 0.2, 400, 40, 800, 200))
    monkeypatch.setattr(end_to_end, "COUNTED_DELIVERIES", 100)
    monkeypatch.setattr(end_to_end, "COUNTED_SINGLES", 20)
    monkeypatch.setattr(end_to_end, "COUNTED_BATCHES", 2)
    figures = {figure.name: figure for figure in end_to_end.measure(world, Scale(quick=True, repeats=1))}
    assert {name for name, figure in figures.items() if figure.aim is not None} == {
        *(f"drain, fan-out {fan_out}{part}" for fan_out in (1, 5) for part in ("", ": Python CPU per delivery")),
        *("sustained", "ingest, single events", "ingest, in batches"),
    }
    assert {name for name, figure in figures.items() if figure.counted} == {
        f"{what} per {whose}"
        for what in ("statements", "statements within these", "rows written", "WAL")
        for whose in ("delivery", "event, one by one", "event, in batches")
    }
    assert {"saturation", "sender", "sustained: acknowledged, 99th percentile"} <= figures.keys()
    assert all(figure.median > 0 for figure in figures.values())


def test_statements_and_rows_are_counted_as_they_are(world: World) -> None:
    with world.connect() as connection:
        connection.execute("CREATE TABLE forbear.counted AS SELECT generate_series(1, 10) AS n")

    def work() -> None:
        with psycopg.connect(world.url(), autocommit=True) as connection:
            for _ in range(3):
                connection.execute("INSERT INTO forbear.counted SELECT generate_series(1, 100)")
            connection.execute("UPDATE forbear.counted SET n = 0 WHERE n = 1")
            connection.execute("DELETE FROM forbear.counted WHERE n = 2")
            connection.execute("DO $$BEGIN PERFORM 1; PERFORM 2; END$$")

    cost = counted(world, work)
    assert (cost.statements, cost.nested, cost.rows) == (6, 2, 300 + 4 + 4)
    assert 308 * 50 < cost.wal_bytes < 308 * 100


def test_a_batch_is_claimed_and_settled_by_one_statement_each(world: World) -> None:
    with world.connect() as connection:
        tenants = make_endpoints(world, connection, 100, fan_out=5)
        deliveries = fill(connection, {tenant: [payload()] * 10 for tenant in tenants})
    assert deliveries == 1000
    cost = counted(world, lambda: take_turns(world, deliveries))
    # Two full batches, the claim that finds nothing, the data keys, and the clock.
    assert cost.statements == 2 * 2 + 3


def test_what_producers_post_is_stored_for_all_tenants_alike(world: World) -> None:
    with world.connect() as connection:
        tenants = make_endpoints(world, connection, 4)
        with producers(world.environment("ingest"), 2) as producing:
            posted = producing.post([Job(tenants, 4), Job(tenants, 2, batch=8)])
        rows = connection.execute("SELECT tenant, count(*) FROM forbear.events GROUP BY tenant").fetchall()
        ((bodies,),) = connection.execute("SELECT count(*) FROM forbear.events WHERE payload = %s", (payload(),))
    assert (posted.events, len(posted.latencies_ms)) == (20, 6)
    assert dict(rows) == {"nobody": 2} | dict.fromkeys(tenants, 5)
    assert bodies == 22


def test_an_event_that_is_refused_fails_the_measurement(world: World) -> None:
    with producers(world.environment("ingest"), 1) as producing, pytest.raises(PostingFailed, match="422"):
        producing.post([Job(("",), 1)])
