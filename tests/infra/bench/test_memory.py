"""The memory group at tiny scale."""

from __future__ import annotations

from infra.bench.groups.memory import peak
from infra.bench.recording import recorder
from infra.bench.world import World


def test_the_peak_is_taken_while_all_of_it_is_in_flight(world: World) -> None:
    with recorder() as receiver:
        at_rest, most, in_flight = peak(world, receiver, "small", body=b"{}", number=20, repeats=2)
    assert in_flight.values == (20.0, 20.0)
    assert all(value > 10 for value in at_rest.values)
    assert all(peak >= rest for peak, rest in zip(most.values, at_rest.values, strict=True))
    assert most.reached


def test_large_payloads_in_flight_are_bounded_by_their_bytes(world: World) -> None:
    with recorder() as receiver:
        *_, in_flight = peak(world, receiver, "large", body=bytes(1 << 20), number=36, repeats=1)
    assert in_flight.values == (32.0,)
