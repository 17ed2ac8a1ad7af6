"""Reading `Retry-After`: how long a receiver asks to be left alone.

RFC 9110 section 10.2.3 gives the field (`delay-seconds` or an HTTP-date), section 5.6.7 the three forms of a date.
Whatever else a receiver writes is ignored, and nothing it writes raises or takes long. Whether the hint is obeyed is
not decided here.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime

# More digits than the seconds between any two HTTP-dates have (years 0001 to 9999) are no wait that anybody means.
_MOST_DIGITS = 12
# More places than a program prints that writes the whole of a floating-point number.
_MOST_DECIMALS = 24

_SECONDS = re.compile(r"([0-9]++)(?:\.([0-9]++))?")  # possessive: nothing is looked at twice, however long
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_DAY_NAME = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_LONG_DAY_NAME = r"(?:Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday)"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_TIME = r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
# The grammar of RFC 9110 section 5.6.7 as it stands there, case-sensitive. A day name that is not the date's is let
# pass: the date is clear without it.
_DATES = (
    re.compile(rf"{_DAY_NAME}, (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME} GMT"),  # IMF-fixdate
    re.compile(rf"{_LONG_DAY_NAME}, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME} GMT"),  # RFC 850
    re.compile(rf"{_DAY_NAME} {_MONTH} (?P<day>[0-9]{{2}}| [0-9]) {_TIME} (?P<year>[0-9]{{4}})"),  # asctime, in UTC
)


def parse(values: Sequence[str], received_at: datetime, *, fractions: bool = False) -> float | None:
    """How long a receiver asks to wait, in seconds from the arrival of its answer.

    - `120` and `  120  ` are 120 seconds; leading zeros are fine.
    - `0.503` is that part of a second where `fractions` are accepted, with digits on both sides of the point and up to
      24 behind it; elsewhere it gives None.
    - A date (IMF-fixdate, RFC 850, asctime) is the time until then. A date in the past gives None: it asks for nothing.
    - Several headers, even equal ones, and a list in one header (`120, 60`) give None: the field is no list (RFC 9110
      sections 5.3 and 10.2.3), and nobody can say which one is meant.
    - More than 12 significant digits of whole seconds give None rather than the longest wait: such a number is a fault,
      not a wish.
    - Anything else gives None: signs, exponents, units, other scripts' digits, words, nothing.

    Args:
        values: The values of every `Retry-After` header of the answer, in order, decoded as latin-1.
        received_at: When the answer arrived, timezone-aware, by the database's clock.
        fractions: Whether fractions of a second are read. RFC 9110 knows none, some servers send them.

    Returns:
        Seconds, 0 or more and finite, before any cap; None when there is no hint that can be understood. Never raises
        for anything in `values`.
    """
    if len(values) != 1:
        return None
    text = values[0].strip(" \t")  # optional white space of RFC 9110 section 5.6.3; str.strip() would take far more
    if match := _SECONDS.fullmatch(text):
        return _delay_seconds(match[1], match[2]) if fractions or match[2] is None else None
    for form in _DATES:
        if match := form.fullmatch(text):
            return _seconds_until(match, received_at.astimezone(UTC))
    return None


def _delay_seconds(whole: str, decimals: str | None) -> float | None:
    """Digits before a decimal point, and behind it if there is one, as seconds; None for too many of them."""
    significant = whole.lstrip("0") or "0"
    if len(significant) > _MOST_DIGITS or len(decimals or "") > _MOST_DECIMALS:
        return None
    return float(f"{significant}.{decimals or '0'}")


def _seconds_until(date: re.Match[str], received_at: datetime) -> float | None:
    """The time from `received_at` (UTC) to an HTTP-date; None when that is past or no such date exists."""
    month = _MONTHS.index(date["month"]) + 1
    day, hour, minute, second = int(date["day"]), int(date["hour"]), int(date["minute"]), int(date["second"])
    year = int(date["year"])
    if len(date["year"]) == 2:
        year = _full_year((year, month, day, hour, minute, second), received_at)
    if second > 60:
        return None
    try:
        at = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    leap_s = second - at.second  # datetime has no second 60, the grammar has: it is the one after 59
    wait_s = (at - received_at).total_seconds() + leap_s
    return wait_s if wait_s >= 0 else None


def _full_year(stamp: tuple[int, int, int, int, int, int], received_at: datetime) -> int:
    """The year meant by a two-digit one: the latest that puts the stamp no more than 50 years into the future.

    RFC 9110 section 5.6.7: what "appears to be more than 50 years in the future" is "the most recent year in the past
    that had the same last two digits". Looking ahead across the end of a century makes `01-Jan-00` received in 1999 the
    year 2000.

    Args:
        stamp: Two-digit year, month, day, hour, minute, second.
        received_at: When it was received, UTC.
    """
    ahead = received_at.year + (stamp[0] - received_at.year) % 100
    in_fifty_years = (received_at.year + 50, *received_at.timetuple()[1:6])
    return ahead - 100 if (ahead, *stamp[1:]) > in_fifty_years else ahead
