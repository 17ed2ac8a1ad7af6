"""What a schedule means before anything fails: its attempts one by one, and when it gives up.

Owns the table of a schedule, both ends of it (on paper and in expectation), and the way back from a time to give up
to a number of attempts. Times count from the first attempt, as if attempts took no time, no answer carried a
`Retry-After`, and no breaker, budget or pause held anything back. Knows no output.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

from forbear.policy.model import Policy
from forbear.policy.schedule import Exponential, Schedule, gap_s, spread_s

MOST_ROWS = 10_000
"""How long a table may be. So many retries are added up one by one; those behind them, of which there may be billions,
in runs of gaps that differ by a thousandth at most, which leaves an error under a millionth."""

MOST_RETRIES = 1_000_000
"""How many retries a schedule may have."""

_ALIKE = 1.001
_EVEN = 2e-7  # how far a delay within a run may be from a straight line; exponential growth by _ALIKE stays below

type _Pace = Callable[[int], float | None]
"""How long is waited before the n-th retry, from 1, in seconds; None when there is none. Behind `MOST_ROWS` it never
shrinks, for what a schedule lists is shorter than that."""


@dataclass(frozen=True, slots=True)
class PlannedAttempt:
    """A row of the table; all times in seconds.

    Attributes:
        attempt: Which attempt, from 1.
        gap_s: The gap before it, before jitter; 0 for the first.
        elapsed_s: When it begins on paper, which is without jitter: the sum of the gaps so far.
        earliest_s: When it begins if every jitter so far was the least possible one.
        expected_s: When it begins on average: the sum of the mean delays; no later than the window ends.
        latest_s: When it begins if every jitter so far was the greatest possible one; no later than the window ends.
    """

    attempt: int
    gap_s: float
    elapsed_s: float
    earliest_s: float
    expected_s: float
    latest_s: float


@dataclass(frozen=True, slots=True)
class Ending:
    """With which attempt a delivery is given up, and how many seconds after the first one that attempt begins."""

    attempts: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a schedule means.

    Attributes:
        rows: The attempts from the first on, as many as were asked for.
        on_paper: The end without jitter.
        expected: The end by the mean delays: as on paper, with each gap replaced by what jitter makes of it on average.
            If the retries end the schedule, this is the expected value. If the window does, jitter also decides how
            many attempts fit, and this is an estimate: the expected time of the last attempt differs from it by less
            than the longest delay.
    """

    rows: tuple[PlannedAttempt, ...]
    on_paper: Ending
    expected: Ending

    @property
    def more(self) -> int:
        """How many attempts on paper follow the last row."""
        return self.on_paper.attempts - len(self.rows)


def plan(policy: Policy | Schedule, limit: int = MOST_ROWS) -> Plan:
    """The table of a schedule, and when it gives up.

    An attempt is in the plan while retries are left and its time on paper is within the window, whichever ends first.
    The work is bounded, however many attempts there are.

    Args:
        policy: A policy, of which only the schedule counts, or a schedule.
        limit: How many rows at most, from 1 to `MOST_ROWS`.

    Raises:
        ValueError: The limit is out of its bounds.
    """
    if not 1 <= limit <= MOST_ROWS:
        raise ValueError(f"a plan has from 1 to {MOST_ROWS} rows, not {limit}")
    schedule = policy.schedule if isinstance(policy, Policy) else policy
    window_s = math.inf if schedule.window_s is None else schedule.window_s

    def on_paper(n: int) -> float | None:
        return gap_s(schedule, n)

    def expected(n: int) -> float | None:
        gap = gap_s(schedule, n)
        if gap is None:
            return None
        earliest_s, width_s = spread_s(schedule, gap)
        return earliest_s + width_s / 2

    end = _ending(on_paper, window_s)
    return Plan(_rows(schedule, min(limit, end.attempts), window_s), end, _ending(expected, window_s))


