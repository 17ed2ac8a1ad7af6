"""The database's users: one for each function, and the owner of the schema.

Owns their names, how they are made, and that their rights are exactly those of `sql/grants.sql`. Knows no migration.

A role belongs to the whole server, so making one takes a user that may: a superuser, or (Aurora's master) one with
CREATEROLE. Where nobody may, Forbear works as the one user that it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg import sql

from forbear.db import statement

logger = logging.getLogger(__name__)

OWNER: Final = "forbear_owner"
# An entry point's role.
ROLE_OF: Final[Mapping[str, str]] = {
    "ingest": "forbear_ingest",
    "manage": "forbear_manage",
    "replay": "forbear_replay",
    "claimer": "forbear_claimer",
    "maintain": OWNER,
    "migrate": OWNER,
}
ROLES: Final = tuple(sorted(set(ROLE_OF.values())))
# Its members log in by IAM authentication and by nothing else; it is there on Amazon's servers only.
IAM: Final = "rds_iam"


class RolesError(Exception):
    """The roles cannot be made; the message says why and what to do."""


def make_roles(connection: psycopg.Connection[Any], passwords: Mapping[str, str] | None = None) -> None:
    """Make the roles that are missing, and hand the schema with all that is in it to `OWNER`.

    Safe to run again, and from several processes at once. Changes only what is not as it should be.

    Args:
        connection: in autocommit mode, as a superuser, or as a user with CREATEROLE that may create schemas in this
            database.
        passwords: of roles, by their names; a role without one cannot log in by password.

    Raises:
        RolesError: this user may not; nothing was changed.
    """
    try:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('forbear.migrations', 0))")
            for role in ROLES:
                _make_role(connection, role)
            _show_sessions(connection, ROLE_OF["claimer"])
            for role, password in (passwords or {}).items():
                change = sql.SQL("ALTER ROLE {} PASSWORD {}")
                connection.execute(change.format(sql.Identifier(role), sql.Literal(password)))
            with _member_of_owner(connection):
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS forbear AUTHORIZATION {OWNER}")
                connection.execute(statement("hand_over"))
    except psycopg.errors.InsufficientPrivilege as error:
        raise RolesError(
            f"the user {connection.info.user} may not make the database's roles ({error.diag.message_primary}): it must"
            f" be a superuser, or have CREATEROLE, the right to create schemas here, and have made {OWNER} itself"
        ) from error


def are_made(connection: psycopg.Connection[Any]) -> bool:
    """Whether nothing is left for `make_roles` to do: every role is there and the schema is the owner's."""
    row = connection.execute(
        """
        SELECT (SELECT count(*) FROM pg_roles r
                WHERE r.rolname = ANY (%(roles)s) AND r.rolcanlogin
                  AND (to_regrole(%(iam)s) IS NULL OR pg_has_role(r.oid, to_regrole(%(iam)s), 'MEMBER'))
               ) = cardinality(%(roles)s)
               AND EXISTS (SELECT FROM pg_namespace n
                           WHERE n.nspname = 'forbear' AND n.nspowner = to_regrole(%(owner)s)) AS made
        """,
        {"roles": list(ROLES), "iam": IAM, "owner": OWNER},
    ).fetchone()
    return bool(row and (row["made"] if isinstance(row, dict) else row[0]))


@contextmanager
def owning(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Act as `OWNER` for a while, on the connection of a superuser."""
    connection.execute(f"SET ROLE {OWNER}")
    try:
        yield
    finally:
        if not connection.closed:
            connection.execute("RESET ROLE")


def grant(connection: psycopg.Connection[Any], *, exactly: bool) -> None:
    """Give the functions' roles their rights in the schema.

    Args:
        connection: as `OWNER`, in a transaction.
        exactly: whether rights that `sql/grants.sql` does not name are taken back.
    """
    if exactly:
        connection.execute(statement("revoke_grants"))
    connection.execute(statement("grants"))


def _make_role(connection: psycopg.Connection[Any], role: str) -> None:
    name, iam = sql.Identifier(role), sql.Identifier(IAM)
    known = {"role": role, "iam": IAM}
    if _none(connection, "SELECT FROM pg_roles WHERE rolname = %(role)s", known):
        try:
            with connection.transaction():
                connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
        except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
            pass  # somebody else, in another database of this server, was faster
    if _none(connection, "SELECT FROM pg_roles WHERE rolname = %(role)s AND rolcanlogin", known):
        connection.execute(sql.SQL("ALTER ROLE {} LOGIN").format(name))
    if not _none(
        connection,
        "SELECT FROM pg_roles WHERE rolname = %(iam)s AND NOT pg_has_role(%(role)s, oid, 'MEMBER')",
        known,
    ):
        connection.execute(sql.SQL("GRANT {} TO {}").format(iam, name))


def _show_sessions(connection: psycopg.Connection[Any], role: str) -> None:
    """Let a role see how long others' sessions have been open, if this user may give that right."""
    for group in ("pg_read_all_stats", "pg_monitor"):  # RDS gives its master the second one to hand on
        may = {"role": role, "group": group}
        if not _none(connection, "SELECT WHERE pg_has_role(%(role)s, %(group)s, 'USAGE')", may):
            return
        try:
            with connection.transaction():
                connection.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group), sql.Identifier(role)))
        except psycopg.errors.InsufficientPrivilege:
            continue
        return
    logger.warning("%s cannot see others' sessions: the age of the oldest snapshot leaves them out", role)


@contextmanager
def _member_of_owner(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Be a member of `OWNER` for a moment: only that allows to give things to it.

    Not for longer: whoever is a member of it is one of `rds_iam`, too, and cannot log in by password any more.
    """
    if not _none(connection, "SELECT FROM pg_roles WHERE rolname = current_user AND rolsuper", {}):
        yield
        return
    connection.execute(f"GRANT {OWNER} TO CURRENT_USER WITH INHERIT TRUE, SET TRUE")
    yield
    connection.execute(f"REVOKE {OWNER} FROM CURRENT_USER GRANTED BY CURRENT_USER")


def _none(connection: psycopg.Connection[Any], query: str, parameters: Mapping[str, str]) -> bool:
    return connection.execute(query, parameters).fetchone() is None
