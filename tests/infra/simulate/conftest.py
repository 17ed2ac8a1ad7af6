"""Databases for tests that simulate more than once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest

from tests.conftest import TEMPLATE


@pytest.fixture
def fresh_url(server_url: str) -> Iterator[Callable[[], str]]:
    """Makes fresh, migrated databases, and tells their URLs."""
    made: list[str] = []

    def make() -> str:
        made.append(f"test_{uuid4().hex}")
        with psycopg.connect(f"{server_url}postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {made[-1]} TEMPLATE {TEMPLATE}")
        return f"{server_url}{made[-1]}"

    yield make
    with psycopg.connect(f"{server_url}postgres", autocommit=True) as connection:
        for name in made:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
