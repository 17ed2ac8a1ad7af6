"""What a million deliveries cost in AWS at some volumes, by the cost model: docs/cost.md says what is in it.

Nothing is measured here; the model takes what other groups have measured, as `infra/cost/measured.py` keeps it. Events
of 1 KB come evenly through the month, one delivery each, at list prices of us-east-1, free tier left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from infra.bench.figure import Figure
from infra.bench.world import Scale, World
from infra.config import StackConfig
from infra.cost import prices
from infra.cost.awake import Load
from infra.cost.measured import MEASURED
from infra.cost.model import bill

NAME: Final = "cost"
_PROFILES: Final = ("small", "production")
_VOLUMES: Final = {"100k": 1e5, "1M": 1e6, "10M": 1e7, "100M": 1e8}


def measure(_world: World, _scale: Scale) -> Iterator[Figure]:
    """The model's figures; neither the world nor the scale matters to them."""
    about = {"prices as of": prices.AS_OF, "region": prices.REGION, "measured": MEASURED.as_of, "payload_bytes": 1000}
    for profile in _PROFILES:
        # A folder without forbear.toml: the profile's own defaults.
        config = StackConfig.read({"profile": profile}, Path(__file__).parent)
        for written, events in _VOLUMES.items():
            month = bill(Load(events=events), config)
            name = f"a million deliveries, {profile}, {written} events a month"
            values = (month.total / month.load.deliveries * 1e6,)
            yield Figure(NAME, name, "$", values, conditions={"dollars a month": round(month.total, 2), **about})
