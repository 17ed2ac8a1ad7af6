"""The connection to PostgreSQL: one an execution environment, opened late, replaced when it is lost.

Owns signing in, opening, losing and retrying, within the deadline of `forbear.deadline`. Knows no statement of
Forbear's but the one that makes missing partitions.
"""

from __future__ import annotations

import math
import random
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import DictRow, dict_row

from forbear.deadline import BoundedConnection, left_s, within
from forbear.rds_token import rds_token
from forbear.settings import InvalidSettings, Settings, aws_identity

type Connection = psycopg.Connection[DictRow]

CONNECTION_OPTIONS = {
    "autocommit": True,
    "prepare_threshold": None,
    "connect_timeout": 5,
    "application_name": "forbear",
    # No statement of a function's takes a second; milliseconds. Not through a proxy, which would pin the session.
    # The SQL is written for READ COMMITTED (a claim looks again once it has its locks), whatever a server's default is.
    "options": "-c statement_timeout=15000 -c idle_in_transaction_session_timeout=15000"
    r" -c default_transaction_isolation=read\ committed",
    # A half-open socket ends here and not when the function does.
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
# Aurora's roots; an IAM token goes to nobody who cannot prove to be Aurora.
VERIFIED = {"sslmode": "verify-full", "sslrootcert": str(files("forbear") / "rds-ca.pem")}
# With nobody else's deadline, this is how long a unit of work waits for the database.
PATIENCE_S = 30.0
# Aurora takes 15 to 30 seconds to wake from a pause. Whether it refuses connections meanwhile, holds them or lets them
# drop, whoever asks again soon is let in soon. An attempt takes half of what is left, so that there is another one.
ATTEMPT_S, LEAST_ATTEMPT_S = 5.0, 0.5
# Attempts begin this far apart, at first and in the end.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
# What no waiting mends, as libpq and PostgreSQL word it. What they should word otherwise is merely waited for.
HOPELESS = ("certificate", "SSL was required", "password authentication failed", "pg_hba.conf", "does not exist")
# A connection that rested for longer may be gone without our hearing of it: the stack's `idle_session_timeout` lets the
# database pause after a minute, and a frozen environment hears no farewell.
TRUSTED_FOR_S = 50.0
# What is refused like this is rolled back. 25006: the writer became a reader (fail-over); 25P03, 25P04: we stood still
# in a transaction for too long, frozen perhaps; 40001, 40P01: it gave way to others, again and again; class 53: the
# server has run out of something, such as disk; class 58: the system under it failed; XX000: the same, where PostgreSQL
# has no code for it (a quota, a limit of a file's size). 26000, 0A000: what was prepared is not there (somebody stands
# between), or answers otherwise since a migration; on another connection it is prepared anew.
REFUSED = ("0A000", "25006", "25P03", "25P04", "26000", "40001", "40P01", "53", "58", "XX000")
# 57014: it took too long (statement_timeout), and is rolled back.
TOO_LONG = "57014"
# But a server that ends itself over a failure may have written the COMMIT before.
PANIC = "PANIC"
# Who gave way to another transaction (a deadlock, mostly) goes again at once, and then after up to so many seconds. To
# psycopg these are no kinds of TransactionRollback, which is the code 40000 only.
GAVE_WAY = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)
GIVE_WAY_S = (0.0, 0.05, 0.1, 0.2, 0.4)
# Class 57P: shut down; class 08: the connection is gone.
LOST = (*REFUSED, TOO_LONG, "57P", "08")
NO_PARTITION = "no partition of relation"


class Unavailable(Exception):
    """The database cannot be reached, or does nothing for us now.

    Args:
        message: why.
        nothing_done: it is certain that nothing was stored. Otherwise nobody knows.

    Attributes:
        what: what cannot be used.
    """

    what = "database"

    def __init__(self, message: str, *, nothing_done: bool = False) -> None:
        super().__init__(message)
        self.nothing_done = nothing_done


def is_lost(error: psycopg.Error) -> bool:
    """Whether an error says that the connection, not the statement, is at fault."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith(LOST)


def is_missing_partition(error: psycopg.Error) -> bool:
    """Whether a row's day has no partition yet: after a long sleep, or when a test has moved the clock."""
    return isinstance(error, psycopg.errors.CheckViolation) and NO_PARTITION in str(error)


def without_values(error: BaseException | None) -> None:
    """Leave out of the server's errors what may hold values of rows, for errors are logged.

    "Failing row contains (…)", the keys of a conflict and the like stand behind the primary message; that of class 22
    (data exception) holds the value itself. What is left names constraints, tables and functions.

    Args:
        error: a psycopg error, changed in place together with those that came before it; anything else stays as it is.
    """
    while error is not None:
        if isinstance(error, psycopg.Error) and error.diag.message_primary is not None:
            state = error.sqlstate or ""
            error.args = (f"SQLSTATE {state}" if state.startswith("22") else error.diag.message_primary,)
        error = error.__context__


