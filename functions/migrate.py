"""The migrate function: brings the database up to date before, and after, new code serves.

CloudFormation calls it as a custom resource with the properties {"Phase": "pre" or "post", …}. Called by hand with {}
it does both phases, with {"Phase": …} one.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import psycopg
from aws_lambda_powertools.logging import Logger

from forbear.custom_resource import RESERVE_S, Foreseen, is_request, respond
from forbear.data_keys import make_data_keys
from forbear.db import HOPELESS, Target, statement
from forbear.deadline import BoundedConnection, left_s, within
from forbear.migrations import Migration, MigrationError, Phase, migrate
from forbear.roles import RolesError, are_made, make_roles
from forbear.settings import InvalidSettings, Settings, settings
from forbear.vault import KeyUnavailable, wrapping

logger = Logger(service="forbear-migrate")
logging.getLogger("forbear").setLevel(logging.INFO)

# Between tries, while the database wakes, is being made, or has a lock in the way; seconds.
PAUSE_S = 2.0
# A password may just have been changed, and a database just be made. What no waiting mends is told after this time.
HOPE_S = 60.0
MENDING = (
    "see that the master's secret holds its password, and that database.ca_file (if it is set) holds the authorities "
    "that sign the database's certificate"
)
# What RDS answers a password of somebody who logs in by token.
BY_TOKEN_ONLY = "PAM authentication failed"  # noqa: S105 - no password
# Between the end of our own patience and the moment when CloudFormation is told that time is up.
MARGIN_S = 5.0


class NotYet(Exception):
    """Something besides the database does not answer yet."""


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Apply what is missing.

    Returns:
        {"applied": [the migrations applied]}; CloudFormation is told in its own way.

    Raises:
        Foreseen: called by hand: the database cannot be brought up to date; nothing was changed.
    """
    time_left_s = context.get_remaining_time_in_millis() / 1000
    patience_s = time_left_s - RESERVE_S - MARGIN_S
    if not is_request(event):
        return {"applied": _bring_up(event, patience_s)}
    respond(
        event,
        lambda properties: {"Applied": ", ".join(_bring_up(properties, patience_s))},
        name=f"forbear-migrations-{event.get('ResourceProperties', {}).get('Phase', 'all')}",
        time_left_s=time_left_s,
    )
    return {}


def _bring_up(properties: Mapping[str, Any], patience_s: float) -> list[str]:
    """Try until it is done or time is up. Gives the migrations applied."""
    given = properties.get("Phase")
    if given not in {None, *Phase}:
        raise Foreseen(f"the property Phase is {given!r}: it takes pre or post")
    phase = None if given is None else Phase(given)
    try:
        with within(patience_s):
            applied = [str(migration) for migration in _try(settings(), phase)]
            _look_first(settings(), properties)
    except (MigrationError, RolesError, InvalidSettings) as error:
        raise Foreseen(str(error)) from error
    except psycopg.Error as error:
        raise Foreseen(f"{_told(error)}. Nothing was changed; try again when the database serves") from error
    except NotYet as error:
        raise Foreseen(f"{error}. Nothing was changed; see that this function can reach it") from error
    except KeyUnavailable as error:
        raise Foreseen(str(error)) from error
    logger.info("migrated", extra={"phase": given, "applied": applied})
    return applied


def _look_first(known: Settings, properties: Mapping[str, Any]) -> None:
    """Pause everything in a database that has come from a snapshot, once, before any function works on it."""
    if "Restored" not in properties:
        return
    with _connect(Target.of(known)) as connection:
        paused = connection.execute(statement("pause_restored"), {"cluster": properties["Database"]}).fetchone()
    if paused:
        logger.warning("the database comes from a snapshot: everything is paused until somebody resumes it")


