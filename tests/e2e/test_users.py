"""The local stack's functions and the database: each connects as its own role, and as nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from infra.cli.up import _database
from tests.e2e.world import World, running, until


async def test_each_function_is_a_database_user_of_its_own(world: World, database_url: str) -> None:
    endpoint = await world.endpoint()
    world.receiver.answer = lambda _receipt, _time: 410
    event_id = await world.post({"id": 1})
    await world.ended(event_id, "dead")
    await world.call("POST", f"/v1/endpoints/{endpoint['id']}/enable")
    world.receiver.answer = lambda _receipt, _time: 204
    await world.replay({"filter": {"tenant": "acme", "status": "dead"}})
    await world.ended(event_id, "delivered")

    with psycopg.connect(database_url, autocommit=True) as connection:

        def maintained() -> bool:
            return connection.execute("SELECT maintained_at > '-infinity' FROM forbear.control").fetchone() == (True,)

        await until(maintained)
        users = connection.execute(
            "SELECT DISTINCT usename::text FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchall()
    # Maintenance has come and gone.
    own = {("forbear_ingest",), ("forbear_claimer",), ("forbear_replay",), ("forbear_manage",)}
    assert set(users) - {("forbear_owner",)} == own


@pytest.fixture
def lone_url(server_url: str) -> Iterator[str]:
    """An empty database, as its owner, who may make no roles."""
    name = f"lone_{uuid4().hex}"
    with psycopg.connect(f"{server_url}postgres", autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'lone'")
        connection.execute(f"CREATE DATABASE {name} OWNER {name}")
        yield f"postgresql://{name}:lone@{server_url.rpartition('@')[2]}{name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
        connection.execute(f"DROP ROLE {name}")


async def test_on_somebody_elses_server_everything_works_as_the_one_user_given_and_says_so(
    lone_url: str, tmp_path: Path
) -> None:
    async with (
        _database(tmp_path, lone_url, []) as (url, shown),
        running(url, own_users=False, key=tmp_path / "key") as world,
    ):
        assert shown.endswith("where every function works as the one user given")
        assert "lone@" not in shown
        await world.endpoint()
        await world.ended(await world.post({"id": 1}), "delivered")
        with psycopg.connect(url, autocommit=True) as connection:
            owners = "SELECT DISTINCT tableowner::text = current_user FROM pg_tables WHERE schemaname = 'forbear'"
            assert connection.execute(owners).fetchall() == [(True,)]
