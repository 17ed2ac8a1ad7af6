"""An asynchronous connection that is served from within the event loop's callbacks.

A claimer's loop is busy with a thousand requests, so that each of its passes takes milliseconds. psycopg waits for the
socket and then wakes the task that asked, which takes another pass, for each piece of an answer; and it waits until a
socket can be written to that nearly always can. Here the exchange goes on in the pass in which the socket is ready, and
what can be written is written at once.

Owns how an exchange is driven. What is said in it is psycopg's.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
from collections.abc import Generator
from typing import Any

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.rows import DictRow
from psycopg.waiting import Ready, Wait

# How long the server may take over ending a statement that nobody waits for any more.
CANCEL_S = 5.0


class ServedConnection(psycopg.AsyncConnection[DictRow]):
    """A connection to be used by one task at a time. Whoever is cancelled while it waits closes it."""

    async def wait[T](self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:  # noqa: ASYNC109 - psycopg's
        """Drive an exchange."""
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        exchange = _Exchange(self.pgconn, gen)
        try:
            return await exchange.result
        except asyncio.CancelledError:
            exchange.stop()
            try:
                if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                    with contextlib.suppress(psycopg.Error):
                        await self.cancel_safe(timeout=CANCEL_S)
            finally:
                self.pgconn.finish()
            raise


class _Exchange[T]:
    """One exchange on its way. psycopg's generator says what it waits for, and is sent what is ready."""

    def __init__(self, pgconn: PGconn, steps: Generator[Any, Any, T]) -> None:
        self._loop = asyncio.get_running_loop()
        self.result: asyncio.Future[T] = self._loop.create_future()
        self._pgconn = pgconn
        self._steps = steps
        self._socket = pgconn.socket
        self._wanted = 0
        self._writing = False
        self._poll = select.poll()
        self._poll.register(self._socket, 0)
        self._loop.add_reader(self._socket, self._go_on, Ready.R)
        self._go_on(None)

    def stop(self) -> None:
        """Look at the socket no more."""
        self._loop.remove_reader(self._socket)
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket)

    def _go_on(self, ready: int | None) -> None:
        try:
            while ready is None or ready & self._wanted:
                self._wanted = self._steps.send(ready)
                # libpq keeps what the socket does not take; while it keeps nothing, more can be written.
                ready = Ready.NONE if self._unsent() else Wait.W & self._wanted
                if not ready and self._hung_up():
                    ready = Ready.R  # it will find out; after such an event, libuv tells of no other
        except StopIteration as end:
            self._end(end.value, None)
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            self._end(None, error)

    def _hung_up(self) -> bool:
        return any(event & (select.POLLHUP | select.POLLERR) for _, event in self._poll.poll(0))

    def _unsent(self) -> bool:
        """Whether something waits to be written, also when the generator only waits for an answer to it."""
        unsent = bool(self._pgconn.flush())
        if unsent != self._writing:
            self._writing = unsent
            if unsent:
                self._loop.add_writer(self._socket, self._writable)
            else:
                self._loop.remove_writer(self._socket)
        return unsent

    def _writable(self) -> None:
        try:
            unsent = self._unsent()
        except psycopg.Error as error:
            self._end(None, error)
            return
        if not unsent:
            self._go_on(Ready.W)

    def _end(self, value: Any, error: BaseException | None) -> None:
        self.stop()
        if self.result.done():  # cancelled
            return
        if error is None:
            self.result.set_result(value)
        else:
            self.result.set_exception(error)
