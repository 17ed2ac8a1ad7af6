"""How long to wait before the next attempt: the gaps of a schedule and the jitter that spreads them.

Knows nothing of answers, windows or hints; `verdict.py` joins these. One branch a kind of schedule and of jitter.
"""

from random import Random

from forbear.policy.model import Schedule


def grown_s(base_s: float, multiplier: float, steps: int, cap_s: float) -> float:
    """Capped exponential growth, `min(cap_s, base_s * multiplier ** steps)`, in constant time and without overflow.

    Args:
        base_s: The value after no steps, in seconds, above 0.
        multiplier: The factor of one step, at least 1.
        steps: How many steps, 0 or more; a billion is as legal as one.
        cap_s: What the result never exceeds, in seconds.
    """
    try:
        grown = base_s * multiplier**steps
    except OverflowError:  # a float power raises where a float product would give infinity
        return cap_s
    return min(cap_s, grown)


def gap_s(schedule: Schedule, n: int) -> float | None:
    """The gap before the n-th retry, in seconds and before jitter.

    Args:
        schedule: The schedule; its `window_s` is not looked at here.
        n: Which retry, from 1: `n = 1` is the gap between the first attempt and the second.

    Returns:
        Seconds, never over the schedule's cap and never less than for n - 1; None when the retries are used up.

    Raises:
        ValueError: `n` is below 1.
    """
    if n < 1:
        raise ValueError(f"there is no gap before attempt {n + 1}: n counts retries, from 1")
    if schedule.retries is not None and n > schedule.retries:
        return None
    return grown_s(schedule.base_s, schedule.multiplier, n - 1, schedule.cap_s)


def jittered_s(schedule: Schedule, gap: float, rng: Random, floor_s: float = 0.0) -> float:
    """A gap after jitter, in seconds, never below a floor.

    A jitter is an earliest delay and a width over which delays are spread evenly above it. A floor lifts the earliest
    delay and leaves the width, so that deliveries which were all told to wait 120 seconds do not all come back in the
    same second.

    `full` is the "Full Jitter" of "Exponential Backoff And Jitter" (AWS Architecture Blog): uniform from 0 to the gap.

    Args:
        schedule: Says which jitter.
        gap: The gap before jitter, in seconds, 0 or more.
        rng: The source of randomness; drawn from once.
        floor_s: The earliest allowed delay, in seconds.
    """
    match schedule.jitter:
        case "full":
            earliest_s, width_s = 0.0, gap
        case "none":
            earliest_s, width_s = gap, 0.0
    return max(earliest_s, floor_s) + rng.uniform(0.0, width_s)
