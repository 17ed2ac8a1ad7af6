"""Who is measured beside Forbear: packages with their versions, how each is set up, and how to see what it has left.

Owns the list and nothing of how a peer is installed or run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

WORKERS: Final = Path(__file__).with_name("workers")

NODE_AT_LEAST: Final = (22, 19)
"""What the Node packages below ask for, undici the most."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A queue library with an HTTP client, doing Forbear's job.

    Attributes:
        name: of the two, as it is shown.
        runtime: what runs its script.
        packages: what is installed, exactly.
        script: in `WORKERS`. It is called with a step (`fill`, `drain`), the database's URL, the receiver's URL, how
            many jobs, the payload, and over how many paths of the receiver they go; `drain` prints how many seconds it
            took to send all of them and to write their ends (`seconds`), and of which CPU time (`cpu_s`).
        setup: how it is tuned, in a phrase.
        left: a statement that counts the jobs that have not ended well.
        slow: it gets so many times fewer jobs than the others, or they would all wait for it.
    """

    name: str
    runtime: Literal["python", "node"]
    packages: tuple[tuple[str, str], ...]
    script: str
    setup: str
    left: str
    slow: int = 1

    @property
    def versions(self) -> str:
        """The versions of what it is made of."""
        return ", ".join(f"{package.partition('[')[0]} {version}" for package, version in self.packages)


PEERS: Final = (
    Peer(
        name="graphile-worker + undici",
        runtime="node",
        packages=(("graphile-worker", "0.18.0"), ("undici", "8.13.1")),
        script="graphile_worker.mjs",
        setup="50 jobs at once, 51 connections, a local queue of 500, ends written in batches",
        left="SELECT count(*) FROM graphile_worker._private_jobs",
    ),
    Peer(
        name="pg-boss + undici",
        runtime="node",
        packages=(("pg-boss", "12.38.0"), ("undici", "8.13.1")),
        script="pg_boss.mjs",
        setup="2 workers, batches of 200 that are completed by one statement, no pause while they come back full",
        left="SELECT count(*) FROM pgboss.job WHERE name = 'deliver' AND state <> 'completed'",
    ),
    Peer(
        name="pgqueuer + aiohttp",
        runtime="python",
        packages=(("pgqueuer", "1.6.0"), ("aiohttp", "3.14.5"), ("asyncpg", "0.32.0"), ("uvloop", "0.23.0")),
        script="pgqueuer_worker.py",
        setup="asyncpg, uvloop, batches of 50, 200 jobs at once",
        left="SELECT count(*) FROM pgqueuer",
    ),
    Peer(
        name="procrastinate + httpx",
        runtime="python",
        packages=(("procrastinate", "3.10.0"), ("httpx", "0.28.1"), ("psycopg[binary]", "3.3.9")),
        script="procrastinate_worker.py",
        setup="30 jobs at once, 10 connections, jobs deleted when they succeeded",
        left="SELECT count(*) FROM procrastinate_jobs WHERE status <> 'succeeded'",
        slow=10,
    ),
)
