"""Receivers that behave badly: what becomes of each attempt stands in `infra.torture.behaviours`.

A healthy endpoint stands beside the hostile ones. The fault strikes when requests are in flight to all of them: from
then on each receiver does its worst, and again with the next events, which find what the first ones left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any
from uuid import UUID

from forbear.ids import Prefix, encode
from infra.local.deployment import CLAIMER
from infra.torture import behaviours
from infra.torture.behaviours import CONNECT_S, FORBIDDEN, REFUSING, SWALLOWING, TIMEOUT_S, public
from infra.torture.footprint import connections_to, forget_peak, resident_kib
from infra.torture.hostile import Behaviour, Hostile
from infra.torture.names import Name, Route
from infra.torture.scenario import QUICK, Round, Scenario

HEALTHY = "healthy"
# Beyond what the claimer had before it met them, in KiB. It may keep 16 KiB of each body, and reads 64 KiB at a time.
MEMORY_KIB = 64 * 1024
# How late a busy machine may notice that a time is over, in seconds.
LATE_S = 2.0
_MAKING_AT_ONCE = 8


class Broken(Exception):
    """A promise was not kept."""


@dataclass
class Stage:
    """The receivers of a round.

    Attributes:
        hostile: by their endpoints' ids.
        alone: a receiver that nobody may come to: redirects, forbidden and unknown addresses lead there.
        routes: the addresses that may be connected to.
    """

    hostile: dict[str, Hostile]
    alone: Hostile
    routes: dict[str, Route]

    @property
    def ports(self) -> set[int]:
        """Where the hostile ones are."""
        return {one.port for one in self.hostile.values()}


async def _meet(played: Round, of: Sequence[Behaviour] | None = None) -> None:
    """One round with these behaviours; None: redirects, which need to know where they lead."""
    claimer = await _healthy_alone(played)
    gate = asyncio.Event()
    async with _staged(played, of, gate) as stage:
        first = await played.post(1)
        asked = [one for one in stage.hostile.values() if one.behaviour.asked]
        await played.until(lambda: all(one.requests for one in asked), "every hostile receiver to have a request")
        # None of them has answered, and the healthy one has got what is its own.
        await _got(played, first)
        played.strike()
        gate.set()
        more = await played.post(played.rng.randint(2, 4))
        await _got(played, more)
        await _end(played)
        await _check_attempts(played, stage, len(first) + len(more))
        _check_alone(played, stage)
        failures = [failure for one in (*stage.hostile.values(), stage.alone) for failure in one.failures]
        if failures:
            raise failures[0]
    # The receivers have hung up; with the next request the claimer notices, and keeps nothing of them.
    await _got(played, await played.post(1))
    await _end(played)
    await _check_claimer(played, claimer, stage.ports)


async def _healthy_alone(played: Round) -> dict[int, int]:
    """A healthy endpoint, and a claimer that has sent to it; gives the claimers' memory in KiB, by process id."""
    await played.endpoint(f"/{HEALTHY}")
    await _got(played, await played.post(1))
    pids = played.world.pids(CLAIMER)
    for pid in pids:
        forget_peak(pid)
    return {pid: resident_kib(pid) for pid in pids}


async def _got(played: Round, events: list[str]) -> None:
    """Wait until the healthy endpoint has got these events."""

    def there() -> bool:
        return set(events) <= {receipt.event for receipt in played.got() if receipt.path.endswith(f"/{HEALTHY}")}

    await played.until(there, "the healthy endpoint to get its own")


async def _end(played: Round) -> None:
    """Wait until every attempt has ended by itself. Nobody moves the clock: it would overtake their leases."""

    async def ended() -> bool:
        rows = await played.world.sql(
            "SELECT count(*) FROM forbear.queue q JOIN forbear.lanes l USING (endpoint_id) WHERE l.tenant = %s",
            played.tenant,
        )
        return bool(rows[0][0] == 0)

    await played.until(ended, "every attempt to end by itself")


@asynccontextmanager
async def _staged(played: Round, of: Sequence[Behaviour] | None, gate: asyncio.Event) -> AsyncIterator[Stage]:
    """Receivers with an endpoint each, and the names and addresses by which they are reached."""
    world = played.world
    opened = asyncio.Event()
    opened.set()
    alone = Hostile(behaviour=behaviours.ALONE, note=world.receivers.note, gate=opened)
    await alone.start()
    of = of or behaviours.redirects(cycle(_away(alone.port)))
    hostile = [Hostile(behaviour=behaviour, note=world.receivers.note, gate=gate) for behaviour in of]
    stage = Stage({}, alone, dict.fromkeys(REFUSING, Route.REFUSED) | {SWALLOWING: Route.SWALLOWED})
    names: dict[str, Name] = {}
    urls = []
    try:
        for number, one in enumerate(hostile):
            name = f"{one.behaviour.name}.{played.tenant}.torture.example"
            names[name] = one.behaviour.host or Name(((public(100, number + 1),),))
            for address in (address for answer in names[name].answers for address in answer):
                if address not in FORBIDDEN:
                    stage.routes.setdefault(address, Route.LOOPBACK)
            certificate = one.behaviour.certificate
            await one.start(world.authority.context(certificate, name) if certificate is not None else None)
            scheme = "http" if certificate is None else "https"
            urls.append(f"{scheme}://{name}:{one.port}{played.path}/{one.behaviour.name}")
        world.internet.forget()
        world.internet.set(names, stage.routes, alone.port)
        room = asyncio.Semaphore(_MAKING_AT_ONCE)
        ids = await asyncio.gather(*(_endpoint(played, one, url, room) for one, url in zip(hostile, urls, strict=True)))
        stage.hostile.update(zip(ids, hostile, strict=True))
        yield stage
    finally:
        gate.set()
        for one in (*hostile, alone):
            await one.stop()


