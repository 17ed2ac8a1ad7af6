"""What should be: a small model of endpoints, events and deliveries, beside the real ones.

Owns what every operation comes to where that is certain. Where the SQL may choose, the machine says what it may do, and
the model takes over what it did. Knows no operation, and of the database only how to read deliveries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from forbear.envelope import NewEvent
from forbear.event_types import matching_patterns
from forbear.states import FINISHED, DeliveryState, allowed
from tests.functions.queue.model.world import World

READ = """
    SELECT q.id, q.event_id, q.endpoint_id, CASE WHEN q.lease_token IS NULL THEN 'pending' ELSE 'leased' END AS state,
           NULL AS reason, q.generation, q.attempts, q.tries, q.limited, q.lost, q.lease_token AS token,
           q.lease_until AS until, q.due_at AS due, NULL::timestamptz AS ended, q.replay_id AS replay
    FROM forbear.queue q
    UNION ALL
    SELECT h.id, h.event_id, h.endpoint_id, h.state, h.reason, h.generation, h.attempts, 0, 0, 0, NULL, NULL, NULL,
           h.ended_at, h.replay_id
    FROM forbear.history h
"""
KEY_FOR = timedelta(hours=24)
# A delay's last digit is rounded here as there, but not always alike.
ROUNDING = timedelta(microseconds=2)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery as everybody may read it. What the history does not keep is zero or None there."""

    id: UUID
    event_id: UUID
    endpoint_id: UUID
    state: str
    reason: str | None
    generation: int
    attempts: int
    tries: int
    limited: int
    lost: int
    token: UUID | None
    until: datetime | None
    due: datetime | None
    ended: datetime | None
    replay: UUID | None

    @property
    def finished(self) -> bool:
        return self.state in FINISHED

    def leased(self, token: UUID, until: datetime) -> Delivery:
        """After a claim."""
        return replace(self, state="leased", attempts=self.attempts + 1, token=token, until=until)

    def pending(self, due: datetime, **changes: Any) -> Delivery:
        """After a settle, or after its lease has lapsed."""
        return replace(self, state="pending", due=due, token=None, until=None, **changes)

    def over(self, state: str, reason: str | None, now: datetime, *, attempts: int | None = None) -> Delivery:
        """After its end."""
        return replace(
            self,
            state=state,
            reason=reason,
            ended=now,
            attempts=self.attempts if attempts is None else attempts,
            token=None,
            until=None,
            due=None,
            tries=0,
            limited=0,
            lost=0,
        )

    def taken_over(self, now: datetime) -> Delivery:
        """After its lease has lapsed: the fifth time in a generation is the last."""
        return self.over("dead", "lost", now) if self.lost == 4 else self.pending(now, lost=self.lost + 1)

    def revived(self, replay_id: UUID, due: datetime | None) -> Delivery:
        """After a replay has put it back."""
        return replace(
            self, state="pending", reason=None, generation=self.generation + 1, ended=None, due=due, replay=replay_id
        )


@dataclass(slots=True)
class Endpoint:
    """An endpoint: what it subscribes to, and what an operator has done to it."""

    id: UUID
    tenant: str
    patterns: tuple[str, ...]
    timeout_s: float
    paused: bool = False
    deleted: bool = False


type Change = Callable[[Delivery | None, Delivery], bool]


def nothing(_before: Delivery | None, _after: Delivery) -> bool:
    """No change is left to the SQL."""
    return False


@dataclass(slots=True)
class Expected:
    """The model. `deliveries` are as they were last found, in the order in which they were made."""

    world: World
    deliveries: dict[UUID, Delivery] = field(default_factory=dict)
    endpoints: list[Endpoint] = field(default_factory=list)
    events: dict[UUID, NewEvent] = field(default_factory=dict)
    keys: dict[tuple[str, str], tuple[UUID, bytes, datetime]] = field(default_factory=dict)
    paused_tenants: set[str] = field(default_factory=set)
    paused: bool = False
    tokens: set[UUID] = field(default_factory=set)

    def live(self) -> list[Endpoint]:
        """Endpoints that are not deleted."""
        return [endpoint for endpoint in self.endpoints if not endpoint.deleted]

    def endpoint(self, endpoint_id: UUID) -> Endpoint:
        return next(endpoint for endpoint in self.endpoints if endpoint.id == endpoint_id)

    def subscribers(self, event: NewEvent) -> list[UUID]:
        """Who gets an event."""
        wanted = set(matching_patterns(event.type))
        return [
            one.id
            for one in self.endpoints
            if not one.deleted and one.tenant == event.tenant and wanted & set(one.patterns)
        ]

    def replayable(self, one: Delivery) -> bool:
        """Whether a replay would put it back."""
        return one.finished and one.event_id in self.events and not self.endpoint(one.endpoint_id).deleted

    def first_under(self, key: tuple[str, str], event_id: UUID, digest: bytes) -> tuple[UUID, bool]:
        """Whose event a key stands for, and whether that one says the same; a new or an old key is taken (over)."""
        known = self.keys.get(key)
        if known is None or known[2] <= self.world.now - KEY_FOR:
            self.keys[key] = known = (event_id, digest, self.world.now)
        return known[0], known[1] == digest

    def confirm(
        self, exactly: Mapping[UUID, Delivery] | None = None, may: Change = nothing, gone: frozenset[UUID] = frozenset()
    ) -> list[tuple[Delivery | None, Delivery]]:
        """Compare the deliveries with what they should be, and take over what they are.

        Args:
            exactly: what has changed for certain.
            may: whether the SQL was free to make this of that (None: of nothing).
            gone: which may have been dropped by retention.

        Returns:
            The changes that were not certain.
        """
        exactly = exactly or {}
        actual = {row["id"]: Delivery(**row) for row in self.world.rows(READ)}
        changes = []
        for delivery_id in [one for one in self.deliveries if one not in actual]:
            assert delivery_id in gone, f"it has disappeared: {self.deliveries[delivery_id]}"
            del self.deliveries[delivery_id]
        made = []
        for delivery_id, after in actual.items():
            before = self.deliveries.get(delivery_id)
            wanted = exactly.get(delivery_id, before)
            if wanted is None or not _same(wanted, after):
                assert may(before, after), _difference(before, wanted, after)
                changes.append((before, after))
            if before is None:
                made.append(after)
            elif before.state != after.state:
                assert allowed(DeliveryState(before.state), DeliveryState(after.state)), f"{before} became {after}"
        places = {one: place for place, one in enumerate(self.events)}
        lanes = {one.id: place for place, one in enumerate(self.endpoints)}
        for one in sorted(made, key=lambda new: (places.get(new.event_id, -1), lanes[new.endpoint_id])):
            self.deliveries[one.id] = one
        self.deliveries |= {delivery_id: actual[delivery_id] for delivery_id in self.deliveries}
        return changes


def _same(wanted: Delivery, actual: Delivery) -> bool:
    if wanted.due is not None and actual.due is not None and abs(wanted.due - actual.due) <= ROUNDING:
        wanted = replace(wanted, due=actual.due)
    return wanted == actual


def _difference(before: Delivery | None, wanted: Delivery | None, actual: Delivery) -> str:
    lines = [f"delivery {actual.id}: what it was, should be, is"]
    for each in fields(Delivery):
        values = [getattr(one, each.name, None) for one in (before, wanted, actual)]
        if values[1] != values[2]:
            lines.append(f"  {each.name}: {', '.join(map(str, values))}")
    return "\n".join(lines)
