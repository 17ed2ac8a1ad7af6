"""The world that the machine drives: one for a whole test, emptied between its examples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import psycopg
import pytest

import replay
from forbear.db import Database
from tests.functions.queue.model.world import World

type Connection = psycopg.Connection[Any]


@pytest.fixture
def role() -> str:
    return "forbear_manage"


@pytest.fixture
def world(
    handlers: pytest.MonkeyPatch, connection: Connection, database_url: str, url_of: Callable[[str], str]
) -> Iterator[World]:
    replayer = Database(url_of("forbear_replay"))
    handlers.setattr(replay, "database", cache(lambda: replayer))
    world = World(
        connection,
        ingest_url=url_of("forbear_ingest"),
        claimer_url=url_of("forbear_claimer"),
        owner_url=database_url,
    )
    yield world
    world.close()
    replayer.close()
