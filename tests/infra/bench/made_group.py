"""A group that measures nothing."""

from __future__ import annotations

from collections.abc import Iterator

from infra.bench.figure import Figure, at_most
from infra.bench.world import Scale, World


def measure(world: World, scale: Scale) -> Iterator[Figure]:
    del world
    yield Figure("latency", "made", "ms", (1.0,) * scale.repeats, at_most(2))
    yield Figure("latency", "counted", "count", (3.0,), counted=True)
