"""Host names to addresses: cached for a short time, each name looked up once at a time, lookups bounded.

Owns the cache and the bounds. It must not know which addresses are allowed or what they are for.
"""

import asyncio
import contextlib
import errno
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence

type Lookup = Callable[[str], Awaitable[Sequence[str]]]
"""Host name in, its IP addresses out, best first; raises `OSError` when it does not resolve."""

CACHE_S = 30.0
"""Seconds for which an answer is used again."""
CACHED_MAX = 4096
"""Names that are remembered."""
LOOKUPS_MAX = 32
"""Lookups at once."""
UNPROVEN_MAX = 16
"""Of those, lookups of names that did not resolve the last time, or were never looked up."""


async def system_lookup(host: str) -> Sequence[str]:
    """What the system's resolver says (getaddrinfo), from a thread of its own.

    A loop's own `getaddrinfo` would share a few threads with everything else: libuv has four, asyncio six on two cores.
    A lookup cannot be cancelled, so its thread is a daemon: a process may end while a name server keeps it waiting.

    Raises:
        OSError: The name does not resolve (`socket.gaierror`), or there is no thread to ask from.
        UnicodeError: It is not a name that could.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Sequence[str]] = loop.create_future()

    def settle(result: Sequence[str] | Exception) -> None:
        if answer.done():
            return
        if isinstance(result, Exception):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def look_up() -> None:
        result: Sequence[str] | Exception
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            result = list(dict.fromkeys(str(sockaddr[0]) for *_, sockaddr in found))
        except Exception as error:  # noqa: BLE001 - raised again in the loop, whatever it is
            result = error
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile, nobody waits
            loop.call_soon_threadsafe(settle, result)

    try:
        threading.Thread(target=look_up, name="lookup", daemon=True).start()
    except RuntimeError as error:  # the process may have no more threads
        raise OSError(errno.ENOMEM, str(error)) from error
    return await answer


class Resolver:
    """Resolves names through a lookup, sparing it.

    Many waiters for a name share one lookup, which goes on when they give up. Names that hang cannot starve the others:
    what did not resolve the last time gets only half of the slots, so what did finds one.
    """

    def __init__(self, lookup: Lookup = system_lookup, *, cache_s: float = CACHE_S) -> None:
        self._lookup = lookup
        self._cache_s = cache_s
        self._cache: dict[str, tuple[float, tuple[str, ...]]] = {}  # expired ones stay: they are the proven names
        self._running: dict[str, asyncio.Task[tuple[str, ...] | Exception]] = {}
        self._slots = asyncio.Semaphore(LOOKUPS_MAX)
        self._unproven_slots = asyncio.Semaphore(UNPROVEN_MAX)

    async def resolve(self, host: str) -> tuple[str, ...]:
        """The addresses of a name.

        Raises:
            Exception: What the lookup raised; `OSError` when the name does not resolve.
        """
        loop = asyncio.get_running_loop()
        expires_at, addresses = self._cache.get(host, (0.0, ()))
        if loop.time() < expires_at:
            return addresses
        task = self._running.get(host)
        if task is None:
            task = self._running[host] = loop.create_task(self._look_up(host))
            task.add_done_callback(lambda _: self._running.pop(host, None))
        result = await asyncio.shield(task)
        if isinstance(result, Exception):
            raise result
        return result

    def close(self) -> None:
        """Ends the lookups that run; to their waiters, the names do not resolve."""
        for task in list(self._running.values()):
            task.cancel()

    async def _look_up(self, host: str) -> tuple[str, ...] | Exception:
        try:
            async with contextlib.nullcontext() if host in self._cache else self._unproven_slots, self._slots:
                addresses = tuple(await self._lookup(host))
        except asyncio.CancelledError:  # by `close`: the waiters themselves were not cancelled
            return OSError("the resolver was closed")
        except Exception as error:  # noqa: BLE001 - handed to every waiter, of whom there may be none
            self._cache.pop(host, None)
            return error
        self._cache.pop(host, None)
        while len(self._cache) >= CACHED_MAX:
            del self._cache[next(iter(self._cache))]
        self._cache[host] = (asyncio.get_running_loop().time() + self._cache_s, addresses)
        return addresses