def derive(give_up_s: float, first_s: float, multiplier: float, cap_s: float) -> int:
    """The fewest attempts whose last one begins no earlier than a time to give up, before jitter.

    Args:
        give_up_s: That time, in seconds after the first attempt, above 0.
        first_s: The gap before the first retry, in seconds.
        multiplier: By what each gap is multiplied to give the next, at least 1.
        cap_s: The longest gap, in seconds, not below `first_s`.

    Returns:
        How many attempts, the first one included; the exponential schedule has one retry fewer.

    Raises:
        ValueError: No exponential schedule has such gaps (then it is pydantic's `ValidationError`), the time is not
            above 0, or `MOST_RETRIES` retries do not reach it.
    """
    if not give_up_s > 0:  # so written, it refuses what is not a number as well
        raise ValueError(f"the time to give up is {give_up_s:g} seconds: it must be above 0")
    longest = Exponential(base_s=first_s, multiplier=multiplier, cap_s=cap_s, retries=MOST_RETRIES)
    # The last attempt that comes too early, and one more.
    early = _ending(lambda n: gap_s(longest, n), math.nextafter(give_up_s, 0))
    if early.attempts > MOST_RETRIES:
        raise ValueError(
            f"even {MOST_RETRIES} retries end after {early.elapsed_s:.15g} seconds, before {give_up_s:.15g}: "
            "lower the time to give up, or raise the first gap, the multiplier or the cap"
        )
    return early.attempts + 1


def _rows(schedule: Schedule, attempts: int, window_s: float) -> tuple[PlannedAttempt, ...]:
    rows = [PlannedAttempt(1, 0.0, 0.0, 0.0, 0.0, 0.0)]
    elapsed_s = earliest_s = expected_s = latest_s = 0.0
    for n in range(1, attempts):
        gap = gap_s(schedule, n) or 0.0  # within the retries there is one
        least_s, width_s = spread_s(schedule, gap)
        elapsed_s += gap
        earliest_s += least_s
        expected_s += least_s + width_s / 2
        latest_s += least_s + width_s
        rows.append(
            PlannedAttempt(n + 1, gap, elapsed_s, earliest_s, min(expected_s, window_s), min(latest_s, window_s))
        )
    return tuple(rows)


def _ending(pace: _Pace, window_s: float) -> Ending:
    """The last attempt that begins within a window, if the delays are exactly those of a pace."""
    retries, elapsed_s = 0, 0.0
    while True:
        delay_s = pace(retries + 1)
        if delay_s is None or elapsed_s + delay_s > window_s:
            return Ending(retries + 1, elapsed_s)
        if retries < MOST_ROWS:
            retries, elapsed_s = retries + 1, elapsed_s + delay_s
        else:
            retries, elapsed_s = _after_run(pace, window_s, retries, elapsed_s)


def _after_run(pace: _Pace, window_s: float, retries: int, elapsed_s: float) -> tuple[int, float]:
    """The retries and the time elapsed after the longest run of similar delays that fits; the next delay does fit."""
    first_s = pace(retries + 1) or 0.0

    def after(run: int) -> float | None:
        """When such a run ends; None if it is too long."""
        last_s, between = pace(retries + run), (run + 1) // 2
        if last_s is None or last_s > first_s * _ALIKE:
            return None
        # Growth that stops on the way, at a cap, ends a run: the mean of its ends would be wrong for it.
        even_s = first_s + (last_s - first_s) * (between - 1) / max(run - 1, 1)
        if abs((pace(retries + between) or 0.0) - even_s) > first_s * _EVEN:
            return None
        end_s = elapsed_s + run * (first_s + last_s) / 2
        return end_s if end_s <= window_s else None

    run = 1
    while after(2 * run) is not None:
        run *= 2
    run += bisect_left(range(run + 1, 2 * run), True, key=lambda longer: after(longer) is None)
    end_s = after(run)
    return (retries + 1, elapsed_s + first_s) if end_s is None else (retries + run, end_s)
