"""The flatness group at tiny scale."""

from __future__ import annotations

import pytest

from infra.bench.draining import drainer
from infra.bench.groups.flatness import Effort, Shape, held, measure_rows, rows
from infra.bench.world import World


def test_a_row_compares_its_shapes(world: World) -> None:
    shapes = [Shape(waiting=600), Shape(endpoints=100, waiting=600, dead=2, behind=10, finished=10)]
    with drainer(world.key) as draining:
        figures = {each.name: each for each in measure_rows(world, {"row": shapes}, Effort(1, 50, 2), 2, draining)}
    assert len(figures) == 9
    for what, unit in (("claim", "ms"), ("drain", "1/s"), ("ingest", "ms")):
        one, other = [figures[f"{what}, {shape.label}"] for shape in shapes]
        assert one.unit == other.unit == unit
        assert len(one.values) == 2
        ratio = figures[f"row: {what}, greatest to least"]
        medians = sorted((one.median, other.median))
        assert ratio.values == (medians[1] / medians[0],)
        assert ratio.aim is not None


def test_the_rows_of_every_scale_vary_one_thing_each() -> None:
    for quick in (False, True):
        for row in rows(quick=quick).values():
            assert len({shape.label for shape in row}) == len(row)
            assert len({shape.busy for shape in row}) == 1 or len({shape.waiting for shape in row}) == 1


@pytest.mark.timeout(300)
def test_a_transaction_is_held_open(world: World) -> None:
    with drainer(world.key) as draining:
        figures = list(held(world, 0.1, 0.1, draining))
    assert [figure.unit for figure in figures] == ["ratio", "ratio"]
    assert all(value > 0 for figure in figures for value in figure.values)
