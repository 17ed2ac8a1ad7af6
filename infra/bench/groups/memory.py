"""The most memory that a claimer takes with as many requests in flight as its settings allow (Linux).

The claimer is the handler in a process of its own, with production's defaults: 1,000 requests in flight
(FORBEAR_MAX_IN_FLIGHT) and 32 MiB of payload in hand (FORBEAR_MAX_BATCH_BYTES), whichever is reached first. The
receiver (`recording`) holds its answers until no more come. Measured is the process's peak (VmHWM): with its handler
imported, and after it has sent twice as much as it may hold. The aim is what the function is given: the claimer's
`memory_mb`, of which Lambda's own runtime takes some.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from infra.bench.claiming import claimer
from infra.bench.crowd import Crowd, settle_in, wait
from infra.bench.figure import Figure, at_most
from infra.bench.filling import payload
from infra.bench.recording import Recorder, recorder
from infra.bench.world import Scale, World
from infra.local.deployment import CLAIMER, FUNCTIONS

NAME = "memory"

IN_FLIGHT = 1_000
GIVEN_MB = next(spec.memory_mb for spec in FUNCTIONS if spec.name == CLAIMER)
PATIENCE_S = 60.0
QUIET_S = 0.4


def measure(world: World, scale: Scale) -> Iterator[Figure]:
    """Small payloads, and ones of 1 MiB."""
    repeats = 2 if scale.quick else scale.repeats  # a process each, and it hardly varies
    with recorder() as receiver:
        for label, body, number in (
            ("payloads of 1 KiB", payload(1 << 10), 2 * IN_FLIGHT),
            ("payloads of 1 MiB", payload(1 << 20), 80),
        ):
            yield from peak(world, receiver, label, body=body, number=number, repeats=repeats)


def peak(world: World, receiver: Recorder, label: str, *, body: bytes, number: int, repeats: int) -> Iterator[Figure]:
    """The peak with payloads of one size: a process each time.

    Args:
        world: whose database; it is empty.
        receiver: holds what comes.
        label: says what the payloads are.
        body: each delivery's payload.
        number: of deliveries, each to an endpoint of its own, up to a thousand.
        repeats: how often.
    """
    world.fresh()
    at_rest, peaks, held = [], [], []
    with world.connect() as connection:
        crowd = settle_in(world, connection, Crowd(0, min(number, IN_FLIGHT), f"{receiver.url}/held/"))
        for _ in range(repeats):
            wait(connection, crowd, number, body)
            receiver.hold()
            receiver.take()
            with claimer({**world.environment("claimer"), "FORBEAR_LINGER_S": "0"}) as function:
                at_rest.append(function.peak_mib())
                function.invoke()
                held.append(until_quiet(receiver))
                receiver.release()
                delivered = function.ended().tally["delivered"]
                peaks.append(function.peak_mib())
            if delivered != number:
                raise RuntimeError(f"{delivered} of {number} were delivered")
    conditions = {"payload_bytes": len(body), "deliveries": number, "in_flight": held, "max_batch_bytes": 32 << 20}
    yield Figure(NAME, f"claimer at rest, before {label}", "MiB", tuple(at_rest), conditions=conditions)
    yield Figure(NAME, f"claimer's peak, {label}", "MiB", tuple(peaks), at_most(GIVEN_MB), False, conditions)
    yield Figure(NAME, f"in flight at once, {label}", "count", tuple(map(float, held)), conditions=conditions)


def until_quiet(receiver: Recorder) -> int:
    """Wait until nothing more has come for a while. Gives how many requests wait for their answers.

    Raises:
        TimeoutError: nothing came, or it did not stop.
    """
    end = time.monotonic() + PATIENCE_S
    came, since = 0, time.monotonic()
    while not came or time.monotonic() < since + QUIET_S:
        if (now := receiver.came()) != came:
            came, since = now, time.monotonic()
        if time.monotonic() > end:
            raise TimeoutError(f"{came} requests came in {PATIENCE_S:g} s")
        time.sleep(0.02)
    return receiver.unanswered()
