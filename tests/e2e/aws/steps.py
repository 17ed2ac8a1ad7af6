"""How long the steps of a long test took."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Steps:
    """Times steps, and prints what it timed and was told."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._began = time.monotonic()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """A step: what happens inside."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._lines.append(f"{time.monotonic() - began:6.1f} s  {name}")

    def tell(self, line: str) -> None:
        """Something to print between the steps."""
        self._lines.append(f"          {line}")

    def print(self) -> None:
        """Print everything, and the whole time."""
        total = f"{time.monotonic() - self._began:6.1f} s  in all"
        sys.stdout.write("\n".join(("", *self._lines, total, "")))
