"""Reads what the functions wrote for CloudWatch: the embedded metric format, and whether CloudWatch would take it."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from forbear.metrics import METRICS, Metric

KNOWN = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True)
class Line:
    """One line: what its metrics have in common, and their values."""

    namespace: str
    dimensions: dict[str, str]
    values: dict[str, list[float]]
    length: int


def lines(output: str) -> list[Line]:
    """The lines of an output that are metrics. Each keeps to the specification, and holds known metrics only."""
    return [_line(text) for text in output.splitlines() if text.startswith('{"_aws"')]


def _line(text: str) -> Line:
    document: dict[str, Any] = json.loads(text)
    head = document.pop("_aws")
    (directive,) = head["CloudWatchMetrics"]
    (names,) = directive["Dimensions"]
    assert head["Timestamp"] > 1_700_000_000_000
    dimensions = {name: document.pop(name) for name in names}
    values = {}
    for told in directive["Metrics"]:
        metric = KNOWN[told["Name"]]
        assert told == {"Name": metric.name, "Unit": metric.unit}
        assert list(dimensions) == ([metric.dimension] if metric.dimension else [])
        assert set(dimensions.values()) <= set(metric.values)
        value = document.pop(metric.name)
        values[metric.name] = value if isinstance(value, list) else [value]
        assert 1 <= len(values[metric.name]) <= 100
    assert values
    assert document == {}, "nothing but metrics and their dimensions"
    return Line(directive["Namespace"], dimensions, values, len(text))


def values(output: str, metric: Metric) -> list[float]:
    """All values of a metric without a dimension."""
    return [value for line in lines(output) for value in line.values.get(metric.name, ())]


def counts(output: str, metric: Metric) -> dict[str, float]:
    """What was counted of a metric, by the value of its dimension."""
    found: dict[str, float] = defaultdict(float)
    for line in lines(output):
        if metric.name in line.values:
            found[line.dimensions[metric.dimension]] += sum(line.values[metric.name])
    return dict(found)
