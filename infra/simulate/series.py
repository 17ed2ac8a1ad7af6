"""What a simulation came to: counts an interval, totals, and the breaker's course.

Owns the counting. Pure: it is told what happened and when, in virtual seconds from the start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of a run.

    Attributes:
        from_s: When it begins.
        arrivals: Events that came in.
        attempts: Requests that began: the offered load.
        successes: Deliveries that succeeded: the goodput.
        dead: Deliveries that ended without success.
        backlog: Deliveries that were unfinished at its end.
        breaker: The breaker's state at its end.
    """

    from_s: float
    arrivals: int
    attempts: int
    successes: int
    dead: int
    backlog: int
    breaker: str


@dataclass(frozen=True, slots=True)
class Run:
    """One policy's course through a scenario.

    Attributes:
        policy: Its name.
        scenario: The scenario's name.
        seed: What made the randomness.
        step_s: How long an interval is; the last one may be shorter.
        duration_s: How long it all is.
        intervals: The counts, in order.
        breaker: When the breaker came into which state, from (0, closed) on.
        disabled: Why the endpoint was disabled; None if it was not.
    """

    policy: str
    scenario: str
    seed: int
    step_s: float
    duration_s: float
    intervals: tuple[Interval, ...]
    breaker: tuple[tuple[float, str], ...]
    disabled: str | None = None

    @property
    def totals(self) -> dict[str, int]:
        """Sums over the run, and the backlog that is left at its end."""
        sums = {
            name: sum(getattr(interval, name) for interval in self.intervals)
            for name in ("arrivals", "attempts", "successes", "dead")
        }
        return {**sums, "backlog": self.intervals[-1].backlog}

    def document(self) -> dict[str, Any]:
        """The run as JSON has it."""
        return {
            "scenario": self.scenario,
            "policy": self.policy,
            "seed": self.seed,
            "step_s": self.step_s,
            "duration_s": self.duration_s,
            "totals": self.totals,
            "disabled": self.disabled,
            "breaker": [{"at_s": at, "state": state} for at, state in self.breaker],
            "intervals": [asdict(interval) for interval in self.intervals],
        }


@dataclass(slots=True)
class Counts:
    """A run while it goes on.

    Args:
        step_s: How long an interval is.
        duration_s: How long the run is; what happens later is not counted.
    """

    step_s: float
    duration_s: float
    arrivals: list[int] = field(init=False)
    attempts: list[int] = field(init=False)
    successes: list[int] = field(init=False)
    dead: list[int] = field(init=False)
    breaker: list[tuple[float, str]] = field(init=False)

    def __post_init__(self) -> None:
        number = max(1, math.ceil(self.duration_s / self.step_s - 1e-9))
        self.arrivals, self.attempts, self.successes, self.dead = ([0] * number for _ in range(4))
        self.breaker = [(0.0, CLOSED)]

    def add(self, counts: list[int], times: Iterable[float]) -> None:
        """Count what happened at these times into one of the lists."""
        step_s, number = self.step_s, len(counts)
        for at in times:
            place = int(at / step_s)
            if place < number:
                counts[place] += 1

    def note_breaker(self, at: float, state: str) -> None:
        """Tell the breaker's state at a time; the same as before says nothing new."""
        if state != self.breaker[-1][1]:
            self.breaker.append((at, state))

    def intervals(self) -> tuple[Interval, ...]:
        """The intervals so far."""
        return tuple(self._intervals())

    def _intervals(self) -> Iterator[Interval]:
        backlog = turn = 0
        for place, (arrivals, attempts, successes, dead) in enumerate(
            zip(self.arrivals, self.attempts, self.successes, self.dead, strict=True)
        ):
            backlog += arrivals - successes - dead
            end = min((place + 1) * self.step_s, self.duration_s)
            while turn + 1 < len(self.breaker) and self.breaker[turn + 1][0] < end:
                turn += 1
            yield Interval(place * self.step_s, arrivals, attempts, successes, dead, backlog, self.breaker[turn][1])
