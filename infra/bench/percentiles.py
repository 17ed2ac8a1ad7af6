"""Percentiles of what was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that so many percent of them do not exceed (nearest rank).

    Args:
        values: one at least, in any order.
        percent: above 0, 100 at most.
    """
    ordered = sorted(values)
    return ordered[math.ceil(len(ordered) * percent / 100) - 1]
