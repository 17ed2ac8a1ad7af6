"""How long anybody waits for the database: until a deadline that holds on our side, whatever the server does.

A server that is stopped, or a line that has gone dead, keeps its TCP connection and says nothing: then the server's own
timeouts do not help, and the kernel's take longer than a request may. Owns the deadline and the connection that heeds
it. Knows no statement and no reason for a deadline.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any

import psycopg
from psycopg.abc import PQGen, PQGenConn
from psycopg.rows import DictRow

# By `time.monotonic`. A request's, so it goes with the context and not with the connection that requests share.
_until: ContextVar[float] = ContextVar("until", default=math.inf)


class TimeIsUp(psycopg.OperationalError):
    """The database had not answered by the deadline, and the connection was given up."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Wait for the database no longer than this in all that runs inside; a nearer deadline outside still holds."""
    token = _until.set(min(_until.get(), time.monotonic() + seconds))
    try:
        yield
    finally:
        _until.reset(token)


def left_s() -> float:
    """Seconds until the deadline: none or less when it has passed, infinity when there is none."""
    return _until.get() - time.monotonic()


class BoundedConnection(psycopg.Connection[DictRow]):
    """A connection on which connecting and every statement end by the deadline.

    psycopg drives each exchange as a generator, and wakes it a few times a second even if the socket has nothing. Here
    each of these steps looks at the clock; a connection whose exchange was broken off is closed.
    """

    @classmethod
    def _connect_gen(cls, conninfo: str = "") -> PQGenConn[BoundedConnection]:
        return _bounded(super()._connect_gen(conninfo), lambda: None)

    def wait[T](self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Drive an exchange.

        Raises:
            TimeIsUp: the deadline came first.
        """
        return super().wait(_bounded(gen, self.close), interval, timeout)


def _bounded[T](steps: Generator[Any, Any, T], close: Callable[[], None]) -> Generator[Any, Any, T]:
    try:
        wanted = next(steps)
        while left_s() > 0:
            wanted = steps.send((yield wanted))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]  # it is what `steps` returned
    close()
    late = TimeIsUp("it did not answer in time")
    # What is under way tidies up, on a connection that is closed; a transaction's end takes it well, and returns.
    with suppress(psycopg.Error, StopIteration):
        steps.throw(late)
    raise late
