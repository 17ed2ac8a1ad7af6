"""A clock of the machine that is wrong: the time of day of this process, off by what a file says.

Owns what `time` and `datetime` tell to everything that is imported afterwards. What goes by a monotonic clock goes on
as it is, and so does C code that asks the system itself (OpenSSL on a certificate's dates, for example). Standard
library only.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

FOLDER = "FORBEAR_TORTURE"
"""The environment variable that names the folder of the files by which a round reaches into the functions."""
FILE = "clocks.json"
"""The name of the file: seconds by the name of the function. Read at each look at the clock, so a clock may jump."""


def offsets(folder: Path) -> dict[str, float]:
    """By how many seconds the clocks of the functions are ahead; empty: none is wrong."""
    try:
        return dict(json.loads((folder / FILE).read_text()))
    except FileNotFoundError:
        return {}


def set_clocks(folder: Path, seconds: dict[str, float]) -> None:
    """Have these functions' clocks be ahead by so many seconds (behind: below 0), and those of the others right."""
    written = folder / f"{FILE}.new"
    written.write_text(json.dumps(seconds))
    written.replace(folder / FILE)


def install(offset_s: Callable[[], float]) -> SimpleNamespace:
    """Have this process's clock be wrong. Only before anything else is imported that takes `datetime` by its name.

    Args:
        offset_s: by how many seconds it is ahead, asked for at each look.

    Returns:
        What stands in for the module `time` where the true time is needed.
    """
    true = SimpleNamespace(**vars(time))
    time.time = lambda: true.time() + offset_s()
    time.time_ns = lambda: true.time_ns() + int(offset_s() * 1e9)
    dt.datetime = _wrong(dt.datetime)  # type: ignore[misc] # that is the point
    return true


def _wrong(true: type[dt.datetime]) -> Any:
    """A class that stands in for `datetime`: its objects are true ones, only `now` and its like are wrong."""

    class Meta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, true)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, true)

    class Wrong(true, metaclass=Meta):  # type: ignore[valid-type, misc] # a class that is known only here
        def __new__(cls, *arguments: Any, **more: Any) -> Any:
            return true(*arguments, **more)

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
            return true.fromtimestamp(time.time(), tz)

        @classmethod
        def utcnow(cls) -> dt.datetime:
            return true.fromtimestamp(time.time(), dt.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> dt.datetime:
            return true.fromtimestamp(time.time())

    Wrong.__name__, Wrong.__qualname__, Wrong.__module__ = true.__name__, true.__qualname__, true.__module__
    return Wrong
