"""Forbear's sender: HTTP/1.1 on llhttp, as little as possible between a request and its socket.

Owns the course of one attempt: a kept connection or a new one, the free resend, and that nothing is raised. What a
message looks like, how a connection is made and kept, and how it carries an exchange stand in the modules it joins.
"""

import asyncio
import logging
import ssl
import time

from forbear.guard import Guard
from forbear.policy.verdict import ErrorClass
from forbear.sender import Request, Response
from forbear.sender.connection import Connection, Outcome, failure
from forbear.sender.dialer import Connect, Dialer, UnreachableError, tcp_connect, tls_context
from forbear.sender.http11 import UnsendableError, request_head
from forbear.sender.pool import IDLE_S, Pool
from forbear.sender.reasons import bounded
from forbear.sender.resolver import Lookup, Resolver, system_lookup

_log = logging.getLogger(__name__)


class LeanSender:
    """Sends over pooled connections of its own; follows `forbear.sender.Sender`.

    Make one for an event loop and keep it. It may be made before the loop runs.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        tls: ssl.SSLContext | None = None,
        lookup: Lookup = system_lookup,
        connect: Connect = tcp_connect,
        idle_s: float = IDLE_S,
    ) -> None:
        """Nothing is opened yet.

        Args:
            guard: Says which addresses must not be connected to.
            tls: What TLS is made with; None for `tls_context()`.
            lookup: How a name becomes addresses.
            connect: How a TCP connection to a checked address is made.
            idle_s: Seconds that an idle connection is kept.
        """
        self._resolver = Resolver(lookup)
        self._dialer = Dialer(guard, self._resolver, tls_context() if tls is None else tls, connect)
        self._pool = Pool(idle_s=idle_s)

    async def send(self, request: Request) -> Response:
        """Sends one request; see `forbear.sender` for what is promised."""
        began = time.monotonic()
        unsent = False
        try:
            outcome, address = await self._attempt(request)
        except UnsendableError as error:
            outcome, address = failure(ErrorClass.UNSENDABLE, str(error)), None
        except UnreachableError as error:
            if error.error is ErrorClass.INTERNAL:
                self._pool.clear()  # idle connections hold what the next attempt lacks
            outcome, address, unsent = failure(error.error, error.reason), error.address, error.short
        except Exception as error:  # noqa: BLE001 - one request must not take the claimer's other thousand with it
            _log.error("unexpected error in the sender", exc_info=error)
            outcome, address = failure(ErrorClass.INTERNAL, f"unexpected {type(error).__name__} in the sender"), None
        return Response(
            outcome.status,
            outcome.headers,
            outcome.retry_after,
            outcome.body,
            outcome.error,
            bounded(outcome.reason) if outcome.reason else "",
            time.monotonic() - began,
            address,
            unsent,
        )

    async def aclose(self) -> None:
        """Closes what is idle and keeps no more connections; what is in flight ends by itself."""
        self._pool.close()
        self._resolver.close()
        await asyncio.sleep(0)  # the loop closes the sockets in its next pass

    async def _attempt(self, request: Request) -> tuple[Outcome, str | None]:
        now = asyncio.get_running_loop().time()
        deadline = now + request.timeout_s
        url = request.url
        head = request_head(request)
        key = (url.scheme, url.host, url.port)
        with self._pool:
            connection = self._pool.take(key) or await self._fresh(request, deadline)
            while True:
                try:
                    outcome = await connection.exchange(head, request.body, deadline)
                except BaseException:
                    connection.abort()
                    raise
                if not outcome.stale:
                    self._pool.give(key, connection)
                    return outcome, connection.address
                # Once: a fresh connection is never stale.
                connection = await self._fresh(request, deadline)

    async def _fresh(self, request: Request, deadline: float) -> Connection:
        # The time to connect starts where connecting starts: a stale connection must not use it up.
        ready_by = min(deadline, asyncio.get_running_loop().time() + request.connect_timeout_s)
        connection = await self._dialer.dial(request.url, ready_by)
        if asyncio.get_running_loop().time() >= deadline:
            # Frozen on the way here, perhaps for minutes: by now the lease may be somebody else's.
            connection.abort()
            raise UnreachableError(ErrorClass.TIMEOUT, "timed out before the request was sent", connection.address)
        return connection
