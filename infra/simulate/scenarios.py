"""Scenarios: what arrives, at which receiver, for how long, and under which policies.

Owns the scenarios that come with Forbear, as values, and what their names stand for. Knows neither database nor output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from infra.simulate.receivers import Capacity, Mode, Outage, Receiver

MINUTE_S = 60.0
HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated.

    Attributes:
        name: What it is called.
        summary: What it shows, in a sentence.
        rate_per_s: Events a second on average, each for the one endpoint.
        duration_s: For how long; what is unfinished then stays unfinished.
        receiver: Who receives them.
        timeout_s: The timeout of an attempt, whatever the policy says; None: the policy's.
        policies: The presets that it compares unless others are named.
        step_s: The interval that its series are told in.
    """

    name: str
    summary: str
    rate_per_s: float
    duration_s: float
    receiver: Receiver
    timeout_s: float | None = None
    policies: tuple[str, ...] = ("default",)
    step_s: float = MINUTE_S


_ALL = (
    Scenario(
        name="storm",
        summary="Ten minutes of refused connections at 10 events/s: what waits comes back all at once, or does not.",
        rate_per_s=10,
        duration_s=25 * MINUTE_S,
        receiver=Receiver(
            latency_s=0.05,
            capacity=Capacity(per_s=30),
            outages=(Outage(0, 10 * MINUTE_S, Mode.REFUSE),),
        ),
        timeout_s=5,
        policies=("naive", "default"),
    ),
    Scenario(
        name="metastable",
        summary="Ten seconds of silence from a receiver at 93 % of its capacity: does it ever get well again?",
        rate_per_s=280,
        duration_s=3 * MINUTE_S,
        receiver=Receiver(
            latency_s=0.05,
            capacity=Capacity(per_s=300),
            outages=(Outage(30, 40, Mode.HANG),),
        ),
        timeout_s=5,
        policies=("naive", "default"),
        step_s=10,
    ),
    Scenario(
        name="outage",
        summary="An hour of 503 in the middle of four, from a receiver with three times the capacity that it needs.",
        rate_per_s=2,
        duration_s=4 * HOUR_S,
        receiver=Receiver(
            latency_s=0.1,
            capacity=Capacity(per_s=6, ramp_s=2 * MINUTE_S),
            outages=(Outage(HOUR_S, 2 * HOUR_S, Mode.UNAVAILABLE),),
        ),
        policies=("default", "dropless", "guide"),
        step_s=5 * MINUTE_S,
    ),
    Scenario(
        name="day",
        summary="A day at 10 events/s with three outages: refused for half an hour, 503 for ten minutes, a black hole.",
        rate_per_s=10,
        duration_s=24 * HOUR_S,
        receiver=Receiver(
            latency_s=0.05,
            capacity=Capacity(per_s=50),
            outages=(
                Outage(6 * HOUR_S, 6.5 * HOUR_S, Mode.REFUSE),
                Outage(12 * HOUR_S, 12 * HOUR_S + 10 * MINUTE_S, Mode.UNAVAILABLE, retry_after_s=60),
                Outage(18 * HOUR_S, 18 * HOUR_S + 2 * MINUTE_S, Mode.HANG),
            ),
        ),
        step_s=30 * MINUTE_S,
    ),
)

SCENARIOS: Mapping[str, Scenario] = MappingProxyType({scenario.name: scenario for scenario in _ALL})
"""The scenarios by their names."""

CUSTOM = Scenario(
    name="custom",
    summary="What the options describe.",
    rate_per_s=10,
    duration_s=30 * MINUTE_S,
    receiver=Receiver(),
)
"""What options change when no scenario is named."""
