"""How much CPU time PostgreSQL has taken, as /proc tells it (proc(5); Linux)."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


def server_cpu_s(postmaster: int) -> float:
    """Seconds of CPU time of a server so far: backends, those that have ended included, and all that it runs beside.

    Args:
        postmaster: its process id.
    """
    ticks = sum(_times(postmaster))
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            with suppress(OSError, ValueError):  # it has ended meanwhile
                if _fields(int(process.name))[1] == str(postmaster):
                    ticks += sum(_times(int(process.name))[:2])
    return ticks / _TICKS_A_SECOND


def _times(pid: int) -> tuple[int, int, int, int]:
    """Its own, in user and kernel mode, and those of its ended children."""
    user, system, childrens_user, childrens_system = map(int, _fields(pid)[11:15])
    return user, system, childrens_user, childrens_system


def _fields(pid: int) -> list[str]:
    """The fields after the name, which may hold spaces: the state is the first, the parent the second."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
