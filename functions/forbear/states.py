"""The life of a delivery, drawn once: its states and the arrows between them.

The schema's constraints, the store and the documentation follow this table; it knows none of them. Being held is no
state of a delivery but of its lane (paused, disabled, breaker open, over its limits).
"""

from dataclasses import dataclass
from enum import StrEnum

from forbear.policy.verdict import DeadReason


class DeliveryState(StrEnum):
    """Where a delivery stands."""

    PENDING = "pending"
    LEASED = "leased"
    DELIVERED = "delivered"
    DEAD = "dead"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Arrow:
    """A way from one state to another.

    Attributes:
        source: The state before.
        target: The state after.
        cause: What takes it there, for people.
    """

    source: DeliveryState
    target: DeliveryState
    cause: str


_REPLAY = "replay (generation + 1)"
_CANCEL = "endpoint deleted, or cancelled"
# Reasons that an attempt ends with; the one that is left out ends what nobody attempts.
_DECIDED = [reason for reason in DeadReason if reason is not DeadReason.CIRCUIT_OPEN]

ARROWS = (
    Arrow(DeliveryState.PENDING, DeliveryState.LEASED, "claim"),
    Arrow(DeliveryState.LEASED, DeliveryState.DELIVERED, "2xx"),
    Arrow(DeliveryState.LEASED, DeliveryState.PENDING, "retry, or give-back (next due time)"),
    Arrow(DeliveryState.LEASED, DeliveryState.PENDING, "lease lapsed"),
    Arrow(DeliveryState.LEASED, DeliveryState.DEAD, f"no more tries, or no point: {', '.join(_DECIDED)}"),
    Arrow(DeliveryState.PENDING, DeliveryState.DEAD, f"due, and must not wait: {DeadReason.CIRCUIT_OPEN}"),
    Arrow(DeliveryState.PENDING, DeliveryState.CANCELLED, _CANCEL),
    Arrow(DeliveryState.LEASED, DeliveryState.CANCELLED, _CANCEL),
    Arrow(DeliveryState.DELIVERED, DeliveryState.PENDING, _REPLAY),
    Arrow(DeliveryState.DEAD, DeliveryState.PENDING, _REPLAY),
    Arrow(DeliveryState.CANCELLED, DeliveryState.PENDING, _REPLAY),
)

FINISHED = frozenset({DeliveryState.DELIVERED, DeliveryState.DEAD, DeliveryState.CANCELLED})
"""The states in which a delivery has ended: only a replay leads out of them."""

_WAYS = frozenset((arrow.source, arrow.target) for arrow in ARROWS)


def allowed(source: DeliveryState, target: DeliveryState) -> bool:
    """Whether an arrow leads from one state straight to the other. Staying in a state is no arrow."""
    return (source, target) in _WAYS


def as_markdown() -> str:
    """The arrows as a Markdown table for the documentation, one row an arrow, ending in a line feed."""
    rows = ("| from | to | cause |", "| --- | --- | --- |")
    return "\n".join((*rows, *(f"| {arrow.source} | {arrow.target} | {arrow.cause} |" for arrow in ARROWS))) + "\n"
