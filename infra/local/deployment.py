"""Forbear itself on one machine: which functions, routes and schedules the local stack has.

Owns what the CDK stack says for AWS: names, limits, database users and settings of the functions.
"""

import hmac
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import psycopg

from forbear.data_keys import DataKeys, make_data_keys
from forbear.migrations import migrate
from forbear.roles import ROLE_OF, ROLES, make_roles, owning
from forbear.routes import ROUTES
from forbear.vault import Purpose, make_key_file, wrapping
from infra.local.gateway import Route
from infra.local.pool import FunctionSpec, LineSink
from infra.local.scheduler import Schedule
from infra.local.stack import LocalStack, Ports, Timing, log_line

CLAIMER = "claimer"
MAINTENANCE = "maintain"
TICK = "forbear-tick"

# Environments a function may have here; a call that finds all of them busy waits, as more of them would need cores.
FUNCTIONS = (
    FunctionSpec(name="ingest", handler="ingest.handler", timeout_s=29, memory_mb=512, max_environments=4, queue_s=29),
    FunctionSpec(name="manage", handler="manage.handler", timeout_s=29, memory_mb=512, max_environments=2, queue_s=29),
    FunctionSpec(name="replay", handler="replay.handler", timeout_s=60, memory_mb=512, max_environments=1, queue_s=60),
    FunctionSpec(name=CLAIMER, handler="claimer.handler", timeout_s=900, memory_mb=1769, max_environments=4),
    FunctionSpec(name=MAINTENANCE, handler="maintain.handler", timeout_s=900, memory_mb=256, max_environments=1),
)
SCHEDULES = (
    Schedule(name=TICK, expression="rate(1 minute)", function=CLAIMER, input='{"forbear": "tick"}'),
    Schedule(name="forbear-sweep", expression="rate(6 hours)", function=CLAIMER, input='{"forbear": "sweep"}'),
)


def bring_up(database_url: str, key: Path) -> None:
    """Make the roles, with `passwords`, bring the schema up to date, and make the keys, on a server of our own.

    Args:
        database_url: the superuser's PostgreSQL connection URL, with its password.
        key: the key file.

    Raises:
        MigrationError, RolesError: that cannot be done; nothing was changed.
        KeyUnavailable: the database was made with another key file.
    """
    with psycopg.connect(database_url, autocommit=True, connect_timeout=5) as connection:
        make_roles(connection, passwords(database_url))
        with owning(connection):
            migrate(connection)
            make_keys(connection, key)


def make_keys(connection: psycopg.Connection[Any], key: Path) -> None:
    """Make the key file and the data keys, unless they are there; then they are tried.

    A database that has data keys gets no new key file, which could only be a wrong one.

    Args:
        connection: to a migrated database, in autocommit mode, as the schema's owner.
        key: the key file.

    Raises:
        KeyUnavailable: the key file cannot be used, or is not the one that the database was made with.
        OSError: the key file cannot be written.
    """
    known = [DataKeys(purpose, lambda: wrapping(str(key))) for purpose in Purpose]
    if not any(keys.rows(connection) for keys in known):
        make_key_file(key)
    make_data_keys(connection, wrapping(str(key)))
    for keys in known:
        keys.ring(keys.rows(connection))


def url_as(database_url: str, role: str) -> str:
    """The same database for one of the roles, on a server of our own.

    Args:
        database_url: the superuser's PostgreSQL connection URL, with its password.
        role: one of the roles.
    """
    parts = urlsplit(database_url)
    where = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{role}:{quote(passwords(database_url)[role])}@{where}").geturl()


def passwords(database_url: str) -> dict[str, str]:
    """The roles' passwords on this machine: derived from the superuser's, so that nothing more is to be kept.

    Args:
        database_url: the superuser's PostgreSQL connection URL, with its password.
    """
    key = unquote(urlsplit(database_url).password or "").encode()
    return {role: hmac.digest(key, role.encode(), "sha256").hex() for role in ROLES}


def local_stack(
    database_url: str,
    key: Path,
    *,
    own_users: bool = True,
    functions: Iterable[FunctionSpec] = FUNCTIONS,
    ports: Ports | None = None,
    timing: Timing | None = None,
    environment: dict[str, str] | None = None,
    on_line: LineSink = log_line,
) -> LocalStack:
    """Forbear's local stack on a migrated database; plain http and loopback receivers are allowed.

    Args:
        database_url: PostgreSQL connection URL.
        key: the key file that the database was made with.
        own_users: whether each function connects as its own role, made by `bring_up`; otherwise all of them connect
            as the URL's user.
        functions: which functions there are, and how they are run.
        ports: where to listen.
        timing: how long things last.
        environment: settings that differ from these, as environment variables.
        on_line: receives the functions' output.
    """
    return LocalStack(
        [
            replace(spec, environment={"FORBEAR_DATABASE_URL": url_as(database_url, ROLE_OF[spec.name])})
            if own_users
            else spec
            for spec in functions
        ],
        [Route(route.method, route.path, route.function) for route in ROUTES],
        replay_function="replay",
        schedules=SCHEDULES,
        environment={
            "FORBEAR_DATABASE_URL": database_url,
            "FORBEAR_KEY": str(key.absolute()),  # functions run in a folder of their own
            # Nobody but this machine reaches it, so nobody is asked; an API key that is sent is checked all the same.
            "FORBEAR_OPEN": "true",
            "FORBEAR_ALLOW_HTTP": "true",
            "FORBEAR_ALLOW_NETWORKS": "127.0.0.0/8,::1/128",
            "FORBEAR_CLAIMER_FUNCTION": CLAIMER,
            "FORBEAR_MAINTENANCE_FUNCTION": MAINTENANCE,
            "FORBEAR_SCHEDULE_NAME": TICK,
            **(environment or {}),
        },
        ports=ports or Ports(),
        timing=timing or Timing(),
        on_line=on_line,
    )
