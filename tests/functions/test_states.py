from itertools import product

import pytest

from forbear.policy.verdict import DeadReason
from forbear.states import ARROWS, FINISHED, DeliveryState, allowed, as_markdown

PENDING, LEASED, DELIVERED, DEAD, CANCELLED = DeliveryState

DRAWN = {
    (PENDING, LEASED),
    (PENDING, DEAD),
    (PENDING, CANCELLED),
    (LEASED, PENDING),
    (LEASED, DELIVERED),
    (LEASED, DEAD),
    (LEASED, CANCELLED),
    (DELIVERED, PENDING),
    (DEAD, PENDING),
    (CANCELLED, PENDING),
}


@pytest.mark.parametrize(("source", "target"), list(product(DeliveryState, repeat=2)))
def test_exactly_the_drawn_ways_are_allowed(source: DeliveryState, target: DeliveryState) -> None:
    assert allowed(source, target) == ((source, target) in DRAWN)


def test_every_finished_state_is_left_by_replay_and_by_nothing_else() -> None:
    for state in FINISHED:
        (arrow,) = [arrow for arrow in ARROWS if arrow.source is state]
        assert arrow.target is PENDING
        assert arrow.cause.startswith("replay")


def test_every_state_can_be_reached_from_pending() -> None:
    reached = {PENDING}
    while wider := {arrow.target for arrow in ARROWS if arrow.source in reached} - reached:
        reached |= wider
    assert reached == set(DeliveryState)


def test_no_arrow_is_drawn_twice() -> None:
    assert len(set(ARROWS)) == len(ARROWS)


def test_the_documentation_shows_every_arrow_and_every_reason_to_end() -> None:
    header, rule, *rows = as_markdown().splitlines()
    assert header == "| from | to | cause |"
    assert rule == "| --- | --- | --- |"
    assert len(rows) == len(ARROWS)
    for arrow, row in zip(ARROWS, rows, strict=True):
        assert [cell.strip() for cell in row.strip("|").split("|")] == [arrow.source, arrow.target, arrow.cause]
    assert all(reason in as_markdown() for reason in DeadReason)
