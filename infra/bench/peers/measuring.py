"""Measures the peers and Forbear in turn, and makes figures of it.

Owns the rounds, each peer's database, and what becomes of one that fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

from infra.bench.claiming import claimer
from infra.bench.figure import Figure
from infra.bench.filling import fill, make_endpoints
from infra.bench.peers.roster import PEERS, Peer
from infra.bench.peers.scratch import PeerFailed, default_folder, prepare, said
from infra.bench.world import Scale, World

NAME: Final = "peers"
OWN: Final = "Forbear"
LESS: Final = "no signature, no attempts kept, no breaker"
ENDPOINTS: Final = 100
PAYLOAD: Final = "x" * 1000
_JOBS: Final = 20_000
_JOBS_QUICK: Final = 2_000
_RUN_S: Final = 300


@dataclass(frozen=True, slots=True)
class Drain:
    """What a worker did. Times in seconds."""

    jobs: int
    seconds: float
    cpu_s: float

    @property
    def per_second(self) -> float:
        """Deliveries."""
        return self.jobs / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU time of the worker for a delivery, in microseconds."""
        return self.cpu_s / self.jobs * 1e6


def measure(
    world: World, scale: Scale, folder: Path | None = None, peers: Sequence[Peer] = PEERS, jobs: int | None = None
) -> Iterator[Figure]:
    """Measure Forbear and each peer.

    Args:
        world: the run's PostgreSQL and receiver.
        scale: how much.
        folder: the scratch environment; None: in the user's cache.
        peers: which ones.
        jobs: how many deliveries in a repeat; None: as many as the scale says.

    Raises:
        RuntimeError: Forbear did not deliver everything.
    """
    jobs = jobs or (_JOBS_QUICK if scale.quick else _JOBS)
    commands: dict[Peer, list[str]] = {}
    for peer in peers:
        try:
            commands[peer] = prepare(folder or default_folder(), peer)
        except PeerFailed as error:
            yield failed(peer, str(error))
    ours: list[Drain] = []
    theirs: dict[Peer, list[Drain]] = {peer: [] for peer in commands}
    for _ in range(scale.repeats):
        ours.append(_drain_own(world, jobs))
        for peer in list(theirs):
            try:
                theirs[peer].append(_drain(world, peer, commands[peer], max(jobs // peer.slow, 1)))
            except PeerFailed as error:
                del theirs[peer]
                yield failed(peer, str(error))
    yield from _figures(OWN, ours, {})
    for peer, drains in theirs.items():
        about = {"versions": peer.versions, "set up": peer.setup, "does less": LESS}
        yield from _figures(peer.name, drains, about)
        ratios = tuple(own.per_second / other.per_second for own, other in zip(ours, drains, strict=True))
        yield Figure(NAME, f"{OWN} over {peer.name}", "ratio", ratios, conditions={"does less": LESS})


def failed(peer: Peer, why: str) -> Figure:
    """The figure of a peer that delivered nothing, with the reason."""
    about = {"versions": peer.versions, "failed": why}
    return Figure(NAME, f"{peer.name}: deliveries", "1/s", (0.0,), conditions=about)


def _figures(name: str, drains: Sequence[Drain], about: Mapping[str, object]) -> Iterator[Figure]:
    conditions = {"jobs": drains[0].jobs, "payload_bytes": len(PAYLOAD), "endpoints": ENDPOINTS, **about}
    per_second = tuple(one.per_second for one in drains)
    yield Figure(NAME, f"{name}: deliveries", "1/s", per_second, conditions=conditions)
    yield Figure(NAME, f"{name}: worker's CPU", "us", tuple(one.cpu_us for one in drains), conditions=conditions)


def _drain_own(world: World, jobs: int) -> Drain:
    """Have Forbear do the job once. Like the others, the claimer does not linger when its queue is empty."""
    world.fresh()
    with world.connect() as connection:
        tenants = make_endpoints(world, connection, ENDPOINTS)
        each, more = divmod(jobs, ENDPOINTS)
        body = PAYLOAD.encode()
        fill(connection, {tenant: [body] * (each + (n < more)) for n, tenant in enumerate(tenants)})
        connection.execute("CHECKPOINT")
        with claimer(world.environment("claimer") | {"FORBEAR_LINGER_S": "0"}) as own:
            own.invoke()
            ended = own.ended()
    if ended.tally["delivered"] != jobs:
        raise RuntimeError(f"Forbear delivered {ended.tally['delivered']} of {jobs}")
    return Drain(jobs, ended.took_s, ended.cpu_s)


def _drain(world: World, peer: Peer, command: Sequence[str], jobs: int) -> Drain:
    """Have a peer do the job once, in a database that is there for it only."""
    with _database(world, peer.script.partition(".")[0]) as url:
        arguments = [url, world.receiver_url, str(jobs), PAYLOAD, str(ENDPOINTS)]
        said([*command, "fill", *arguments], _RUN_S)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            if (left := _left(connection, peer)) != jobs:
                raise PeerFailed(f"its queue holds {left} jobs instead of {jobs}")
        told = said([*command, "drain", *arguments], _RUN_S)
        with psycopg.connect(url, autocommit=True) as connection:
            if left := _left(connection, peer):
                raise PeerFailed(f"it left {left} of {jobs} jobs")
    try:
        found = json.loads(told.strip().splitlines()[-1])
        return Drain(jobs, float(found["seconds"]), float(found["cpu_s"]))
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise PeerFailed(f"its worker said {told[-100:]!r}") from error


def _left(connection: psycopg.Connection[Any], peer: Peer) -> int:
    row = connection.execute(peer.left.encode()).fetchone()
    return int(row[0]) if row else 0


@contextmanager
def _database(world: World, name: str) -> Iterator[str]:
    """A database on the run's server, dropped afterwards. Gives its URL."""
    named = sql.Identifier(f"peer_{name}")
    with world.connect() as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(named))
        connection.execute(sql.SQL("CREATE DATABASE {}").format(named))
        try:
            yield world.server.url(f"peer_{name}")
        finally:
            connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(named))
