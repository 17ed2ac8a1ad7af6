"""What every test may use: one PostgreSQL server a test run, one fresh database a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from hypothesis import settings as hypothesis_settings

from infra.local.deployment import bring_up, url_as
from infra.local.postgres import EmbeddedPostgres
from tests.functions.builders import KEY_FILE, key_file

type Connection = psycopg.Connection[tuple[Any, ...]]
TEMPLATE = "forbear_template"

# A slow machine is no failure: what is counted is asserted, what is timed is measured elsewhere.
hypothesis_settings.register_profile("forbear", deadline=None)
# `pytest --hypothesis-profile=thorough` tries ten times as much where a test does not say how much itself.
hypothesis_settings.register_profile("thorough", deadline=None, max_examples=1000)
hypothesis_settings.load_profile("forbear")


SERVER = pytest.StashKey[tuple[EmbeddedPostgres, TemporaryDirectory[str]]]()
SERVER_URL = "FORBEAR_TEST_SERVER"


def pytest_configure(config: pytest.Config) -> None:
    """Start the server once, in the process that the test run's workers (if any) come from."""
    if hasattr(config, "workerinput"):
        return
    folder = TemporaryDirectory(prefix="forbear-test-", ignore_cleanup_errors=True)
    Path(folder.name).chmod(0o755)
    server = EmbeddedPostgres(
        Path(folder.name), durable=False, options=("-c", "max_connections=300", "-c", "autovacuum_naptime=5s")
    )
    server.start()
    config.stash[SERVER] = server, folder
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {TEMPLATE}")
    os.environ[KEY_FILE] = str(Path(folder.name) / "key")
    bring_up(server.url(TEMPLATE), key_file())
    os.environ[SERVER_URL] = server.url("")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop what `pytest_configure` started."""
    if SERVER in config.stash:
        server, folder = config.stash[SERVER]
        server.stop()
        folder.cleanup()


@pytest.fixture(scope="session")
def server_url() -> str:
    """The URL, without a database's name, of the server that this test run shares."""
    return os.environ[SERVER_URL]


@pytest.fixture
def database_url(server_url: str) -> Iterator[str]:
    """The URL of a fresh, migrated database."""
    name = f"test_{uuid4().hex}"
    with psycopg.connect(f"{server_url}postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
    yield f"{server_url}{name}"
    with psycopg.connect(f"{server_url}postgres", autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def url_of(database_url: str) -> Callable[[str], str]:
    """Gives the URL of this test's database for one of the roles, such as forbear_ingest."""
    return lambda role: url_as(database_url, role)


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    """A connection, in autocommit mode, to this test's database."""
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def connect(database_url: str) -> Iterator[Callable[[], Connection]]:
    """Opens further connections to this test's database."""
    opened: list[Connection] = []

    def open_one() -> Connection:
        opened.append(psycopg.connect(database_url, autocommit=True))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()
