"""A world to measure in; its database is empty at the begin of each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.bench.world import World


@pytest.fixture(scope="session")
def one_world() -> Iterator[World]:
    """One a worker: a PostgreSQL of its own takes seconds."""
    with World() as world:
        yield world


@pytest.fixture
def world(one_world: World) -> World:
    one_world.fresh()
    return one_world
