from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.migrations import Migration, MigrationError, Phase, in_order, known_migrations, migrate, missing
from forbear.roles import owning

type Connection = psycopg.Connection[tuple[Any, ...]]

# A version that renames a table in two steps. The old code reads forbear.parcels, the new one forbear.boxes.
OLD = (*known_migrations(), Migration(9000, "parcels", "CREATE TABLE forbear.parcels (id int); "))
EXPAND = Migration(9001, "boxes", "CREATE VIEW forbear.boxes AS SELECT * FROM forbear.parcels")
CONTRACT = Migration(
    9001,
    "boxes",
    "DROP VIEW forbear.boxes; ALTER TABLE forbear.parcels RENAME TO boxes",
    Phase.POST,
)
NEW = (*OLD, EXPAND, CONTRACT)
# The one after it, which builds on the second step.
LATER = Migration(9002, "sizes", "ALTER TABLE forbear.boxes ADD size int")
LAST = Migration(9002, "sizes", "ALTER TABLE forbear.boxes ALTER size SET NOT NULL", Phase.POST)


@pytest.fixture
def empty_url(server_url: str) -> Any:
    name = f"empty_{uuid4().hex}"
    with psycopg.connect(f"{server_url}postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield f"{server_url}{name}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def old(connection: Connection) -> Connection:
    """A connection, as the owner, to a database that the old version has brought up to date."""
    with owning(connection):
        migrate(connection, OLD)
    connection.execute("SET ROLE forbear_owner")
    return connection


def test_a_second_run_finds_nothing_to_do(connection: Connection) -> None:
    assert migrate(connection) == []


def test_each_migration_is_recorded_once_with_its_checksum(connection: Connection) -> None:
    rows = connection.execute("SELECT version, phase, name, checksum FROM forbear.migrations").fetchall()
    assert sorted(rows) == sorted((m.version, m.phase, m.name, m.checksum) for m in known_migrations())


def test_two_processes_at_once_apply_everything_once(empty_url: str) -> None:
    def run() -> int:
        with psycopg.connect(empty_url, autocommit=True) as connection:
            return len(migrate(connection))

    with ThreadPoolExecutor(4) as pool:
        applied = sorted(future.result() for future in [pool.submit(run) for _ in range(4)])
    assert applied == [0, 0, 0, len(known_migrations())]


def test_a_failing_migration_leaves_nothing_behind_and_is_named(empty_url: str) -> None:
    broken = (*known_migrations(), Migration(9999, "broken", "CREATE TABLE forbear.half_done (); SELECT 1 / 0"))
    with psycopg.connect(empty_url, autocommit=True) as connection:
        with pytest.raises(MigrationError, match=r"migration 9999 \(broken\) failed: division by zero\. Nothing was"):
            migrate(connection, broken)
        assert connection.execute("SELECT to_regnamespace('forbear')").fetchone() == (None,)


def test_a_migration_gives_up_when_somebody_is_in_its_way(
    old: Connection, connect: Callable[[], Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would make everybody else wait behind it; who called it may try again."""
    monkeypatch.setattr("forbear.migrations.LOCK_TIMEOUT", "1ms")
    with connect().transaction() as transaction:
        transaction.connection.execute("SELECT FROM forbear.parcels")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            migrate(old, NEW)
    assert len(migrate(old, NEW)) == 2


def test_an_applied_migration_whose_text_changed_is_refused(connection: Connection) -> None:
    first, *others = known_migrations()
    changed = (replace(first, sql=first.sql + "\n-- changed"), *others)
    with pytest.raises(MigrationError, match=r"0001 .* was applied with another text"):
        migrate(connection, changed)


def test_partitions_of_the_coming_days_are_there(connect: Callable[[], Connection]) -> None:
    count = connect().execute("SELECT count(*) FROM pg_inherits WHERE inhparent = 'forbear.history'::regclass")
    assert count.fetchone() == (8,)


def test_between_the_phases_old_and_new_code_both_work(old: Connection) -> None:
    assert migrate(old, NEW, Phase.PRE) == [EXPAND]
    old.execute("SELECT id FROM forbear.parcels")
    old.execute("SELECT id FROM forbear.boxes")
    assert migrate(old, NEW, Phase.POST) == [CONTRACT]
    old.execute("SELECT id FROM forbear.boxes")
    with pytest.raises(psycopg.errors.UndefinedTable):
        old.execute("SELECT id FROM forbear.parcels")


def test_each_phase_may_run_again(old: Connection) -> None:
    for phase in Phase:
        migrate(old, NEW, phase)
        assert migrate(old, NEW, phase) == []


def test_a_new_database_gets_everything_at_once(empty_url: str) -> None:
    with psycopg.connect(empty_url, autocommit=True) as connection:
        assert migrate(connection, NEW, Phase.PRE) == [*NEW]
        assert migrate(connection, NEW, Phase.POST) == []


def test_a_contracting_step_that_an_earlier_version_left_out_comes_before_what_builds_on_it(old: Connection) -> None:
    migrate(old, NEW, Phase.PRE)
    newest = (*NEW, LATER, LAST)
    assert migrate(old, newest, Phase.PRE) == [CONTRACT, LATER]
    assert migrate(old, newest, Phase.POST) == [LAST]


def test_old_code_accepts_what_a_deployment_that_was_rolled_back_has_added(
    old: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    migrate(old, NEW, Phase.PRE)
    for phase in (*Phase, None):
        assert migrate(old, OLD, phase) == []
    assert "migration 9001 (boxes), which this version does not know" in caplog.text
    assert migrate(old, NEW, Phase.POST) == [CONTRACT]


def test_old_code_refuses_a_database_that_has_lost_what_it_needs(old: Connection) -> None:
    migrate(old, NEW)
    for phase in (*Phase, None):
        with pytest.raises(MigrationError, match=r"migration 9001 \(boxes, post\) has taken away .* Deploy the newer"):
            migrate(old, OLD, phase)


phases = st.sampled_from(Phase)
keys = st.lists(st.tuples(st.integers(1, 6), phases), unique=True)


@settings(max_examples=100)
@given(keys, st.sets(st.tuples(st.integers(1, 6), phases)))
def test_both_phases_together_apply_everything_once_and_in_order(
    known: list[tuple[int, Phase]], applied: set[tuple[int, Phase]]
) -> None:
    migrations = in_order([Migration(version, "any", "", phase) for version, phase in known])
    before = missing(migrations, applied, Phase.PRE)
    after = missing(migrations, applied | {migration.key for migration in before}, Phase.POST)
    assert before + after == missing(migrations, applied, None)
    assert not [migration for migration in after if migration.phase is Phase.PRE]
    if applied and before:
        assert before[-1].phase is Phase.PRE
