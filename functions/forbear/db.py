"""The connection to PostgreSQL: one an execution environment, opened late, replaced when it is lost.

Owns opening, losing and retrying. Knows no statement of Forbear's but the one that makes missing partitions.
"""

from __future__ import annotations

import select
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row

type Connection = psycopg.Connection[DictRow]

CONNECTION_OPTIONS = {
    "autocommit": True,
    "prepare_threshold": None,
    "connect_timeout": 5,
    "application_name": "forbear",
    # No statement of a function's takes a second; milliseconds. Not through a proxy, which would pin the session.
    "options": "-c statement_timeout=15000 -c idle_in_transaction_session_timeout=15000",
    # A half-open socket ends here and not when the function does.
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
# 25006: the writer became a reader (fail-over); class 53: it has run out of something, such as disk. What it was told
# to do then is rolled back.
REFUSED = ("25006", "53")
# 57014: it took too long (statement_timeout), and is rolled back.
TOO_LONG = "57014"
# Class 57P: shut down; class 08: the connection is gone.
LOST = (*REFUSED, TOO_LONG, "57P", "08")
NO_PARTITION = "no partition of relation"


class Unavailable(Exception):
    """The database cannot be reached, or does nothing for us now.

    Args:
        message: why.
        nothing_done: it is certain that nothing was stored. Otherwise nobody knows.
    """

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


@cache
def statement(name: str) -> str:
    """The text of a statement: the file `sql/<name>.sql`."""
    return (files("forbear") / "sql" / f"{name}.sql").read_text(encoding="utf-8")


class Database:
    """A connection that opens when it is first used and is replaced when it is lost.

    Args:
        url: PostgreSQL connection URL.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None

    def run[T](self, work: Callable[[Connection], T], *, repeatable: bool) -> T:
        """Run `work` on the connection.

        Args:
            work: statements to execute, as one transaction unless it is repeatable.
            repeatable: whether running it twice does no harm. If so it is run once more when the connection was lost
                on the way; otherwise only when nothing was stored for certain (no connection, a partition was missing,
                a deadlock), for then the transaction was rolled back.

        Raises:
            Unavailable: no connection, or it was lost on the way.
        """
        try:
            return self._attempt(work)
        except Unavailable as error:
            if not (repeatable or error.nothing_done):
                raise
            try:
                return self._attempt(work)
            except Unavailable as again:
                again.nothing_done = again.nothing_done and error.nothing_done
                raise

    def close(self) -> None:
        """Close the connection. The next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _attempt[T](self, work: Callable[[Connection], T]) -> T:
        try:
            connection = self._open()
        except psycopg.OperationalError as error:
            raise Unavailable(f"the database cannot be reached: {error}", nothing_done=True) from error
        try:
            try:
                return work(connection)
            except psycopg.errors.TransactionRollback:
                return work(connection)
            except psycopg.errors.CheckViolation as error:
                if not is_missing_partition(error):
                    raise
                make_partitions(connection)
                return work(connection)
        except psycopg.Error as error:
            if not is_lost(error):
                raise
            self.close()
            refused = error.sqlstate is not None and error.sqlstate.startswith((*REFUSED, TOO_LONG))
            raise Unavailable(f"the database cannot be reached: {error}", nothing_done=refused) from error

    def _open(self) -> Connection:
        if self._connection is not None and (self._connection.closed or hung_up(self._connection)):
            self.close()
        if self._connection is None:
            self._connection = psycopg.connect(self._url, row_factory=dict_row, **CONNECTION_OPTIONS)  # type: ignore[arg-type]  # the options are libpq's and psycopg's, of several types
        return self._connection


MAKE_PARTITIONS = "SELECT forbear.make_partitions(forbear.now() - interval '1 day', 9)"


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
