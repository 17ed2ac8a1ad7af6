"""From which number of events on Forbear costs less than a hosted plan. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Final

from infra.config import StackConfig
from infra.cost.awake import Load
from infra.cost.hosted import Plan
from infra.cost.model import bill

LEAST: Final = 100.0
MOST: Final = 1e9
"""The events a month that are looked at."""
_STEPS: Final = 70
_PRECISION: Final = 1.005

VOLUMES: Final = tuple(LEAST * (MOST / LEAST) ** (step / _STEPS) for step in range(_STEPS + 1))


def cheaper(load: Load, config: StackConfig, plans: tuple[Plan, ...]) -> dict[str, tuple[tuple[float, float], ...]]:
    """In which spans of events a month Forbear, at list prices, costs less than each plan or the plan takes no more.

    Args:
        load: what does not change: its number of events does.
        config: Forbear's stack.
        plans: what it is compared with.

    Returns:
        For each plan's name the spans, from low to high; their ends are known to half a per cent, and one that ends at
        `MOST` goes on.
    """

    @cache
    def total(events: float) -> float:
        return bill(replace(load, events=events), config).total

    def wins_over(plan: Plan) -> Callable[[float], bool]:
        def wins(events: float) -> bool:
            theirs = plan.cost(replace(load, events=events))
            return theirs is None or total(events) < theirs

        return wins

    return {plan.name: _spans(wins_over(plan)) for plan in plans}


def _spans(wins: Callable[[float], bool]) -> tuple[tuple[float, float], ...]:
    spans: list[tuple[float, float]] = []
    start = VOLUMES[0] if wins(VOLUMES[0]) else None
    for low, high in pairwise(VOLUMES):
        if wins(high) == (start is not None):
            continue
        edge = _edge(wins, low, high)
        if start is None:
            start = edge
        else:
            spans.append((start, edge))
            start = None
    return (*spans, (start, VOLUMES[-1])) if start is not None else tuple(spans)


def _edge(wins: Callable[[float], bool], low: float, high: float) -> float:
    """Where it changes between two volumes that differ."""
    first = wins(low)
    while high / low > _PRECISION:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if wins(middle) == first else (low, middle)
    return high
