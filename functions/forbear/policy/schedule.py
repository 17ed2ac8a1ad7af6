"""The schedule of a policy: its kinds, how it ends, the gaps before its retries and the jitter that spreads them.

Owns the values (names, units, bounds, defaults) and what they give for the n-th retry. Knows nothing of answers, of
windows that run or of hints; `verdict.py` joins these. One branch a kind of schedule and of jitter.
"""

from random import Random
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from forbear.policy.part import DAY_S, YEAR_S, Part


class FullJitter(Part):
    """Evenly from 0 to the gap."""

    kind: Literal["full"] = "full"


class EqualJitter(Part):
    """Evenly over the upper half of the gap."""

    kind: Literal["equal"] = "equal"


class ProportionalJitter(Part):
    """Evenly from `ratio` below the gap to `ratio` above it."""

    kind: Literal["proportional"] = "proportional"
    ratio: float = Field(gt=0, le=1, description="The share of the gap: 0.2 is 20 % to either side.")


class AdditiveJitter(Part):
    """The gap and on top, evenly, up to `ratio` of it; that bound is held between `min_s` and `max_s`."""

    kind: Literal["additive"] = "additive"
    ratio: float = Field(ge=0, le=10, description="The share of the gap: 0.1 is up to 10 % more.")
    min_s: float = Field(default=0.0, ge=0, le=DAY_S, description="The bound is no less than this, in seconds.")
    max_s: float = Field(default=DAY_S, ge=0, le=DAY_S, description="The bound is no more than this, in seconds.")

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.max_s < self.min_s:
            raise ValueError(f"max_s ({self.max_s:g}) is below min_s ({self.min_s:g}): raise max_s or lower min_s")
        return self


class NoJitter(Part):
    """The gap as it is."""

    kind: Literal["none"] = "none"


Jitter = Annotated[
    FullJitter | EqualJitter | ProportionalJitter | AdditiveJitter | NoJitter, Field(discriminator="kind")
]
Gap = Annotated[float, Field(ge=0, le=YEAR_S)]
Gaps = Annotated[tuple[Gap, ...], Field(strict=False, max_length=100)]


class _Schedule(Part):
    """How every schedule ends and is spread."""

    retries: int | None = Field(
        default=None,
        ge=0,
        le=1_000_000,
        description="How many attempts may follow the first one: n retries are n + 1 attempts. Null sets no limit.",
    )
    window_s: float | None = Field(
        default=None,
        gt=0,
        le=YEAR_S,
        description="How long after the first attempt the last one may begin, in seconds; time during which the "
        "endpoint was paused or disabled does not count. Null sets no limit. What comes first ends the schedule.",
    )
    jitter: Jitter = Field(
        default=EqualJitter(),
        description="How a gap is spread, so that deliveries which failed together do not come back together.",
    )

    def _must_end(self) -> None:
        if self.retries is None and self.window_s is None:
            raise ValueError("retries and window_s are both null, so the schedule would never end: set at least one")


class Exponential(_Schedule):
    """Gaps that grow by a factor up to a cap: before retry n, `min(cap_s, base_s * multiplier ** (n - 1))` seconds."""

    kind: Literal["exponential"] = "exponential"
    base_s: float = Field(
        ge=0.01, le=YEAR_S, description="The gap between the first attempt and the first retry, in seconds."
    )
    multiplier: float = Field(
        ge=1, le=100, description="By what each gap is multiplied to give the next; 1 is a fixed interval."
    )
    cap_s: float = Field(
        default=YEAR_S, ge=0.01, le=YEAR_S, description="The longest gap before jitter, in seconds; not below `base_s`."
    )

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.cap_s < self.base_s:
            raise ValueError(f"cap_s ({self.cap_s:g}) is below base_s ({self.base_s:g}): raise cap_s or lower base_s")
        self._must_end()
        return self


class Ladder(_Schedule):
    """Gaps that are listed. With none, there is one attempt only; a gap of 0 is a retry at once."""

    kind: Literal["ladder"] = "ladder"
    gaps_s: Gaps = Field(description="The gaps before the retries, in seconds.")
    repeat_last: bool = Field(default=False, description="Whether the last gap is repeated until the schedule ends.")

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.repeat_last:
            if not self.gaps_s or self.gaps_s[-1] < 0.01:
                raise ValueError("repeat_last needs a last gap of 0.01 seconds or more: add one to gaps_s")
            self._must_end()
        elif self.retries is not None and self.retries > len(self.gaps_s):
            raise ValueError(
                f"retries ({self.retries}) is more than the {len(self.gaps_s)} gaps: lower it, add gaps or repeat_last"
            )
        return self


