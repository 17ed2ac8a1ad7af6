"""Spans of time as people type and read them: `90s`, `1d12h`, `0.25s`. The same form both ways."""

from __future__ import annotations

import re

from infra.cli.errors import UsageError

_SECONDS = {"w": 604_800, "d": 86_400, "h": 3_600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,6})?[smhdw])+")
_PART = re.compile(r"([0-9.]+)([smhdw])")


def read(option: str, text: str) -> float:
    """Read a duration.

    Args:
        option: Where it was typed, for the error.
        text: What was typed.

    Returns:
        Seconds.

    Raises:
        UsageError: The text is no duration.
    """
    text = text.strip().lower()
    if not _DURATION.fullmatch(text):
        raise UsageError(f"{option}: {text!r} is no duration: write 90s, 30m, 2h, 1d12h or 0.25s")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def written(seconds: float) -> str:
    """Write a duration of 0 or more seconds, as exactly as one reads it.

    From a minute on that is to the second, from ten seconds on to a tenth, below to a hundredth.
    """
    rounded = round(seconds, 2 if seconds < 9.995 else 1 if seconds < 59.95 else None)
    if rounded < 60:
        return f"{rounded:g}s"
    rest = int(rounded)
    parts = []
    for unit in "dhms":
        number, rest = divmod(rest, _SECONDS[unit])
        parts += [f"{number}{unit}"] if number else []
    return "".join(parts)