async def _endpoint(played: Round, one: Hostile, url: str, room: asyncio.Semaphore) -> str:
    policy: dict[str, Any] = {
        **QUICK,
        "schedule": {"kind": "ladder", "gaps_s": []},  # what an attempt came to ends its delivery
        "limits": {"concurrency": one.behaviour.concurrency},
        "timeout_s": TIMEOUT_S,
        "connect_timeout_s": CONNECT_S,
    }
    async with room:
        return await played.endpoint(url=url, policy=policy)


def _away(port: int) -> list[str]:
    """Where redirects lead: inside, and to somebody who has nothing to do with it."""
    return [
        "http://169.254.169.254/latest/meta-data/",
        f"http://127.0.0.1:{port}/internal",
        f"http://{public(200)}:{port}/stranger",
        f"//127.0.0.1:{port}/",
    ]


async def _check_attempts(played: Round, stage: Stage, events: int) -> None:
    """Every attempt ended in time, with what its behaviour must come to."""
    rows = await played.world.sql(
        "SELECT d.endpoint_id, a.status, a.error, a.error_detail, a.verdict, a.latency_ms, a.address "
        "FROM forbear.attempts a JOIN forbear.deliveries d ON d.id = a.delivery_id "
        "JOIN forbear.endpoints e ON e.id = d.endpoint_id WHERE e.tenant = %s",
        played.tenant,
    )
    wrong = []
    for endpoint, one in stage.hostile.items():
        own = [row[1:] for row in rows if _endpoint_id(row[0]) == endpoint]
        if len(own) != events:
            wrong.append(f"{one.behaviour.name}: {events} events and {len(own)} attempts")
        wrong += [f"{one.behaviour.name}: {row}" for row in own if not _as_told(one.behaviour, row)]
        # A connection that was closed while it was idle costs one request more, and only that.
        if one.requests - one.dropped > events:
            wrong.append(f"{one.behaviour.name}: {one.requests} requests, {one.dropped} dropped, of {events} events")
    if wrong:
        raise Broken("; ".join(wrong[:5]))


def _as_told(behaviour: Behaviour, attempt: tuple[Any, ...]) -> bool:
    status, error, detail, verdict, latency_ms, address = attempt
    return bool(
        status == behaviour.status
        and (error in behaviour.errors if behaviour.errors else error is None)
        and behaviour.reason in detail
        and verdict == behaviour.verdict
        and latency_ms <= (TIMEOUT_S + LATE_S) * 1000
        and (behaviour.address is None or (address or "").startswith(f"{behaviour.address}:"))
    )


def _check_alone(played: Round, stage: Stage) -> None:
    """Nobody came where nobody may come, and every connection went to an address that the guard had seen."""
    strays = {one.address for one in played.world.internet.dialled()} - stage.routes.keys()
    if stage.alone.connections or strays:
        raise Broken(f"{stage.alone.connections} connections where none may be; dialled {sorted(strays)}")


async def _check_claimer(played: Round, before: dict[int, int], ports: set[int]) -> None:
    """The claimer lives on, has not grown, and has no connection to a hostile receiver any more."""
    gone = before.keys() - set(played.world.pids(CLAIMER))
    if gone:
        raise Broken(f"of the claimers {sorted(before)}, {sorted(gone)} did not survive")
    grown = {pid: resident_kib(pid, peak=True) - kib for pid, kib in before.items()}
    if max(grown.values()) > MEMORY_KIB:
        raise Broken(f"a claimer grew by {max(grown.values())} KiB")
    with suppress(TimeoutError):
        await played.until(
            lambda: not any(connections_to(pid, ports) for pid in before), "connections to be closed", 10
        )
        return
    held = {pid: connections_to(pid, ports) for pid in before}
    raise Broken(f"claimers still hold connections to receivers that have hung up: {held}")


def _endpoint_id(value: UUID) -> str:
    return encode(Prefix.ENDPOINT, value)


_MAY_DIE = frozenset({"exhausted", "permanent"})

SCENARIOS: tuple[Scenario, ...] = tuple(
    Scenario(name, promise, partial(_meet, of=of), _MAY_DIE)
    for name, promise, of in (
        (
            "hostile-connections",
            "Refused, reset, cut, dripping and half-dead connections cost their own attempt, and nobody else's.",
            behaviours.CONNECTIONS,
        ),
        (
            "hostile-responses",
            "What is no HTTP/1.1 is an error with a class, and what is odd but legal is taken.",
            behaviours.RESPONSES,
        ),
        (
            "hostile-bodies",
            "Endless bodies and decompression bombs are cut: the claimer neither grows nor waits.",
            behaviours.BODIES,
        ),
        (
            "hostile-certificates",
            "Nothing is sent to who cannot prove to be the name.",
            behaviours.CERTIFICATES,
        ),
        ("redirects", "No redirect is followed, wherever it leads.", None),
        (
            "hostile-names",
            "Names that fail, hang or lie lead nowhere that the guard has not seen.",
            behaviours.NAMES,
        ),
    )
)