def _try(known: Settings, phase: Phase | None) -> list[Migration]:
    began = time.monotonic()
    while True:
        try:
            return _once(known, phase)
        # Among the first: no connection yet, lost on the way, a lock in the way.
        except (psycopg.OperationalError, NotYet) as error:
            if left_s() <= PAUSE_S:
                raise
            if time.monotonic() - began > HOPE_S and any(words in str(error) for words in HOPELESS):
                raise Foreseen(f"{_told(error)}. Nothing was changed; waiting does not mend it: {MENDING}") from error
            logger.warning("tried in vain, and again soon", exc_info=error)
        # No route to KMS yet, or a right of this function that is so new that it is not known there.
        except KeyUnavailable as error:
            if left_s() <= PAUSE_S or time.monotonic() - began > HOPE_S:
                raise
            logger.warning("tried in vain, and again soon", exc_info=error)
        time.sleep(PAUSE_S)


def _once(known: Settings, phase: Phase | None) -> list[Migration]:
    """As the owner, whom the master makes where he is missing. Before functions switch they find the data keys made."""
    if known.master_secret is None:
        raise InvalidSettings("FORBEAR_MASTER_SECRET: it is missing; give the ARN of the master user's secret")
    if known.key is None and phase is not Phase.POST:
        raise InvalidSettings("FORBEAR_KEY: it is missing; give the ARN of a KMS key, or the path of a key file")
    target = Target.of(known)
    if not _owner_is_ready(target):
        with _as_master(target, known.master_secret) as connection:
            make_roles(connection)
    with _connect(target) as connection:
        applied = migrate(connection, phase=phase)
        if phase is not Phase.POST:
            make_data_keys(connection, wrapping(known.key))
        return applied


def _as_master(target: Target, secret: str) -> BoundedConnection:
    """Connect as the master user: by password, or where that is refused by an IAM token.

    Who makes a role is a member of it (PostgreSQL 16), so a master that has made members of `rds_iam` is one of them,
    and RDS lets those log in by token only.
    """
    user, password = _master(secret)
    try:
        return _connect(replace(target, iam=False), user=user, password=password)
    except psycopg.OperationalError as error:
        if not target.iam or BY_TOKEN_ONLY not in str(error):
            raise
    return _connect(target, user=user)


def _owner_is_ready(target: Target) -> bool:
    """Whether the master is not needed.

    That spares the secret; and where members of roles with IAM are kept from logging in by password, one who has made
    such roles is kept out, too.
    """
    try:
        with _connect(target) as connection:
            return are_made(connection)
    except psycopg.OperationalError:
        return False  # there is no such user yet, or no database: the master will see


def _connect(target: Target, **changes: Any) -> BoundedConnection:
    # The server gives up before we do: then the transaction ends in order.
    options = f"-c statement_timeout={max(1, int(left_s() * 900))} -c idle_in_transaction_session_timeout=15000"
    return BoundedConnection.connect(**target.arguments(options=options, **changes))


def _master(secret: str) -> tuple[str, str]:
    """The master's user name and password, as they are now: they are changed now and then."""
    import boto3  # noqa: PLC0415 - only the first deployment pays for the import
    from botocore.config import Config  # noqa: PLC0415
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    config = Config(connect_timeout=3, read_timeout=5, retries={"max_attempts": 3, "mode": "standard"})
    try:
        answer = boto3.client("secretsmanager", config=config).get_secret_value(SecretId=secret)
        found = json.loads(answer["SecretString"])
        return str(found["username"]), str(found["password"])
    except BotoCoreError as error:  # no route to it, say
        raise NotYet(f"the master's secret cannot be read: {error}") from error
    except ClientError as error:
        raise Foreseen(f"the master's secret cannot be read: {error}. This function must be allowed to") from error
    except (KeyError, ValueError, TypeError):
        raise Foreseen("the master's secret must be JSON with username and password") from None


def _told(error: psycopg.Error | NotYet) -> str:
    """What an error says, without the statement, the hints, and (of a connection string) the secrets in it."""
    if isinstance(error, NotYet):
        return str(error)
    if error.diag.message_primary:
        return f"the database says: {error.diag.message_primary}"
    if isinstance(error, psycopg.OperationalError):
        return f"the database cannot be reached: {str(error).partition('\n')[0]}"
    return f"the database cannot be used ({type(error).__name__}: the log has it in full)"
