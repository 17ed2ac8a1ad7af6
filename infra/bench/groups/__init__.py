"""What is measured, a module a group: each gives its figures one by one, as they are ready."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final, Protocol, cast

from infra.bench.figure import Figure
from infra.bench.world import Scale, World

# Imported when they are measured: each needs more than help or a mistyped option should cost.
GROUPS: Final[Mapping[str, str]] = {
    "end-to-end": "infra.bench.groups.end_to_end",
    "latency": "infra.bench.groups.latency",
    "flatness": "infra.bench.groups.flatness",
    "isolation": "infra.bench.groups.isolation",
    "claimers": "infra.bench.groups.claimers",
    "cold-start": "infra.bench.groups.cold_start",
    "memory": "infra.bench.groups.memory",
    "cost": "infra.bench.groups.cost",
}
# What other queue libraries do with the same work; only measured when asked for.
PEERS: Final = "peers"
_PEERS_MODULE: Final = "infra.bench.peers"


class Group(Protocol):
    """A group's module. Its docstring says what its figures mean: the page of results shows it."""

    __doc__: str | None

    def measure(self, world: World, scale: Scale) -> Iterator[Figure]:
        """Measure, giving each figure as it is ready. The world's database is empty at first."""
        ...


def load(name: str) -> Group:
    """A group's module, or the peers'.

    Raises:
        ImportError: something that it needs is not installed.
    """
    return cast("Group", import_module(_PEERS_MODULE if name == PEERS else GROUPS[name]))
