"""What a run was made on and with: the machine, the versions, and the settings that durability hangs on.

Owns finding these out. Linux tells all of it; elsewhere some is missing.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import psycopg

from forbear import __version__
from infra.bench.world import Scale, World

ROOT: Final = Path(__file__).resolve().parents[2]
_SETTINGS: Final = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "data_checksums",
    "shared_buffers",
    "max_wal_size",
)
_FLUSHES: Final = 200


@dataclass(frozen=True, slots=True)
class About:
    """What a run was.

    Attributes:
        at: when it began, RFC 3339 in UTC.
        commit: of the project, with "+" if files differ from it; None outside of a checkout.
        quick: as of `Scale`.
        repeats: as of `Scale`.
        receiver: its name.
        machine: cpu, cores, memory_gib, kernel, storage (the file system of the server's data) and flush_us (the median
            of an 8 KiB write with fdatasync there, in microseconds: what a commit costs at least).
        versions: of what runs, by name.
        settings: PostgreSQL's.
    """

    at: str
    commit: str | None
    quick: bool
    repeats: int
    receiver: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    settings: Mapping[str, str]

    @property
    def machine_name(self) -> str:
        """The machine in a few words; figures of two runs compare if it is the same."""
        return f"{self.machine['cpu']}, {self.machine['cores']} cores"


def about(world: World, scale: Scale) -> About:
    """Find out what a run in this world is."""
    with world.connect() as connection:
        settings = {name: _shown(connection, name) for name in _SETTINGS}
        postgresql = _shown(connection, "server_version")
    return About(
        at=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        commit=_commit(),
        quick=scale.quick,
        repeats=scale.repeats,
        receiver=world.receiver_name,
        machine={
            "cpu": _cpu(),
            "cores": os.process_cpu_count(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
            "kernel": f"{platform.system()} {platform.release()}",
            "storage": _file_system(world.folder),
            "flush_us": round(_flush_us(world.folder)),
        },
        versions={
            "forbear": __version__,
            "python": platform.python_version(),
            "postgresql": postgresql,
            "psycopg": psycopg.__version__,
            "uvloop": version("uvloop"),
            "httptools": version("httptools"),
        },
        settings=settings,
    )


def _shown(connection: psycopg.Connection[Any], setting: str) -> str:
    row = connection.execute("SELECT current_setting(%s)", (setting,)).fetchone()
    return str(row[0]) if row else ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _file_system(folder: Path) -> str:
    """The type of the file system that a folder is on (proc(5), mounts)."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return "unknown"
    within = [(mount[1], mount[2]) for mount in map(str.split, mounts) if folder.resolve().is_relative_to(mount[1])]
    return max(within, key=lambda mount: len(mount[0]), default=("", "unknown"))[1]


def _flush_us(folder: Path) -> float:
    """Microseconds until 8 KiB, written over earlier ones, are on the disk: the median of some."""
    took = []
    path = folder / "flushed"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for _ in range(_FLUSHES):
            began = time.perf_counter()
            os.pwrite(descriptor, b"x" * 8192, 0)
            os.fsync(descriptor) if platform.system() == "Darwin" else os.fdatasync(descriptor)
            took.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(took) * 1e6


def _commit() -> str | None:
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return f"{commit}+" if _git("status", "--porcelain") else commit
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)  # noqa: S607
    return done.stdout.strip()
