"""Times as people type them: RFC 3339, or a distance from now. Knows no clock: now is an argument."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from forbear import rfc3339
from infra.cli.errors import UsageError

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_DISTANCE = re.compile(r"(?:in\s+)?((?:[0-9]{1,6}[smhdw])+)(?:\s+ago)?")
_PART = re.compile(r"([0-9]+)([smhdw])")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def past(text: str, now: datetime) -> str:
    """Read a time that is reckoned back from now: `2h`, `2h ago`, `1d12h`, a day, or an RFC 3339 time.

    Args:
        text: What was typed.
        now: The present, aware.

    Returns:
        The time by RFC 3339, in UTC, to the millisecond.

    Raises:
        UsageError: The text is no time.
    """
    return _written(_read(text, now, sign=-1))


def future(text: str, now: datetime) -> str:
    """Read a time that is reckoned on from now: `2h`, `in 2h`, a day, or an RFC 3339 time. Otherwise like `past`."""
    return _written(_read(text, now, sign=1))


def _read(text: str, now: datetime, sign: int) -> datetime:
    text = text.strip()
    if text == "now":
        return now
    distance = _DISTANCE.fullmatch(text.lower())
    try:
        if distance:
            parts = {_UNITS[unit]: int(number) for number, unit in _PART.findall(distance[1])}
            return now + sign * timedelta(**parts)
        if _DAY.fullmatch(text):
            day = date.fromisoformat(text)
            return datetime(day.year, day.month, day.day, tzinfo=UTC)
        return rfc3339.parse(text)
    except (ValueError, OverflowError):
        raise UsageError(
            f"{text!r} is no time: write a distance such as 90s, 30m, 2h or 1d12h, a day such as 2030-01-31 (UTC), "
            "or an RFC 3339 time such as 2030-01-31T09:30:00Z"
        ) from None


def _written(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
