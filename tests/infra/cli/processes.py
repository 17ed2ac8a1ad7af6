"""The command in a process of its own, where that matters, and `forbear listen` with what it prints."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

PATIENCE_S = 60.0


def start(*arguments: str | bytes, script: str = "from infra.cli.main import run; run()") -> subprocess.Popen[bytes]:
    """Start the command with pipes for all three streams."""
    command = (sys.executable, "-c", script, *arguments)
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)


def finish(process: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Wait for its end; gives the exit code, and what it wrote to standard output and standard error."""
    with process:
        out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out.decode(), err.decode()


class Listening:
    """A running `forbear listen`, ready to receive."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def line(self) -> str:
        """The next line that it prints, waited for; empty when it has ended."""
        return self._lines.get(timeout=PATIENCE_S)

    def document(self) -> Any:
        """The next line as JSON."""
        return json.loads(self.line())

    def interrupt(self, number: int) -> int:
        """Send a signal; gives the exit code."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)

    def close(self) -> None:
        with self.process:
            self.process.kill()
            self._reader.join()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self._lines.put(line.decode().rstrip("\n"))
        self._lines.put("")


@contextmanager
def listening(*options: str, as_json: bool = False) -> Iterator[Listening]:
    """Start `forbear listen` on any free port, and end it."""
    listener = Listening(start(*(["--json"] if as_json else []), "listen", "--port", "0", *options))
    try:
        yield listener
    finally:
        listener.close()
