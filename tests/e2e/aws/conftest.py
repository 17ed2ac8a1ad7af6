"""What an emulated deployment stands on: emulator, a database in Aurora's place, receiver. All end with the test."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest
import pytest_asyncio

from infra.local.postgres import EmbeddedPostgres
from infra.local.serving import Listener
from tests.e2e.aws.emulator import MiniStack
from tests.e2e.aws.left_out import MASTER, REPLACED
from tests.e2e.aws.steps import Steps
from tests.e2e.world import Receiver


@pytest.fixture
def steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Steps]:
    """Says how long each step took and what was left out, whether the test passes or not."""
    told = Steps()
    yield told
    for file in tmp_path.glob("left-out"):
        for line in file.read_text(encoding="utf-8").splitlines():
            told.tell(f"left out: {line}")
    for what, how in REPLACED.items():
        told.tell(f"replaced: {what}: {how}")
    with capsys.disabled():
        told.print()


@pytest.fixture
def emulator(tmp_path: Path, steps: Steps) -> Iterator[MiniStack]:
    """An empty AWS account."""
    one = MiniStack(tmp_path / "emulator")
    try:
        with steps("install the emulator"):
            one.install()
        with steps("start the emulator"):
            one.start()
        yield one
        sys.stdout.write(f"{one.log()}\n{one.function_logs()}\n")  # pytest shows it if the test failed
    finally:
        one.stop()


@pytest.fixture
def aurora(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL server as Aurora is when it is new: the database, its master, and the role for IAM tokens.

    It trusts whoever connects: it cannot check a token.
    """
    server = EmbeddedPostgres(tmp_path / "postgres", durable=False, options=("-c", "max_connections=200"))
    server.start()
    try:
        (server.data / "pg_hba.conf").write_text("host all all 127.0.0.1/32 trust\n")
        with psycopg.connect(server.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(f"CREATE ROLE {MASTER} LOGIN CREATEROLE CREATEDB")
            connection.execute(f"CREATE ROLE rds_iam ADMIN {MASTER}")
            connection.execute(f"GRANT pg_monitor TO {MASTER} WITH ADMIN OPTION")
            connection.execute(f"CREATE DATABASE forbear OWNER {MASTER}")
        yield server
    finally:
        server.stop()


@pytest_asyncio.fixture
async def receiver() -> AsyncIterator[tuple[Receiver, int]]:
    """A receiver that answers as it is told, and its port."""
    told = Receiver()
    listener = Listener("127.0.0.1")
    await listener.start(told)
    yield told, listener.port
    await listener.stop(1.0)
