"""All scenarios, in the order in which they are played."""

from __future__ import annotations

from typing import Final

from infra.torture.scenario import Scenario
from infra.torture.scenarios import (
    clocks,
    hostility,
    killed_claimers,
    killed_ingest,
    killed_replays,
    postgres,
    runtime,
)

SCENARIOS: Final[tuple[Scenario, ...]] = (
    *killed_claimers.SCENARIOS,
    *killed_ingest.SCENARIOS,
    *killed_replays.SCENARIOS,
    *postgres.SCENARIOS,
    *runtime.SCENARIOS,
    *hostility.SCENARIOS,
    *clocks.SCENARIOS,
)
