"""Which process a connection belongs to, as /proc tells it (proc(5); Linux)."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def owner_of(local_port: int, remote_port: int, candidates: Iterable[int]) -> int:
    """The process among the candidates that has a TCP connection on 127.0.0.1 between these two ports.

    Args:
        local_port: the process's own end.
        remote_port: the other end.
        candidates: process ids.

    Raises:
        LookupError: none of them has.
    """
    inode = _inode(local_port, remote_port)
    for pid in candidates:
        with suppress(OSError):  # it has ended meanwhile
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if str(descriptor.readlink()) == f"socket:[{inode}]":
                        return pid
    raise LookupError(f"no process of {list(candidates)} has the connection from port {local_port}")


def _inode(local_port: int, remote_port: int) -> str:
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        local, remote = (int(end.rpartition(":")[2], 16) for end in fields[1:3])
        if (local, remote) == (local_port, remote_port) and fields[9] != "0":
            return fields[9]
    raise LookupError(f"there is no connection from port {local_port} to {remote_port}")
