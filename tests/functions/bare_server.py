"""A PostgreSQL server of one's own, without our roles: those are the whole server's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from forbear.roles import ROLES
from infra.local.postgres import EmbeddedPostgres

# Members of our roles come in by a token, everybody else by password. Here the token is taken on trust.
LIKE_AURORA = "host all /^forbear_ 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
WITHOUT_MASTER = "host all master 127.0.0.1/32 reject\n" + LIKE_AURORA


@dataclass(frozen=True)
class Bare:
    """A server with a master as Aurora has one (no superuser), and a user `plain` who may nothing.

    The master's password is `master's`; its databases are `app`, which is the master's, and `other`.
    """

    server: EmbeddedPostgres

    def url(self, database: str, user: str | None = None) -> str:
        """A database's URL; None: as the superuser."""
        own = self.server.url(database)
        return own if user is None else f"postgresql://{user}:{user}%27s@{own.rpartition('@')[2]}"

    def admit(self, rules: str) -> None:
        """Let in whom these lines of pg_hba.conf let in, and the superuser."""
        (self.server.data / "pg_hba.conf").write_text("host all forbear 127.0.0.1/32 scram-sha-256\n" + rules)
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            connection.execute("SELECT pg_reload_conf()")


@contextmanager
def own_server() -> Iterator[EmbeddedPostgres]:
    """A server, stopped in the end."""
    with TemporaryDirectory(prefix="forbear-bare-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        server = EmbeddedPostgres(Path(folder), durable=False)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def made_bare(server: EmbeddedPostgres) -> Iterator[Bare]:
    """The server with its users and databases, which go in the end, with whatever roles were made."""
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for statement in (
            "CREATE ROLE rds_iam",
            "CREATE ROLE master LOGIN CREATEROLE PASSWORD 'master''s'",
            "GRANT rds_iam TO master WITH ADMIN TRUE, INHERIT FALSE, SET FALSE",
            "CREATE ROLE plain LOGIN PASSWORD 'plain''s'",
            "CREATE DATABASE app OWNER master",
            "CREATE DATABASE other",
        ):
            connection.execute(statement)
    bare = Bare(server)
    bare.admit(LIKE_AURORA)
    yield bare
    with psycopg.connect(server.url(), autocommit=True) as connection:
        for database in ("app", "other"):
            connection.execute(f"DROP DATABASE {database} WITH (FORCE)")
        for role in (*ROLES, "master", "plain", "rds_iam"):
            connection.execute(f"DROP ROLE IF EXISTS {role}")
