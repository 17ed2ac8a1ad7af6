"""Asynchronous invocations: accepted at once, run when there is room, retried, dropped when too old.

Owns the waiting and retrying; running an invocation is somebody else's. What is dropped is logged: locally there is no
dead-letter queue. Source: "How Lambda handles errors and retries with asynchronous invocation", AWS Lambda Developer
Guide: two retries, one and two minutes later, at most six hours in all.
"""

import asyncio
import logging
from typing import Protocol

from infra.local.errors import AwsError
from infra.local.runtime_api import Invocation, Outcome

logger = logging.getLogger(__name__)


class Run(Protocol):
    """Runs an invocation."""

    async def __call__(self, invocation: Invocation, *, wait_until: float) -> Outcome:
        """Run an invocation as soon as there is room.

        Args:
            invocation: What to run.
            wait_until: Until when to wait for room, on the event loop's clock.

        Returns:
            The outcome.

        Raises:
            AwsError: If there was no room, or it may not run.
        """
        ...


class EventQueue:
    """The events that were accepted and have not come to their end."""

    def __init__(self, retry_delays_s: tuple[float, ...]) -> None:
        """Start empty.

        Args:
            retry_delays_s: The delays before the first, second, … retry, in seconds; the last one repeats.
        """
        self._retry_delays_s = retry_delays_s
        self._events: set[asyncio.Task[None]] = set()
        self._closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, invocation: Invocation, run: Run, *, retries: int, max_age_s: float) -> None:
        """Accept an event.

        Args:
            invocation: The event; its request id stays the same on a retry.
            run: Runs it.
            retries: How often to try again after an error of the function.
            max_age_s: After how long, in seconds from now, it is not tried (again).
        """
        drop_at = asyncio.get_running_loop().time() + max_age_s
        event = asyncio.create_task(self._deliver(invocation, run, retries, drop_at))
        self._events.add(event)
        event.add_done_callback(self._events.discard)

    def close(self) -> None:
        """Try nothing again from now on."""
        if not self._closing.done():
            self._closing.set_result(None)

    async def join(self) -> None:
        """Wait until every event has come to its end."""
        await asyncio.gather(*self._events)

    async def _deliver(self, invocation: Invocation, run: Run, retries: int, drop_at: float) -> None:
        for attempt in range(retries + 1):
            if attempt and not await self._pause(attempt, drop_at):
                _log_drop(invocation, "it is too old or the stack is stopping")
                return
            try:
                outcome = await run(invocation, wait_until=drop_at)
            except AwsError as error:
                _log_drop(invocation, str(error))
                return
            if outcome.error is None:
                return
        _log_drop(invocation, f"it failed {retries + 1} times, the last time with {outcome.payload[:300]!r}")

    async def _pause(self, attempt: int, drop_at: float) -> bool:
        delay_s = self._retry_delays_s[min(attempt, len(self._retry_delays_s)) - 1]
        if asyncio.get_running_loop().time() + delay_s >= drop_at:
            return False
        await asyncio.wait([self._closing], timeout=delay_s)
        return not self._closing.done()


def _log_drop(invocation: Invocation, reason: str) -> None:
    logger.warning("Dropped the event %s of %s: %s", invocation.request_id, invocation.function_arn, reason)
