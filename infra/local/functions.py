"""The local Lambda service: functions, and how they are invoked.

Owns names, payload limits and the two invocation types; concurrency and environments are `pool`'s, retries of
asynchronous events `event_queue`'s. Knows nothing of HTTP events.
"""

import asyncio
import secrets
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace

from infra.local.errors import FunctionNotFound, FunctionUnavailable, RequestTooLarge
from infra.local.event_queue import EventQueue
from infra.local.pool import FunctionSpec, LineSink, Pool
from infra.local.runtime_api import Invocation, Outcome

# Lambda quotas: a synchronous request is up to 6 MB, an asynchronous event up to 1 MB (256 KB until October 2025).
MAX_REQUEST_BYTES = 6 * 1024 * 1024
MAX_EVENT_BYTES = 1024 * 1024


class Functions:
    """All functions of a stack, by name.

    Attributes:
        stopping: Whether new work is refused.
    """

    def __init__(
        self,
        specs: Iterable[FunctionSpec],
        *,
        host: str,
        environment: Mapping[str, str],
        on_line: LineSink,
        idle_s: float,
        retry_delays_s: tuple[float, ...],
    ) -> None:
        """Declare the functions; no process is started before the first invocation.

        Args:
            specs: The functions.
            host: The loopback address of the environments' Runtime APIs.
            environment: Variables that every function gets.
            on_line: Receives the function's name and one line of its output.
            idle_s: After how long without work an environment is ended, in seconds.
            retry_delays_s: The delays before the first, second, … retry of an asynchronous event, in seconds.
        """
        self._pools = {
            spec.name: Pool(spec, host=host, environment=environment, on_line=on_line, idle_s=idle_s) for spec in specs
        }
        self._events = EventQueue(retry_delays_s)
        self.stopping = False
        self._running: set[asyncio.Task[Outcome]] = set()

    def spec(self, reference: str) -> FunctionSpec:
        """A function's configuration.

        Args:
            reference: Its name, ARN or partial ARN.

        Returns:
            The configuration.

        Raises:
            FunctionNotFound: If there is none.
        """
        return self._pool(reference).spec

    def pids(self, name: str) -> tuple[int, ...]:
        """The process ids of a function's environments that are alive, the longest running first."""
        return self._pool(name).pids

    def set_timeout(self, name: str, seconds: float) -> None:
        """Change how long an invocation of a function may take, from the next one on, as an update of it does."""
        pool = self._pool(name)
        pool.spec = replace(pool.spec, timeout_s=seconds)

    async def invoke(self, reference: str, payload: bytes, *, trace_id: str | None = None) -> Outcome:
        """Invoke a function and wait for the outcome (invocation type RequestResponse).

        Args:
            reference: The function's name or ARN.
            payload: The event as JSON.
            trace_id: The X-Ray header to pass on; a new one if None.

        Returns:
            The result, or the error document of a function that failed.

        Raises:
            FunctionNotFound: If there is no such function.
            RequestTooLarge: If the payload is over 6 MB.
            TooManyRequests: If all environments are and, for the function's `queue_s`, stay busy.
            FunctionUnavailable: If the stack is stopping.
        """
        pool = self._pool(reference)
        if len(payload) > MAX_REQUEST_BYTES:
            raise RequestTooLarge(len(payload), "RequestResponse", MAX_REQUEST_BYTES)
        # A task of its own: as in Lambda, an invocation goes on when its caller stops waiting for it.
        invocation = new_invocation(pool.spec, payload, trace_id)
        wait_until = asyncio.get_running_loop().time() + pool.spec.queue_s
        running = asyncio.create_task(pool.run(invocation, wait_until=wait_until))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        return await asyncio.shield(running)

    def invoke_async(self, reference: str, payload: bytes) -> str:
        """Queue an invocation (type Event): run when an environment is free, tried again when the function fails.

        Args:
            reference: The function's name or ARN.
            payload: The event as JSON.

        Returns:
            The request id.

        Raises:
            FunctionNotFound: If there is no such function.
            RequestTooLarge: If the payload is over 1 MB.
            FunctionUnavailable: If the stack is stopping.
        """
        pool = self._pool(reference)
        if len(payload) > MAX_EVENT_BYTES:
            raise RequestTooLarge(len(payload), "Event", MAX_EVENT_BYTES)
        if self.stopping:
            raise FunctionUnavailable(pool.spec.name)
        invocation = new_invocation(pool.spec, payload)
        self._events.put(invocation, pool.run, retries=pool.spec.async_retries, max_age_s=pool.spec.max_event_age_s)
        return invocation.request_id

    async def stop(self, grace_s: float) -> None:
        """Refuse new work, let what runs end, and end all environments. Queued events are dropped.

        Args:
            grace_s: How long running invocations may still take, in seconds.
        """
        self.stopping = True
        self._events.close()
        await asyncio.gather(*(pool.stop(grace_s) for pool in self._pools.values()))
        await self._events.join()

    def _pool(self, reference: str) -> Pool:
        # Forms of a reference: name, account:function:name, the whole ARN; each may end in :$LATEST.
        name = reference.rpartition("function:")[2].partition(":")[0]
        try:
            return self._pools[name]
        except KeyError:
            raise FunctionNotFound(reference) from None


def new_invocation(spec: FunctionSpec, payload: bytes, trace_id: str | None = None) -> Invocation:
    """An invocation with an id of its own.

    Args:
        spec: The function.
        payload: The event as JSON.
        trace_id: The X-Ray header, or None for a new one.

    Returns:
        The invocation.
    """
    return Invocation(
        request_id=str(uuid.uuid4()),
        function_arn=spec.arn,
        trace_id=f"{trace_id or new_trace_root()};Parent={secrets.token_hex(8)};Sampled=0",
        timeout_s=spec.timeout_s,
        payload=payload,
    )


def new_trace_root() -> str:
    """A new X-Ray trace header, root only: version, seconds since 1970 and 96 random bits, in hexadecimal."""
    return f"Root=1-{int(time.time()):08x}-{secrets.token_hex(12)}"
