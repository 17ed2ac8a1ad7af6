"""A measured figure: its repeats, its spread, and what is aimed at.

Owns the value and nothing of how it was measured or is shown.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Aim:
    """What a figure is to reach.

    Attributes:
        value: in the figure's unit.
        at_most: the figure is to be no greater; False: no smaller.
    """

    value: float
    at_most: bool

    def reached(self, value: float) -> bool:
        """Whether a value is good enough."""
        return value <= self.value if self.at_most else value >= self.value


def at_most(value: float) -> Aim:
    """A figure that is to be small."""
    return Aim(value, at_most=True)


def at_least(value: float) -> Aim:
    """A figure that is to be great."""
    return Aim(value, at_most=False)


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that was measured, over its repeats.

    Attributes:
        group: whose it is, as on the command line: "end-to-end", "latency", "flatness", "isolation", "claimers",
            "cold-start", "memory", "peers", "cost".
        name: what it is; with the group, the same from run to run.
        unit: of the values: "1/s", "ms", "us", "bytes", "MiB", "count", "ratio", "$".
        values: one a repeat, in order. A figure is their median.
        aim: what is to be reached; None: it is only told.
        counted: the same on every machine but for a little (statements, rows, WAL bytes without full-page images,
            imported modules), smaller being better: kept in the repository and compared.
        conditions: what it was measured with, beyond the run's own: sizes, counts, the receiver.
    """

    group: str
    name: str
    unit: str
    values: tuple[float, ...]
    aim: Aim | None = None
    counted: bool = False
    conditions: Mapping[str, object] = field(default_factory=dict)

    @property
    def median(self) -> float:
        """The middle one of the repeats."""
        return statistics.median(self.values)

    @property
    def least(self) -> float:
        """The smallest of the repeats."""
        return min(self.values)

    @property
    def greatest(self) -> float:
        """The greatest of the repeats."""
        return max(self.values)

    @property
    def reached(self) -> bool | None:
        """Whether the median reaches the aim; None without one."""
        return None if self.aim is None else self.aim.reached(self.median)