class TwoPhase(_Schedule):
    """Gaps that are listed, and then a fixed slow interval."""

    kind: Literal["two_phase"] = "two_phase"
    fast_s: Gaps = Field(description="The gaps before the first retries, in seconds.")
    slow_s: float = Field(ge=0.01, le=YEAR_S, description="The gap before every further retry, in seconds.")

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        self._must_end()
        return self


Schedule = Annotated[Exponential | Ladder | TwoPhase, Field(discriminator="kind")]


# By this many steps every factor above 1 has overflowed, even the one next to 1.
_MOST_STEPS = 2**63


def grown_s(base_s: float, multiplier: float, steps: int, cap_s: float) -> float:
    """Capped exponential growth, `min(cap_s, base_s * multiplier ** steps)`, in constant time and without overflow.

    Args:
        base_s: The value after no steps, in seconds, above 0.
        multiplier: The factor of one step, at least 1.
        steps: How many steps, 0 or more; a billion is as legal as one.
        cap_s: What the result never exceeds, in seconds.
    """
    try:
        grown = base_s * multiplier ** min(steps, _MOST_STEPS)
    except OverflowError:  # a float power raises where a float product would give infinity
        return cap_s
    return min(cap_s, grown)


def gap_s(schedule: Schedule, n: int) -> float | None:
    """The nominal gap before the n-th retry: in seconds, before jitter, counted from the end of the attempt before.

    Args:
        schedule: The schedule; its `window_s` is not looked at here.
        n: Which retry, from 1: `n = 1` is the gap between the first attempt and the second. There is no upper limit.

    Returns:
        Seconds, 0 or more; None when the retries are used up. An exponential gap is never over the schedule's cap and
        never less than the one before.

    Raises:
        ValueError: `n` is below 1.
    """
    if n < 1:
        raise ValueError(f"there is no gap before attempt {n + 1}: n counts retries, from 1")
    if schedule.retries is not None and n > schedule.retries:
        return None
    match schedule:
        case Exponential():
            return grown_s(schedule.base_s, schedule.multiplier, n - 1, schedule.cap_s)
        case Ladder():
            if n <= len(schedule.gaps_s):
                return schedule.gaps_s[n - 1]
            return schedule.gaps_s[-1] if schedule.repeat_last else None
        case TwoPhase():
            return schedule.fast_s[n - 1] if n <= len(schedule.fast_s) else schedule.slow_s


def spread_s(schedule: Schedule, gap: float) -> tuple[float, float]:
    """What jitter makes of a gap: the earliest delay, and the width over which delays lie evenly above it.

    The mean delay is `earliest + width / 2`. A gap of 0 stays 0 under every jitter but an additive one, whose `min_s`
    holds for it too.

    `full` and `equal` are those of "Exponential Backoff And Jitter" (AWS Architecture Blog); `proportional` is gRPC's
    and Svix's, `additive` with its two bounds is Hook0's.

    Args:
        schedule: Says which jitter.
        gap: The gap before jitter, in seconds, 0 or more.

    Returns:
        The earliest delay and the width, in seconds, both 0 or more.
    """
    match schedule.jitter:
        case FullJitter():
            return 0.0, gap
        case EqualJitter():
            return gap / 2, gap / 2
        case ProportionalJitter(ratio=ratio):
            return gap * (1 - ratio), gap * 2 * ratio
        case AdditiveJitter(ratio=ratio, min_s=min_s, max_s=max_s):
            return gap, min(max(gap * ratio, min_s), max_s)
        case NoJitter():
            return gap, 0.0


def jittered_s(schedule: Schedule, gap: float, rng: Random, floor_s: float = 0.0) -> float:
    """A gap after jitter, in seconds: even over the width of `spread_s`, and never below a floor.

    A floor lifts the earliest delay and leaves the width, so that deliveries which were all told to wait 120 seconds do
    not all come back in the same second.

    Args:
        schedule: Says which jitter.
        gap: The gap before jitter, in seconds, 0 or more.
        rng: The source of randomness; drawn from once.
        floor_s: The earliest allowed delay, in seconds.
    """
    earliest_s, width_s = spread_s(schedule, gap)
    return max(earliest_s, floor_s) + rng.uniform(0.0, width_s)
