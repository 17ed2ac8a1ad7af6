"""The machine: random operations on the queue, each compared with what it should have come to.

Owns what is looked at after each step and at the end; the rules are its parts'.
"""

from __future__ import annotations

from collections import Counter

from hypothesis.stateful import invariant

from tests.functions.queue.model.claiming import Claiming
from tests.functions.queue.model.invariants import check
from tests.functions.queue.model.operating import Operating
from tests.functions.queue.model.reaching import check_within_a_tick, drain
from tests.functions.queue.model.replaying import Replaying
from tests.functions.queue.model.world import World

# What is due is tried to be reached every so many steps: that takes as long as ten others.
TRY_EVERY = 5


class QueueMachine(Operating, Claiming, Replaying):
    """One run on an empty database."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.steps = 0

    @invariant()
    def all_is_well(self) -> None:
        check(self.world.connection)
        self.check_probes()
        self.steps += 1
        if self.steps % TRY_EVERY == 0:
            check_within_a_tick(self.world.connection)

    def check_probes(self) -> None:
        """Of each half-open breaker one probe at most is in flight."""
        probes = Counter(
            (lease.lane.endpoint_id, lease.epoch)
            for one in self.world.claimers
            for lease in one.hand
            if lease.probe and self.in_time(lease)
        )
        assert all(number == 1 for number in probes.values())

    def teardown(self) -> None:
        drain(self.world.connection)


def machine_on(world: World) -> type[QueueMachine]:
    """The machine of a world, as Hypothesis makes one for each run."""

    class Machine(QueueMachine):
        def __init__(self) -> None:
            super().__init__(world)

    return Machine
