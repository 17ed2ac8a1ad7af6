"""The isolation group at tiny scale."""

from __future__ import annotations

from infra.bench.groups.isolation import Load, hanging, noisy
from infra.bench.world import World


def test_healthy_endpoints_are_measured_without_and_beside_hanging_ones(world: World) -> None:
    figures = {each.name: each for each in hanging(world, Load(0.3, 50, 0.9, 1.0, 20), 1)}
    assert len(figures) == 5
    assert all(value > 0 for figure in figures.values() for value in figure.values)
    assert int(str(figures["healthy at the 99th percentile, beside to without"].conditions["hanging_in_flight"])) > 0


def test_quiet_tenants_start_within_two_claims(world: World) -> None:
    figure = noisy(world)
    assert figure.reached
    assert figure.counted
    assert int(str(figure.conditions["noisy_leased_before"])) > 0
