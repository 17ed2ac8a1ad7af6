"""A proxy between the functions and PostgreSQL, from which every step of theirs can be hit.

Knows of each connection whose it is (the user of its startup message), sees requests and answers pass, and can cut,
refuse, freeze and delay them, or call back at a step: before a request is passed on, when half of it has been, when the
first byte of its answer has been, and when the answer is there and nothing of it has been passed on. Plain text on
loopback. Knows nothing of Forbear.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from infra.torture.link import Called, Link, Step, Where
from infra.torture.wire import Request

__all__ = ["Called", "Link", "PostgresProxy", "Step", "Where"]

_HOST = "127.0.0.1"


class PostgresProxy:
    """The proxy; everybody's connections, and what is done to them.

    Attributes:
        upstream: where PostgreSQL is; new connections go there (`follow`).
        port: where clients come to, on 127.0.0.1; it stays the same.
        statements: how often each role has sent each SQL text.
        links: the connections that are open.
        failures: what callbacks have raised.
    """

    def __init__(self, upstream_port: int) -> None:
        """Listen nowhere yet.

        Args:
            upstream_port: PostgreSQL's port on 127.0.0.1.
        """
        self.upstream = (_HOST, upstream_port)
        self.port = 0
        self.statements: Counter[tuple[str, str]] = Counter()
        self.links: set[Link] = set()
        self.failures: list[Exception] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._steps: list[Step] = []
        self._delays_s: dict[str | None, float] = {}
        # Set while nobody is frozen; each role's own in `_frozen`.
        self._frozen: dict[str | None, asyncio.Event] = {}

    async def start(self) -> None:
        """Listen, on any free port at first."""
        self._server = await asyncio.start_server(self._admit, _HOST, self.port, reuse_address=True)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Hang up on everybody; twice is fine."""
        self.reset()
        self.refuse()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def follow(self, port: int) -> None:
        """Take new connections to another port from now on: PostgreSQL has been restarted."""
        self.upstream = (_HOST, port)

    def cut(self, role: str | None = None) -> int:
        """Reset all connections, or a role's. Gives their number."""
        chosen = [link for link in self.links if role in {None, link.role}]
        for link in chosen:
            link.cut()
        return len(chosen)

    def refuse(self) -> None:
        """Refuse new connections (ECONNREFUSED) until `admit`; those that are there stay."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def admit(self) -> None:
        """Take new connections again."""
        if self._server is None:
            await self.start()

    def freeze(self, role: str | None = None) -> None:
        """Pass nothing, of all or a role's connections, and keep them open; new ones are accepted and hear nothing."""
        self._frozen.setdefault(role, asyncio.Event())

    def thaw(self) -> None:
        """Pass everything again, from where it stood."""
        frozen, self._frozen = self._frozen, {}
        for event in frozen.values():
            event.set()

    def delay(self, seconds: float, role: str | None = None) -> None:
        """Hold everything that comes, of all or a role's connections, for so long before it is passed on."""
        self._delays_s[role] = seconds

    def at(
        self,
        role: str | None,
        containing: str,
        where: Where,
        call: Called,
        *,
        times: int = 1,
        least_rows: int = 0,
        least_bytes: int = 0,
    ) -> Step:
        """Call back at a step; see `Step` for what these mean.

        A callback that kills the client should `cut` the link, too: what is still in the proxy would be passed on.
        """
        step = Step(role, containing, where, call, times, least_rows, least_bytes)
        self._steps.append(step)
        return step

    def reset(self) -> None:
        """Forget all steps, delays and freezes."""
        self._steps.clear()
        self._delays_s.clear()
        self.thaw()

    def count(self, role: str, containing: str) -> int:
        """How many SQL texts with this in it a role has sent."""
        return sum(number for (whose, text), number in self.statements.items() if whose == role and containing in text)

    async def passable(self, link: Link) -> None:
        """Wait until something may be passed on."""
        delay_s = self._delays_s.get(link.role, self._delays_s.get(None, 0.0))
        if delay_s:
            await asyncio.sleep(delay_s)
        while frozen := self._frozen.get(link.role) or self._frozen.get(None):
            await frozen.wait()

    def step(self, where: Where, link: Link, request: Request, rows: int = 0) -> Step | None:
        """The first step that is at this point."""
        for step in self._steps:
            if step.where == where and rows >= step.least_rows and step.concerns(link, request):
                return step
        return None

    def awaits_answer(self, link: Link, request: Request) -> bool:
        """Whether a step may be at this request's answer, once it is whole."""
        return any(step.where in {"answered", "first byte"} and step.concerns(link, request) for step in self._steps)

    def start_call(self, step: Step, link: Link) -> asyncio.Task[None]:
        """Call a step's callback in a task of its own."""
        call = asyncio.create_task(self._call(step, link))
        self._tasks.add(call)
        call.add_done_callback(self._tasks.discard)
        return call

    async def _call(self, step: Step, link: Link) -> None:
        try:
            await step.call(link)
        except Exception as error:  # noqa: BLE001 - it is the scenario's, which is told
            self.failures.append(error)
        step.done.set()

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        link = Link(self, reader, writer)
        self.links.add(link)
        if task is not None:
            self._tasks.add(task)
        try:
            await link.serve()
        finally:
            self.links.discard(link)
            if task is not None:
                self._tasks.discard(task)
