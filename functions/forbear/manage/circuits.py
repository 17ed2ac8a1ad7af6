"""An endpoint's circuit, read from its lane's row and its traffic: what holds its deliveries, and how it is doing.

Pure readings of rows; knows no SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from forbear.models.endpoints import Circuit, CircuitReading, Count, Hold, HoldCause, RetryAfterTally, SuccessRate
from forbear.policy.breaker import BreakerState

COUNT_TO = 10_000
"""How far pending deliveries are counted."""


def holds_of(lane: Mapping[str, Any]) -> list[Hold]:
    """What holds a lane now.

    Args:
        lane: a row with the columns that the statements `endpoints` and `delivery_page` select of a lane.

    Returns:
        One entry a cause, those that somebody must end first.
    """
    pauses: tuple[HoldCause, ...] = ("everything_paused", "tenant_paused", "paused")
    holds = [Hold(by=cause, since=lane[f"{cause}_at"]) for cause in pauses if lane[f"{cause}_at"] is not None]
    if lane["disabled_at"] is not None:
        holds.append(Hold(by="disabled", since=lane["disabled_at"], reason=lane["disabled_reason"]))
    if lane["breaker_state"] in (BreakerState.OPEN, BreakerState.HALF_OPEN_PROBE):
        holds.append(
            Hold(
                by="breaker",
                since=lane["breaker_since"],
                until=lane["next_probe_at"],
                reason=lane["breaker_reason"],
            )
        )
    if lane["retry_after_until"] is not None:
        holds.append(Hold(by="retry_after", until=lane["retry_after_until"]))
    return holds


def circuit_of(lane: Mapping[str, Any]) -> Circuit:
    """A lane's circuit, from a row of the statement `endpoints`."""
    return Circuit(
        state=lane["breaker_state"],
        since=lane["breaker_since"],
        reason=lane["breaker_reason"],
        failures=lane["breaker_failures"],
        next_probe_at=lane["next_probe_at"],
        allows=_allowed(lane),
        retries=lane["retries"],
        held=holds_of(lane),
    )


def _allowed(lane: Mapping[str, Any]) -> int | None:
    """How many requests the breaker, the policy and the adaptive concurrency let be in flight; None: any number."""
    match lane["breaker_state"]:
        case BreakerState.OPEN:
            return 0
        case BreakerState.HALF_OPEN_PROBE:
            return 1
    widths = (lane["breaker_allows"], lane["concurrency_limit"], lane["concurrency"])
    return min((width for width in widths if width is not None), default=None)


def reading_of(circuit: Circuit, traffic: Mapping[str, Any]) -> CircuitReading:
    """A circuit with what goes through it.

    Args:
        circuit: the lane's.
        traffic: the row of the statement `traffic`, counted to `COUNT_TO`.
    """
    attempts, successes = traffic["attempts"], traffic["successes"]
    return CircuitReading(
        **dict(circuit),
        pending=Count(count=min(traffic["pending"], COUNT_TO), more=traffic["pending"] > COUNT_TO),
        in_flight=traffic["in_flight"],
        success_rate=SuccessRate(
            rate=successes / attempts if attempts else None,
            attempts=attempts,
            successes=successes,
            since=traffic["since"],
        ),
        retry_after=RetryAfterTally(seen=traffic["retry_after_seen"], honoured=traffic["retry_after_honoured"]),
    )
