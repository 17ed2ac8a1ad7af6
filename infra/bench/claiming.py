"""The claimer function in a process of its own: functions/claimer.py's handler, called as Lambda calls it.

Owns the process and what it tells of itself: how long an invocation took, its CPU time, the most memory that the
process has had. Knows no database and no receiver.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from infra.torture.footprint import resident_kib

START_S = 60.0


@dataclass(frozen=True, slots=True)
class Invocation:
    """One run of the handler.

    Attributes:
        tally: what it returned.
        began, ended: when, by `time.monotonic`.
        cpu_s: the process's CPU time meanwhile.
    """

    tally: dict[str, Any]
    began: float
    ended: float
    cpu_s: float

    @property
    def took_s(self) -> float:
        """From its begin to its end."""
        return self.ended - self.began


class Claimer:
    """An execution environment of the claimer's, one invocation at a time."""

    def __init__(self, pid: int, pipe: Connection) -> None:
        self.pid = pid
        self._pipe = pipe

    def invoke(self, time_left_s: float = 900.0, *, reason: str = "wake") -> None:
        """Have the handler run; `ended` waits for it."""
        self._pipe.send((reason, time_left_s))

    def ended(self) -> Invocation:
        """Wait until the handler has returned.

        Raises:
            EOFError: the process is gone.
        """
        return Invocation(*self._pipe.recv())

    def stop(self) -> Invocation:
        """Tell the running handler that time is up, as Lambda does by SIGTERM, and wait until it has returned."""
        os.kill(self.pid, signal.SIGTERM)
        return self.ended()

    def peak_mib(self) -> float:
        """The most memory that the process has had in hand (Linux)."""
        return resident_kib(self.pid, peak=True) / 1024


@contextmanager
def claimer(environment: Mapping[str, str]) -> Iterator[Claimer]:
    """A claimer's process that has imported its handler, for as long as the block lasts.

    Args:
        environment: its settings, as environment variables.

    Raises:
        RuntimeError: it did not come up.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(dict(environment), theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_S) or process.pid is None:
            raise RuntimeError("a claimer's process did not come up")
        ours.recv()
        yield Claimer(process.pid, ours)
    finally:
        ours.close()  # it ends when it is asked for nothing more
        process.join(5)
        process.kill()
        process.join()


class _Context:
    """What the handler asks of AWS's context."""

    def __init__(self, time_left_s: float) -> None:
        self._end = time.monotonic() + time_left_s

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self._end - time.monotonic()) * 1000))


def _run(environment: dict[str, str], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the command's, which ends this process
    os.environ.update(environment)
    # What it logs belongs to nobody here; standard output is the bench's.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    import claimer as function  # noqa: PLC0415 - it reads its settings once, and only this process has them

    pipe.send("ready")
    while True:
        try:
            reason, time_left_s = pipe.recv()
        except EOFError:
            return
        began, cpu_s = time.monotonic(), time.process_time()
        tally = function.handler({"forbear": reason}, _Context(time_left_s))
        pipe.send((tally, began, time.monotonic(), time.process_time() - cpu_s))
