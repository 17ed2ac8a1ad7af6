"""The claimers group at tiny scale."""

from __future__ import annotations

from infra.bench.groups.claimers import sent_twice, together
from infra.bench.recording import Receipt
from infra.bench.world import World


def test_together_they_send_everything_once(world: World) -> None:
    figures = {each.name: each for each in together(world, (1, 2), 200, 10, 1)}
    assert len(figures) == 4 * 4 + 3
    assert figures["deadlocks"].values == (0.0,)
    for number in (1, 2):
        for backlog in ("100 endpoints", "one hot endpoint"):
            assert figures[f"sent twice, {number} on {backlog}"].values == (0.0,)
            assert figures[f"throughput, {number} on {backlog}"].least > 0


def test_what_is_sent_twice_is_seen() -> None:
    receipts = [Receipt("/now/1", "evt_1", delivery, 0.0) for delivery in ("dlv_1", "dlv_2", "dlv_1", "dlv_1")]
    assert sent_twice(receipts) == 2
    assert sent_twice(receipts[:2]) == 0
