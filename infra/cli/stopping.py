"""How commands that start a PostgreSQL of their own are stopped."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_by_any_signal() -> Iterator[None]:
    """Let a SIGTERM or a hang-up do what Ctrl-C does: end everything in order, the database server above all."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.default_int_handler) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
