"""Groups are measured one after the other, and one that fails takes none with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import psycopg

from infra.bench.figure import Figure
from infra.bench.runner import Failed, measure
from infra.bench.world import Scale, World

SCALE = Scale(quick=True, repeats=1)


@dataclass
class Made:
    """A group that gives so many figures, and then fails or not."""

    name: str
    figures: int
    fails: bool = False
    ended: list[str] = field(default_factory=list)

    def measure(self, world: World, scale: Scale) -> Iterator[Figure]:
        try:
            with world.connect() as connection:
                connection.execute("CREATE TABLE left_behind ()")
            for place in range(self.figures):
                yield Figure(self.name, f"figure {place}", "ms", (1.0,) * scale.repeats)
            if self.fails:
                raise ValueError("broken\nin two lines")
        finally:
            self.ended.append(self.name)


def test_a_group_that_fails_keeps_its_figures_and_the_next_one_is_measured(world: World) -> None:
    groups = {"first": Made("first", 1, fails=True), "second": Made("second", 2)}
    got = list(measure(world, groups, SCALE, groups.__getitem__))
    assert [one.group for one in got] == ["first", "first", "second", "second"]
    assert isinstance(got[1], Failed)
    assert got[1].reason == "ValueError: broken in two lines"
    assert "raise ValueError" in got[1].details


def test_a_group_that_cannot_be_imported_has_failed(world: World) -> None:
    def loading(name: str) -> Made:
        raise ImportError(f"no {name}")

    [failed] = measure(world, ["gone"], SCALE, loading)
    assert isinstance(failed, Failed)
    assert failed.reason == "ImportError: no gone"


def test_a_group_that_is_broken_off_ends_what_it_has_started(world: World) -> None:
    made = Made("long", 5)
    measured = measure(world, ["long"], SCALE, lambda _name: made)
    next(measured)
    assert made.ended == []
    measured.close()
    assert made.ended == ["long"]


def test_a_fresh_database_is_empty_and_durable(world: World) -> None:
    with world.connect() as connection:
        connection.execute("CREATE TABLE left_behind ()")
    world.fresh()
    with world.connect() as connection:
        assert connection.execute("SELECT to_regclass('left_behind')").fetchone() == (None,)
        assert connection.execute("SELECT to_regclass('forbear.queue') IS NOT NULL").fetchone() == (True,)
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert connection.execute("SELECT current_setting(%s)", (setting,)).fetchone() == ("on",)


def test_each_function_has_the_rights_of_its_role(world: World) -> None:
    url = world.environment("ingest")["FORBEAR_DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("SELECT current_user").fetchone() == ("forbear_ingest",)
