"""What is done to processes from outside, as whoever owns them may: to stand still, and to have less of something.

And the traffic during which it is done. Linux (/proc, prlimit). Knows no scenario.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, Literal

from infra.torture.ledger import Receipt
from infra.torture.scenario import Round

type Limited = Literal["fsize", "nofile", "as"]
_LIMITS: Final = {"fsize": resource.RLIMIT_FSIZE, "nofile": resource.RLIMIT_NOFILE, "as": resource.RLIMIT_AS}


def family(pid: int) -> list[int]:
    """A process and its children, itself first."""
    children = []
    for entry in Path("/proc").iterdir():
        # It may end meanwhile. After the name, which may hold anything, come the state and the parent (proc(5)).
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                children.append(int(entry.name))
    return [pid, *children]


def send(number: signal.Signals, pids: Iterable[int]) -> None:
    """Send a signal to those of the processes that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def standing_still(pids: Sequence[int]) -> Iterator[None]:
    """Processes that stand still (SIGSTOP) for as long as the block lasts."""
    send(signal.SIGSTOP, pids)
    try:
        yield
    finally:
        send(signal.SIGCONT, pids)


@contextmanager
def limited(pids: Sequence[int], what: Limited, amount: int) -> Iterator[None]:
    """Processes with less of something for as long as the block lasts, as a shortage that passes.

    Args:
        pids: the processes; what they start meanwhile inherits it, and keeps it.
        what: the size of a file, the number of descriptors, or memory (address space); as prlimit(1) names them.
        amount: how much, in bytes or as a number.
    """
    before = {pid: resource.prlimit(pid, _LIMITS[what])[0] for pid in pids if _is_ours(pid)}
    for pid in pids:
        _limit(pid, what, amount)
    try:
        yield
    finally:
        for pid in pids:
            _limit(pid, what, before.get(pid, resource.RLIM_INFINITY))


def _is_ours(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}").stat().st_uid == os.geteuid()
    except OSError:
        return False


def _limit(pid: int, what: Limited, soft: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        if _is_ours(pid):
            hard = resource.prlimit(pid, _LIMITS[what])[1]
            resource.prlimit(pid, _LIMITS[what], (soft, hard))
            return
    with contextlib.suppress(OSError):
        owner = Path(f"/proc/{pid}").stat()
        amount = "unlimited" if soft == resource.RLIM_INFINITY else str(soft)
        # Root may have been stripped of the right to do this to others' processes; their owner has it.
        subprocess.run(
            ["prlimit", "--pid", str(pid), f"--{what}={amount}:"],  # noqa: S607 - util-linux is everywhere
            check=False,
            stderr=subprocess.DEVNULL,  # the process has ended
            user=owner.st_uid,
            group=owner.st_gid,
            extra_groups=[],
        )


def with_connections_to(port: int, pids: Iterable[int]) -> list[int]:
    """Those of the processes that have a TCP connection to a port on 127.0.0.1."""
    sockets = set()
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[2] == f"0100007F:{port:04X}":
            sockets.add(f"socket:[{fields[9]}]")
    return [pid for pid in pids if sockets & _descriptors(pid)]


def _descriptors(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(str(descriptor.readlink()))
    return found


@asynccontextmanager
async def traffic(played: Round, *, endpoints: int = 2, least: int = 3) -> AsyncIterator[None]:
    """Events that keep coming, to receivers that take a moment, for as long as the block lasts.

    Args:
        played: the round.
        endpoints: to how many each event goes.
        least: how many requests are in flight when the block begins.
    """
    for n in range(endpoints):
        await played.endpoint(f"/{n}")
    over = asyncio.Event()

    async def answer(_receipt: Receipt) -> int:
        await asyncio.sleep(played.rng.uniform(0.02, 0.4))
        return 204

    async def come() -> None:
        while not over.is_set():
            await played.post(played.rng.randint(1, 6))
            await asyncio.sleep(played.rng.uniform(0, 0.05))

    played.behave(answer)
    coming = asyncio.create_task(come())
    try:
        await in_flight(played, least)
        yield
    except BaseException:
        coming.cancel()
        raise
    over.set()
    await coming


async def in_flight(played: Round, least: int) -> None:
    """Wait until so many requests are."""
    await played.until(lambda: len(played.open()) >= least, f"{least} requests in flight")


async def pause(played: Round, most_s: float, least_s: float = 0.0) -> None:
    """Let a moment pass, by chance."""
    await asyncio.sleep(played.rng.uniform(least_s, most_s))
