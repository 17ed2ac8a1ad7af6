"""Measures groups, one after the other in one world; one that fails does not keep the others from being measured."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass

from infra.bench.figure import Figure
from infra.bench.groups import Group, load
from infra.bench.world import Scale, World


@dataclass(frozen=True, slots=True)
class Failed:
    """A group that could not be measured to its end.

    Attributes:
        group: its name.
        reason: why, in a line.
        details: the traceback.
    """

    group: str
    reason: str
    details: str


def measure(
    world: World, names: Iterable[str], scale: Scale, loading: Callable[[str], Group] = load
) -> Generator[Figure | Failed]:
    """Measure groups.

    Args:
        world: where; each group finds an empty database.
        names: of the groups.
        scale: how much.
        loading: gives a group by its name.

    Yields:
        Figures as they are ready, and the groups that failed.
    """
    for name in names:
        figures: Iterator[Figure] = iter(())
        try:
            world.fresh()
            figures = loading(name).measure(world, scale)
            yield from figures
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the others go on
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            yield Failed(name, reason, traceback.format_exc())
        finally:
            if isinstance(figures, Generator):
                figures.close()  # what it has started ends, should this be broken off
