"""What a process takes of the machine, as /proc tells it (proc(5); Linux)."""

from __future__ import annotations

import re
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path


def resident_kib(pid: int, *, peak: bool = False) -> int:
    """The memory that a process has in hand, in KiB; or the most that it had since `forget_peak`.

    Raises:
        OSError: there is no such process.
    """
    name = "VmHWM" if peak else "VmRSS"
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) if found else 0


def forget_peak(pid: int) -> None:
    """Count the peak from now on.

    Raises:
        OSError: there is no such process.
    """
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def connections_to(pid: int, ports: Collection[int]) -> int:
    """How many TCP connections over IPv4 a process has, in whatever state, whose other end has one of these ports."""
    sockets = set()
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if int(fields[2].rpartition(":")[2], 16) in ports and fields[9] != "0":
            sockets.add(f"socket:[{fields[9]}]")
    held = 0
    with suppress(OSError):  # it has ended meanwhile
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                held += str(descriptor.readlink()) in sockets
    return held
