"""The world that is measured in: PostgreSQL with fsync on, migrated, its key file, and a receiver.

Owns starting and ending them, and an empty database whenever one is asked for. Knows no figure.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Self

import psycopg
from psycopg import sql

from forbear.roles import ROLE_OF
from infra.bench.receiver import receiver
from infra.local.deployment import bring_up, url_as
from infra.local.postgres import EmbeddedPostgres

# As somebody would set a server up for this work; fsync, synchronous_commit and full_page_writes are on, as they are by
# default. pg_stat_statements is there for what counts, and rests until it is told otherwise.
OPTIONS: Final = {
    "max_connections": "200",
    "shared_buffers": "1GB",
    "max_wal_size": "8GB",
    "shared_preload_libraries": "pg_stat_statements",
}
_TEMPLATE: Final = "blank"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured.

    Attributes:
        quick: small sizes and short times, about ten seconds a group.
        repeats: how often each figure is measured.
    """

    quick: bool
    repeats: int

    @classmethod
    def of(cls, *, quick: bool, repeats: int | None = None) -> Scale:
        """The scale of a run; repeats are five by default, three of a quick one."""
        return cls(quick, repeats or (3 if quick else 5))


class World:
    """A context: what is measured in, for as long as it lasts.

    Attributes:
        folder: where the server's data and the key file are.
        server: PostgreSQL.
        receiver_url: where the receiver is, without a slash at the end; it answers any path.
        receiver_name: "nginx" or "asyncio".
    """

    folder: Path
    server: EmbeddedPostgres
    receiver_url: str
    receiver_name: str

    def __init__(self) -> None:
        self._database = ""
        self._names = (f"bench{number}" for number in count(1))
        self._running = ExitStack()

    def __enter__(self) -> Self:
        """Start everything.

        Raises:
            PostgresError: PostgreSQL does not start.
            ReceiverError: the receiver does not.
        """
        with ExitStack() as running:
            self.folder = Path(
                running.enter_context(TemporaryDirectory(prefix="forbear-bench-", ignore_cleanup_errors=True))
            )
            self.folder.chmod(0o755)  # under root the server is somebody else's
            options = tuple(word for name, value in OPTIONS.items() for word in ("-c", f"{name}={value}"))
            self.server = EmbeddedPostgres(self.folder, options=options)
            running.callback(self._remove_server)
            self.server.start()
            with psycopg.connect(self.server.url(), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET pg_stat_statements.track = 'none'")
                connection.execute("SELECT pg_reload_conf()")
                connection.execute(f"CREATE DATABASE {_TEMPLATE}")
            bring_up(self.server.url(_TEMPLATE), self.key)
            self.receiver_url, self.receiver_name = running.enter_context(receiver())
            self.fresh()
            self._running = running.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End everything, and delete it."""
        self._running.close()

    @property
    def key(self) -> Path:
        """The key file that the databases were made with."""
        return self.folder / "key"

    def url(self, role: str | None = None) -> str:
        """The database's URL.

        Args:
            role: the function that connects ("ingest", "claimer", …); None: the superuser.
        """
        url = self.server.url(self._database)
        return url if role is None else url_as(url, ROLE_OF[role])

    def connect(self) -> psycopg.Connection[Any]:
        """A connection of the superuser's, in autocommit mode, to be closed."""
        return psycopg.connect(self.url(), autocommit=True)

    def environment(self, function: str) -> dict[str, str]:
        """The settings of a function's process, as environment variables; loopback and plain http are allowed.

        Metrics are written, as in AWS: they are a part of what is measured.
        """
        return {
            "FORBEAR_DATABASE_URL": self.url(function),
            "FORBEAR_KEY": str(self.key),
            "FORBEAR_OPEN": "true",
            "FORBEAR_ALLOW_HTTP": "true",
            "FORBEAR_ALLOW_NETWORKS": "127.0.0.0/8",
            "FORBEAR_METRICS_NAMESPACE": "Forbear",
        }

    def fresh(self) -> None:
        """Begin with an empty database: the present one is dropped, and what the disk still owes it is paid first."""
        before, self._database = self._database, next(self._names)
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            if before:
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(before)))
            connection.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(
                    sql.Identifier(self._database), sql.Identifier(_TEMPLATE)
                )
            )
            connection.execute("CHECKPOINT")

    def _remove_server(self) -> None:
        self.server.stop()
        if self.server.is_alive:  # should it have been interrupted while it started, it does not know that it runs
            self.server.shut_down()
        shutil.rmtree(self.server.data, ignore_errors=True)  # it may lie elsewhere; see EmbeddedPostgres.data
