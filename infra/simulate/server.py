"""A private PostgreSQL for simulations: started for one command, gone with it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psycopg

from forbear.migrations import migrate
from infra.local.postgres import EmbeddedPostgres

_TEMPLATE: Final = "blank"
# Nothing in it is worth keeping, and the queue is churned through in minutes.
_OPTIONS: Final = {
    "shared_buffers": "256MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "1h",
    "autovacuum_naptime": "1s",
}


@contextmanager
def private_server() -> Iterator[Callable[[], str]]:
    """A server of one's own, stopped and deleted in the end.

    Gives what makes a fresh, migrated database on it and tells its URL.

    Raises:
        PostgresError: It does not start.
    """
    with TemporaryDirectory(prefix="forbear-simulate-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # under root the server is somebody else's
        options = tuple(word for name, value in _OPTIONS.items() for word in ("-c", f"{name}={value}"))
        server = EmbeddedPostgres(Path(folder), durable=False, options=options)
        try:
            server.start()
            with psycopg.connect(server.url(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {_TEMPLATE}")
            with psycopg.connect(server.url(_TEMPLATE), autocommit=True) as connection:
                migrate(connection)
            names = (f"run{number}" for number in count(1))

            def fresh() -> str:
                name = next(names)
                with psycopg.connect(server.url(), autocommit=True) as connection:
                    connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}")
                return server.url(name)

            yield fresh
        finally:
            server.stop()
            server.shut_down()  # should it have been interrupted while it started, it does not know that it runs
            shutil.rmtree(server.data, ignore_errors=True)  # it may lie elsewhere; see EmbeddedPostgres.data
