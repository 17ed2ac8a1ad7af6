"""What the functions measure: names, units and dimensions, and how it reaches CloudWatch.

Owns the metrics (the dashboard and the alarms take them from here), the counts and samples that a process keeps until
it writes them down, and the lines that it writes: CloudWatch's embedded metric format on standard output, which Lambda
hands on. Without a namespace nothing is written. Knows no database and no loop.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

# The embedded metric format takes so many values of a metric in a line.
SAMPLE: Final = 100


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: `unit` is CloudWatch's; each of `values`, of its one `dimension`, has a series of its own."""

    name: str
    unit: str = "Count"
    dimension: str = ""
    values: tuple[str, ...] = ()


# Ingest, a line a request.
EVENTS: Final = Metric("events_total")  # accepted, those stored before included
DUPLICATES: Final = Metric("events_duplicate_total")  # of these, stored before under the same key
DELIVERIES: Final = Metric("deliveries_total")  # made of the others

# The claimer, lines once a minute.
ATTEMPTS: Final = Metric(
    "delivery_attempts_total",
    dimension="outcome",
    values=("success", "retry", "limited", "permanent", "gone", "lost"),
)
FINAL_STATUS: Final = Metric("delivery_final_status", dimension="status", values=("delivered", "dead"))
TIME_TO_SUCCESS: Final = Metric("delivery_time_to_success_seconds", "Seconds")
RETRY_DELAY: Final = Metric("delivery_retry_delay_seconds", "Seconds")
CLAIM_LATENCY: Final = Metric("claim_latency_ms", "Milliseconds")
SETTLE_LATENCY: Final = Metric("settle_latency_ms", "Milliseconds")
SCHEDULE_OFF: Final = Metric("schedule_off_with_work")

# Gauges, named as the columns of the SQL function forbear.measure.
BACKLOG: Final = Metric("backlog_deliveries")
OLDEST_READY: Final = Metric("oldest_ready_age_seconds", "Seconds")
OLDEST_LEASE: Final = Metric("oldest_lease_age_seconds", "Seconds")
OLDEST_SNAPSHOT: Final = Metric("oldest_snapshot_age_seconds", "Seconds")
BREAKERS_OPEN: Final = Metric("breakers_open")
CLAIMERS_AWAKE: Final = Metric("claimers_awake")
GAUGES: Final = (BACKLOG, OLDEST_READY, OLDEST_LEASE, OLDEST_SNAPSHOT, BREAKERS_OPEN, CLAIMERS_AWAKE)

# Whoever calls a claimer or switches its schedule.
WAKE_CALLS_FAILED: Final = Metric("wake_calls_failed_total")

METRICS: Final = (
    *(EVENTS, DUPLICATES, DELIVERIES),
    *(ATTEMPTS, FINAL_STATUS, TIME_TO_SUCCESS, RETRY_DELAY, CLAIM_LATENCY, SETTLE_LATENCY, SCHEDULE_OFF),
    *GAUGES,
    WAKE_CALLS_FAILED,
)


def write(namespace: str | None, values: Mapping[Metric, float | Sequence[float]], **dimensions: str) -> None:
    """Write a line.

    Args:
        namespace: CloudWatch's; None: nothing is written.
        values: a value, or at most `SAMPLE` of them, for each metric; without any, nothing is written.
        dimensions: name and value of what all of them have in common.
    """
    if namespace is None or not values:
        return
    # "Specification: Embedded metric format", Amazon CloudWatch User Guide.
    directive = {
        "Namespace": namespace,
        "Dimensions": [list(dimensions)],
        "Metrics": [{"Name": metric.name, "Unit": metric.unit} for metric in values],
    }
    document = {
        "_aws": {"Timestamp": int(time.time() * 1000), "CloudWatchMetrics": [directive]},
        **dimensions,
        **{metric.name: value for metric, value in values.items()},
    }
    # In one piece, since threads share the output.
    sys.stdout.write(_compact(document) + "\n")


# Each byte is paid for as log, so no spaces.
_compact = json.JSONEncoder(separators=(",", ":")).encode


class Reservoir:
    """A uniform random sample, of `SAMPLE` at most, of the values that it was given.

    Algorithm R: Vitter, "Random sampling with a reservoir", ACM Transactions on Mathematical Software 11(1), 1985.

    Args:
        rng: chooses.

    Attributes:
        kept: the sample.
    """

    __slots__ = ("_rng", "_seen", "kept")

    def __init__(self, rng: Random) -> None:
        self.kept: list[float] = []
        self._seen = 0
        self._rng = rng

    def add(self, values: Iterable[float]) -> None:
        """Consider values."""
        for value in values:
            self._seen += 1
            if len(self.kept) < SAMPLE:
                self.kept.append(value)
            elif (place := int(self._rng.random() * self._seen)) < SAMPLE:
                self.kept[place] = value


class Collector:
    """What a process has measured since it last wrote it down. Counts are exact, the rest is a sample.

    Args:
        namespace: CloudWatch's; None: nothing is ever written.
        rng: chooses the samples.
    """

    def __init__(self, namespace: str | None = None, rng: Random | None = None) -> None:
        self._namespace = namespace
        self._rng = rng or Random()  # noqa: S311 - a sample needs no secrecy
        self._forget()

    def _forget(self) -> None:
        self._counts: dict[Metric, Counter[str]] = defaultdict(Counter)
        self._samples: dict[Metric, Reservoir] = defaultdict(lambda: Reservoir(self._rng))

    def count(self, metric: Metric, number: int = 1, value: str = "") -> None:
        """Count something: of a metric with a dimension, `number` times its `value`."""
        if number:
            self._counts[metric][value] += number

    def count_each(self, metric: Metric, values: Iterable[str]) -> None:
        """Count something once for each value of the metric's dimension."""
        self._counts[metric].update(values)

    def sample(self, metric: Metric, values: Iterable[float]) -> None:
        """Take values into the sample of a metric, in its unit."""
        self._samples[metric].add(values)

    def flush(self) -> None:
        """Write it down, a line for each value of a dimension and one for the rest, and forget it."""
        lines: dict[tuple[str, str], dict[Metric, float | Sequence[float]]] = defaultdict(dict)
        for metric, counts in self._counts.items():
            for value, number in counts.items():
                lines[metric.dimension, value][metric] = number
        for metric, reservoir in self._samples.items():
            if reservoir.kept:
                lines["", ""][metric] = [round(one, 3) for one in reservoir.kept]
        self._forget()
        for (dimension, value), values in lines.items():
            write(self._namespace, values, **({dimension: value} if dimension else {}))
