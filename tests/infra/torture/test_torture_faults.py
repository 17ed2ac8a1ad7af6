"""Faults that concern processes are brought about, and end."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.torture.faults import family, limited, standing_still, with_connections_to

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc and prlimit are Linux's")


@pytest.fixture
def child() -> Iterator[int]:
    """A process that waits."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process.pid
    process.kill()
    process.communicate()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(pid: int, states: str) -> None:
    deadline = time.monotonic() + 10
    while state(pid) not in states:
        assert time.monotonic() < deadline


def test_a_family_is_a_process_and_its_children(child: int) -> None:
    this, *children = family(int(Path("/proc/self").readlink().name))
    assert child in children
    assert family(child) == [child]
    assert this not in family(child)


def test_processes_stand_still_and_go_on(child: int) -> None:
    with standing_still([child]):
        wait_for(child, "T")
    wait_for(child, "RS")


def test_limits_are_set_and_taken_back(child: int) -> None:
    before = resource.prlimit(child, resource.RLIMIT_NOFILE)
    with limited([child], "nofile", 7):
        assert resource.prlimit(child, resource.RLIMIT_NOFILE) == (7, before[1])
    assert resource.prlimit(child, resource.RLIMIT_NOFILE) == before


def test_processes_that_have_gone_are_no_matter() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    with standing_still([process.pid]), limited([process.pid], "nofile", 7):
        assert with_connections_to(9, [process.pid]) == []


def test_whose_a_connection_is_can_be_told(child: int) -> None:
    this = int(Path("/proc/self").readlink().name)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert with_connections_to(port, [this]) == []
        with socket.create_connection(("127.0.0.1", port)):
            assert with_connections_to(port, [this, child]) == [this]