@cache
def statement(name: str) -> str:
    """The text of a statement: the file `sql/<name>.sql`."""
    return (files("forbear") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Target:
    """Where the database is, and how to sign in there.

    Args:
        url: PostgreSQL connection URL.
        iam: whether the password is an IAM token, made anew for each connection.
    """

    url: str
    iam: bool = False

    @classmethod
    def of(cls, settings: Settings) -> Target:
        """The target that settings name."""
        return cls(settings.database_url, settings.database_iam)

    def arguments(self, **changes: Any) -> dict[str, Any]:
        """The arguments of `psycopg.connect` for one new connection, now.

        Args:
            changes: instead of those in `CONNECTION_OPTIONS`.

        Raises:
            InvalidSettings: with IAM, the URL lacks a host or a user, or there are no AWS credentials.
        """
        arguments = {"conninfo": self.url} | CONNECTION_OPTIONS | changes
        if not self.iam:
            return arguments
        known = conninfo_to_dict(self.url) | changes
        host, user, port = known.get("host"), known.get("user"), known.get("port") or 5432
        if not host or not user:
            raise InvalidSettings("FORBEAR_DATABASE_URL: IAM needs postgresql://<user>@<host>:5432/<database>")
        credentials, region = aws_identity()
        password = rds_token(
            str(host), int(port), str(user), credentials=credentials, region=region, now=datetime.now(UTC)
        )
        verified = {name: known.get(name, value) for name, value in VERIFIED.items()}
        return arguments | verified | {"password": password}


class Database:
    """A connection that opens when it is first used and is replaced when it is lost.

    All waiting ends by the deadline of `forbear.deadline.within`, or after `PATIENCE_S` if there is none.

    Args:
        target: the database, or just its URL.
        while_waking: called when a first attempt to connect has failed: the database wakes, and there is time.
    """

    def __init__(self, target: Target | str, while_waking: Callable[[], None] = lambda: None) -> None:
        self._while_waking = while_waking
        self._target = Target(target) if isinstance(target, str) else target
        self._connection: BoundedConnection | None = None
        self._used_at = 0.0

    def run[T](self, work: Callable[[Connection], T], *, repeatable: bool) -> T:
        """Run `work` on the connection.

        Args:
            work: statements to execute, as one transaction unless it is repeatable.
            repeatable: whether running it twice does no harm. If so it is run once more when the connection was lost
                on the way; otherwise only when nothing was stored for certain (no connection, a partition was missing,
                a deadlock), for then the transaction was rolled back.

        Raises:
            Unavailable: no connection by the deadline, or it was lost on the way, or there was no answer in time.
        """
        with within(PATIENCE_S if left_s() == math.inf else math.inf):
            connection = self._open()
            try:
                return self._attempt(connection, work)
            except Unavailable as error:
                # What else is away than the database is not mended by another connection.
                if not (repeatable or error.nothing_done) or error.what != Unavailable.what:
                    raise
                try:
                    return self._attempt(self._open(), work)
                except Unavailable as again:
                    again.nothing_done = again.nothing_done and error.nothing_done
                    raise

    def close(self) -> None:
        """Close the connection. The next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _attempt[T](self, connection: Connection, work: Callable[[Connection], T]) -> T:
        try:
            for pause_s in GIVE_WAY_S:
                try:
                    return work(connection)
                except GAVE_WAY:
                    time.sleep(random.uniform(0, pause_s))  # noqa: S311 - it keeps no secret
                except psycopg.errors.CheckViolation as error:
                    if not is_missing_partition(error):
                        raise
                    make_partitions(connection)
            return work(connection)
        except psycopg.Error as error:
            without_values(error)
            if not is_lost(error):
                raise
            self.close()
            refused = error.sqlstate is not None and error.sqlstate.startswith((*REFUSED, TOO_LONG))
            nothing_done = refused and error.diag.severity_nonlocalized != PANIC
            raise Unavailable(f"the database cannot be reached: {error}", nothing_done=nothing_done) from error
        finally:
            self._used_at = time.time()

    def _open(self) -> Connection:
        if self._connection is not None and (
            # By the wall clock: the monotonic one may stand still while an environment is frozen. One that was set back
            # meanwhile does not tell how long it was.
            self._connection.closed
            or not 0 <= time.time() - self._used_at <= TRUSTED_FOR_S
            or hung_up(self._connection)
        ):
            self.close()
        if self._connection is None:
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> BoundedConnection:
        """Try until the deadline: the database may be waking up."""
        pause_s = FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                with within(min(ATTEMPT_S, max(LEAST_ATTEMPT_S, left_s() / 2))):
                    return BoundedConnection.connect(row_factory=dict_row, **self._target.arguments())
            except psycopg.OperationalError as error:
                rest_s = max(0.0, pause_s - (time.monotonic() - began))
                if left_s() <= rest_s or any(words in str(error) for words in HOPELESS):
                    raise Unavailable(f"the database cannot be reached: {error}", nothing_done=True) from error
            self._while_waking()
            time.sleep(rest_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


MAKE_PARTITIONS = "SELECT forbear.make_partitions()"


def make_partitions(connection: psycopg.Connection[Any]) -> None:
    """Make the partitions of today and the coming days."""
    connection.execute(MAKE_PARTITIONS)


def hung_up(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the server has closed an idle connection (an idle session's timeout, a freeze, a fail-over).

    An idle server has nothing to say: a readable socket is its farewell. Costs no round trip.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))
