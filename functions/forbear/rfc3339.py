"""Times as text: RFC 3339.

Knows no clock.
"""

import re
from datetime import UTC, datetime
from typing import Final

# RFC 3339 section 5.6, date-time. fromisoformat alone would take far more (ISO 8601), times without an offset included.
_DATE_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,12})?(?:[Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_SHOWN_CHARS: Final = 60


class InvalidTime(ValueError):
    """A text that is not an RFC 3339 time; the message says what is expected."""


def parse(text: str) -> datetime:
    """Read a time.

    Args:
        text: An RFC 3339 date-time; the offset is part of it. Anything below a microsecond is cut off.

    Returns:
        The time in UTC. Its year is one of 1970 to 9998, so that every time zone and every reader can show it.

    Raises:
        InvalidTime: It is none, or of another year. Leap seconds (23:59:60) have no place in our clocks either.
    """
    try:
        if _DATE_TIME.fullmatch(text):
            at = datetime.fromisoformat(text.upper()).astimezone(UTC)
            if 1970 <= at.year <= 9998:
                return at
    except (ValueError, OverflowError):
        pass
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
    raise InvalidTime(
        f"a time is written as RFC 3339 says, with its offset, such as 2030-01-31T09:30:00Z; got {shown!r}"
    )
