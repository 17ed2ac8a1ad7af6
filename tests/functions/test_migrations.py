from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from forbear.migrations import Migration, MigrationError, known_migrations, migrate

type Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def empty_url(server_url: str) -> Any:
    name = f"empty_{uuid4().hex}"
    with psycopg.connect(f"{server_url}postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield f"{server_url}{name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_a_second_run_finds_nothing_to_do(connection: Connection) -> None:
    assert migrate(connection) == []


def test_each_migration_is_recorded_once_with_its_checksum(connection: Connection) -> None:
    rows = connection.execute("SELECT version, name, checksum FROM forbear.migrations ORDER BY version").fetchall()
    assert rows == [(m.version, m.name, m.checksum) for m in known_migrations()]


def test_two_processes_at_once_apply_everything_once(empty_url: str) -> None:
    def run() -> int:
        with psycopg.connect(empty_url, autocommit=True) as connection:
            return len(migrate(connection))

    with ThreadPoolExecutor(4) as pool:
        applied = sorted(future.result() for future in [pool.submit(run) for _ in range(4)])
    assert applied == [0, 0, 0, len(known_migrations())]


def test_a_failing_migration_leaves_nothing_behind(empty_url: str) -> None:
    broken = (*known_migrations(), Migration(9999, "broken", "CREATE TABLE forbear.half_done (); SELECT 1 / 0"))
    with psycopg.connect(empty_url, autocommit=True) as connection:
        with pytest.raises(psycopg.errors.DivisionByZero):
            migrate(connection, broken)
        assert connection.execute("SELECT to_regnamespace('forbear')").fetchone() == (None,)


def test_an_applied_migration_whose_text_changed_is_refused(connection: Connection) -> None:
    first, *others = known_migrations()
    changed = (replace(first, sql=first.sql + "\n-- changed"), *others)
    with pytest.raises(MigrationError, match=r"0001 .* was applied with another text"):
        migrate(connection, changed)


def test_a_database_from_a_newer_version_is_refused(connection: Connection) -> None:
    with pytest.raises(MigrationError, match="newer than this Forbear"):
        migrate(connection, known_migrations()[:-1])


def test_partitions_of_the_coming_days_are_there(connect: Callable[[], Connection]) -> None:
    count = connect().execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'forbear.history'::regclass")
    assert count.fetchone() == (8,)
