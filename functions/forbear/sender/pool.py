"""Connections kept open between requests, within bounds.

Owns which idle connection is used again, for how long and how many are kept. It must not know how connections are made
or what goes over them.
"""

import asyncio

from forbear.sender.connection import Connection

type Key = tuple[str, str, int]
"""Scheme, host and port: what a connection is good for."""

IDLE_S = 4.0
"""Seconds that a connection is kept idle: less than the five that many servers allow, and a freeze outlasts it."""
AGE_MAX_S = 60.0
"""Seconds after which a connection is not used again, so that a name's new address is noticed under steady traffic."""
OPEN_MAX = 1_000
"""Connections in all, in use or idle; a Lambda environment has 1,024 descriptors. Idle ones make room."""


class Pool:
    """The idle connections of one event loop; the one that was used last goes first, so that the surplus ages out."""

    def __init__(self, *, idle_s: float = IDLE_S) -> None:
        self._idle_s = idle_s
        self._stacks: dict[Key, list[Connection]] = {}
        self._keys: dict[Connection, Key] = {}  # the idle connections, longest idle first
        self._in_use = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._keys)

    def __enter__(self) -> None:
        """Takes the place of one connection in use, for as long as the context lasts; an idle one makes room for it."""
        self._in_use += 1
        if self._in_use + len(self._keys) > OPEN_MAX and self._keys:
            self._drop(next(iter(self._keys)))

    def __exit__(self, *_: object) -> None:
        self._in_use -= 1

    def take(self, key: Key) -> Connection | None:
        """An idle connection that looks alive, or None. It is the caller's until given back."""
        stack = self._stacks.get(key)
        if not stack:
            return None
        now = asyncio.get_running_loop().time()
        while stack:
            connection = stack.pop()
            del self._keys[connection]
            # The socket itself is asked: the loop may have noticed neither an end, as after a freeze, nor bytes that
            # answer nothing, and would take these for the next request's response.
            if connection.is_open and now - connection.idle_since < self._idle_s and connection.is_quiet():
                return connection
            connection.abort()
        return None

    def give(self, key: Key, connection: Connection) -> None:
        """Keeps a connection whose exchange has ended, if it is open and young; closes it otherwise."""
        if not connection.is_open:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        stack = self._stacks.setdefault(key, [])
        if self._closed or now - connection.opened_at > AGE_MAX_S:
            connection.abort()
            return
        connection.idle_since = now
        stack.append(connection)
        self._keys[connection] = key
        if self._timer is None:
            self._timer = loop.call_later(self._idle_s, self._sweep)

    def clear(self) -> None:
        """Closes every idle connection."""
        for connection in self._keys:
            connection.abort()
        self._keys.clear()
        self._stacks.clear()

    def close(self) -> None:
        """Closes every idle connection and keeps no more."""
        self._closed = True
        self.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _drop(self, connection: Connection) -> None:
        self._stacks[self._keys.pop(connection)].remove(connection)
        connection.abort()

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        oldest_allowed = loop.time() - self._idle_s
        self._timer = None
        for connection in list(self._keys):
            if connection.idle_since > oldest_allowed:
                self._timer = loop.call_at(connection.idle_since + self._idle_s, self._sweep)
                break
            self._drop(connection)
        self._stacks = {key: stack for key, stack in self._stacks.items() if stack}
