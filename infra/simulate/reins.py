"""The endpoint's limits of concurrency during a simulation: in force, or let go while a step stands for many seconds.

A long step claims at once what would have gone one after the other, so the limits must not count it as concurrent. They
are in force again, as they were, before anything could come near them (see `pace`).
"""

from __future__ import annotations

from typing import Final

from forbear.leases import Lease
from infra.simulate.world import World

# How long after its attempt's end a lease lasts at least, less some seconds: 30 s, and longer while let go.
MARGIN_S: Final = 25.0
LOOSE_MARGIN_S: Final = 50.0


class Reins:
    """The reins of one simulation.

    Args:
        world: Its database.

    Attributes:
        limit: The adaptive limit, as it is or will be in force; None at the policy's own.
        margin_s: How long the settling of what is in flight may wait after it has ended, in seconds.
    """

    def __init__(self, world: World) -> None:
        self.limit: int | None = None
        self.margin_s = MARGIN_S
        self._world = world
        self._loose = False
        self._in_flight = 0

    def see(self, limit: int | None, in_flight: int) -> None:
        """Take note, at the end of a step, of the limit that the database has and of how many are in flight."""
        if not self._loose:
            self.limit = limit
        self._in_flight = in_flight

    def correct(self, leases: list[Lease]) -> None:
        """Tell leases how many are in flight: in a long step, not all that were claimed with them."""
        if self._loose and leases:
            leases[0].lane.in_flight = self._in_flight + 1  # the lane is shared by all of a claim's

    async def hold(self, *, loose: bool) -> None:
        """Let go, or take up again."""
        # What is in flight when they are let go has the shorter leases yet.
        self.margin_s = LOOSE_MARGIN_S if self._loose and loose else MARGIN_S
        if loose != self._loose:
            self._loose = loose
            await self._world.lift(self.limit, lifted=loose)
