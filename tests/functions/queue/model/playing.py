"""What all rules of the machine share: the world, the model, what they draw, and the outcomes that several have.

What an argument picks, it picks by its remainder, so that a rule draws the same whatever the rows are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from forbear.leases import Lease
from tests.functions.queue.model.expected import Delivery, Expected
from tests.functions.queue.model.policies import POLICIES
from tests.functions.queue.model.world import CLAIMERS, KINDS, World

TENANTS = ("acme", "blue")
TYPES = ("order.paid", "order.sent", "ping")

claimer = st.integers(0, CLAIMERS - 1)
pick = st.integers(0, 30)
picks = st.lists(pick, min_size=1, max_size=4)
tenant = st.sampled_from((*TENANTS, "acme"))
policy = st.sampled_from(sorted(POLICIES))
kind = st.sampled_from(KINDS)
event = st.tuples(
    tenant,
    st.sampled_from(TYPES),
    st.sampled_from((b"", b"1", b"four", b"x" * 200)),
    st.sampled_from((None, None, None, 20.0, 4000.0)),  # seconds until it is stale
    st.sampled_from((None, None, None, "k1", "k2")),
)


def nth[T](of: Sequence[T], number: int) -> T | None:
    """The one that a number picks; None of nothing."""
    return of[number % len(of)] if of else None


class Play(RuleBasedStateMachine):
    """One run on an empty database, without rules.

    Attributes:
        replays: the replays and backfills asked for so far, as callers name them.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        world.reset()
        self.world = world
        self.expected = Expected(world)
        self.replays: list[str] = []

    @property
    def deliveries(self) -> list[Delivery]:
        return list(self.expected.deliveries.values())

    @property
    def now(self) -> datetime:
        return self.world.now

    def made(self, wanted: Counter[tuple[UUID, UUID]], due_from: datetime) -> None:
        """These deliveries and no others are new, and due now."""

        def new(before: Delivery | None, after: Delivery) -> bool:
            assert after.due is not None
            return before is None and due_from <= after.due <= self.now and untouched(after)

        changes = self.expected.confirm(may=new)
        assert Counter((one.event_id, one.endpoint_id) for _, one in changes) == wanted

    def in_time(self, lease: Lease) -> bool:
        """Whether a lease still stands."""
        one = self.expected.deliveries.get(lease.delivery_id)
        return one is not None and one.token == lease.token and one.until is not None and one.until > self.now

    def cancelled(self, wanted: list[Delivery]) -> None:
        """These are cancelled now, and nothing else has changed."""
        self.expected.confirm({one.id: one.over("cancelled", None, self.now) for one in wanted})


def untouched(one: Delivery) -> bool:
    """Whether nothing has happened yet to a delivery."""
    counted = (one.attempts, one.tries, one.limited, one.lost)
    return (one.state, one.generation, one.token, one.replay) == ("pending", 1, None, None) and not any(counted)
