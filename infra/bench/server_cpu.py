"""The CPU time of PostgreSQL's processes, as /proc tells it (proc(5); Linux)."""

from __future__ import annotations

import os
from pathlib import Path

from infra.local.postgres import EmbeddedPostgres

# In /proc/<pid>/stat, counted from the field behind the name in parentheses, which is the third.
_PARENT, _OWN, _GONE = 1, slice(11, 13), slice(13, 15)


def server_cpu_s(server: EmbeddedPostgres) -> float | None:
    """Seconds of CPU that the server's processes have used since it started, ended ones included; None: not known."""
    if not Path("/proc/self/stat").exists():
        return None
    postmaster = server.pid
    own = _fields(postmaster)
    if own is None:
        return None
    ticks = sum(map(int, (*own[_OWN], *own[_GONE])))
    for process in Path("/proc").glob("[0-9]*"):
        fields = _fields(int(process.name))
        if fields is not None and int(fields[_PARENT]) == postmaster:
            ticks += sum(map(int, fields[_OWN]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _fields(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:  # it has ended
        return None
