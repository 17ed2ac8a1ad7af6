"""When events arrive: a Poisson process in virtual time. Pure; the source of randomness is an argument."""

from __future__ import annotations

from array import array
from random import Random


def arrivals(rate_per_s: float, duration_s: float, rng: Random) -> array[float]:
    """The times of arrival, in seconds from the start, in order and to the microsecond.

    Args:
        rate_per_s: How many a second on average, above 0.
        duration_s: For how long; the last one is before that.
        rng: Drawn from once an arrival, and once more.
    """
    times = array("d")
    at = rng.expovariate(rate_per_s)
    while at < duration_s:
        times.append(round(at, 6))
        at += rng.expovariate(rate_per_s)
    return times
