"""Short rounds of `forbear torture`: each kind of fault once; the command plays many more of them."""

from __future__ import annotations

import pytest

from infra.torture.runner import play
from infra.torture.scenarios import SCENARIOS

# What one world plays, one after the other.
KILLS = (
    "claimer-killed-at-any-statement",
    "claimer-killed-while-sending",
    "claimer-killed-amid-settle",
    "claimer-killed-after-settle",
    "claimer-killed-on-last-attempt",
    "ingest-killed-after-commit",
    "replay-killed-amid-steps",
    "everything-killed",
)
POSTGRES = (
    "postgres-killed",
    "postgres-stands-still",
    "postgres-disk-full",
    "postgres-gives-way",
    "postgres-deadlocks",
)
RUNTIME = (
    "environments-frozen",
    "claimer-frozen-beyond-its-lease",
    "claimer-ended-at-its-deadline",
    "functions-short-of-descriptors",
)
RECEIVERS = (
    "hostile-connections",
    "hostile-names",
    "clock-off-claimer",
    "lease-per-timeout",
)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "names", [KILLS, POSTGRES, RUNTIME, RECEIVERS], ids=["kills", "postgres", "runtime", "receivers"]
)
async def test_no_fault_loses_an_event_or_repeats_one_that_was_not_in_flight(names: tuple[str, ...]) -> None:
    known = {scenario.name: scenario for scenario in SCENARIOS}
    async for outcome in play(iter([(known[name], 1) for name in names])):
        assert outcome.kept, (outcome.scenario, outcome.problems, outcome.output)
