"""Further databases on the world's server: what is compared lies side by side and takes turns.

So the machine's moods, which come and go by the minute, are the same for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import sql

from forbear.roles import ROLE_OF
from infra.bench.world import World
from infra.local.deployment import url_as


@dataclass(frozen=True, slots=True)
class Side:
    """A database of its own.

    Attributes:
        name: its name.
        connection: the superuser's, in autocommit mode.
        claimer_url: its URL for the claimer.
    """

    name: str
    connection: psycopg.Connection[Any]
    claimer_url: str

    def rest(self) -> None:
        """Clear away what is dead, count what is there, and write it all down: nothing of it happens while measured."""
        self.connection.execute("VACUUM (ANALYZE)")
        self.connection.execute("CHECKPOINT")


@contextmanager
def side(world: World, name: str) -> Iterator[Side]:
    """A copy of the world's database, for as long as the block lasts; nobody is connected to that one meanwhile.

    Args:
        world: whose server, and whose database, which should be empty.
        name: the copy's; letters, digits and underscores.
    """
    template = urlsplit(world.url()).path[1:]
    with psycopg.connect(world.server.url(), autocommit=True) as server:
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {}")
        server.execute(statement.format(sql.Identifier(name), sql.Identifier(template)))
    url = world.server.url(name)
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            yield Side(name, connection, url_as(url, ROLE_OF["claimer"]))
    finally:
        with psycopg.connect(world.server.url(), autocommit=True) as server:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
