"""A group that cannot be measured."""

from __future__ import annotations

from collections.abc import Iterator

from infra.bench.figure import Figure
from infra.bench.world import Scale, World


def measure(world: World, scale: Scale) -> Iterator[Figure]:
    raise ValueError(f"broken after {scale.repeats} of {world.folder.name[:8]}")
