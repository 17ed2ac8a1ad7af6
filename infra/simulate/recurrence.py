"""The storm by arithmetic: what a fixed retry interval without any restraint offers to a receiver that is down."""

from __future__ import annotations


def storm_attempts(arrivals: int, minute: int, *, retries_per_minute: int = 2, outage_minutes: int = 10) -> int:
    """Attempts in a minute of an outage, and in the first one after it.

    Each minute's arrivals fail and wait on; each that waits is tried again `retries_per_minute` times. So in minute m
    there are `arrivals + retries_per_minute * backlog(m - 1)` attempts, and the backlog grows by the arrivals until the
    outage ends. It says nothing about later minutes, when the receiver has worked some of it off.

    Args:
        arrivals: Events a minute.
        minute: Which minute, from 1.
        retries_per_minute: How often each waiting delivery is tried again in a minute: 2 with a fixed 30 s.
        outage_minutes: How long the outage lasts, from minute 1 on.

    Raises:
        ValueError: The minute is not one that the recurrence speaks of.
    """
    if not 1 <= minute <= outage_minutes + 1:
        raise ValueError(f"the recurrence holds for minutes 1 to {outage_minutes + 1}, not for minute {minute}")
    backlog = arrivals * (minute - 1)
    return arrivals + retries_per_minute * backlog
