"""The runtime at fault: frozen environments, ticks twice or not at all, deadlines, no memory, no descriptors.

Two versions of the code at once are missing here: there is one version yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from infra.local.deployment import CLAIMER, TICK
from infra.torture.faults import in_flight, limited, pause, standing_still, traffic, with_connections_to
from infra.torture.scenario import Round, Scenario

INGEST = "ingest"
TICKED, WOKEN = b'{"forbear": "tick"}', b'{"forbear": "wake"}'
# Longer than any lease here, and any mark.
LONG_S = 60.0
# A claimer breaks off what is in flight 3 s before its end, and hands on when half of a short time is over.
ABANDON_S = 3.0
# What a process may have of memory beside what it has.
SCANT_BYTES = 1 << 20


async def frozen(played: Round) -> None:
    """Busy and idle environments alike; meanwhile the receivers and PostgreSQL hang up on them."""
    world = played.world
    async with traffic(played):
        await _warm(played)
        for _ in range(played.rng.randint(1, 2)):
            await in_flight(played, 2)
            await pause(played, 0.2)
            played.strike()
            with standing_still(world.pids(CLAIMER) + world.pids(INGEST)):
                await pause(played, 0.3)
                world.receivers.hang_up()
                world.proxy.cut()
                await pause(played, 0.5)
    await _ingest_answers(played)


async def frozen_beyond_its_lease(played: Round) -> None:
    """Another claimer takes over; then the first one comes back with what it got."""
    world = played.world
    await played.endpoint()
    await _no_claimers(played)
    posted = await _hang(played)
    played.strike()
    # Not the idle ones: whom an invocation goes to is thawed for it.
    with standing_still(_holding(played)):
        await world.move_clock(LONG_S)
        world.stack.functions.invoke_async(CLAIMER, WOKEN)
        # Some have been taken over and some not when it goes on.
        await in_flight(played, posted + played.rng.randint(1, posted))
        if played.rng.random() < 0.5:
            played.release()
            await pause(played, 0.5)
    played.release()


async def ticks_twice_and_late(played: Round) -> None:
    """The schedule fires twice at once, not for a while, and late; claimers die meanwhile."""
    world = played.world
    schedule, *_ = world.stack.scheduler.get(TICK)
    async with traffic(played):
        for _ in range(played.rng.randint(1, 3)):
            await in_flight(played, 1)
            for _ in range(played.rng.randint(2, 4)):
                world.stack.functions.invoke_async(CLAIMER, TICKED)
            await pause(played, 0.2)
        played.strike()
        world.stack.scheduler.update(replace(schedule, enabled=False))
        await world.kill(CLAIMER)
        await pause(played, 1.5, 0.5)
    schedule, *_ = world.stack.scheduler.get(TICK)
    world.stack.scheduler.update(replace(schedule, enabled=True))
    world.stack.functions.invoke_async(CLAIMER, TICKED)
    world.stack.functions.invoke_async(CLAIMER, TICKED)


async def killed_at_its_deadline(played: Round) -> None:
    """The database says nothing any more when the claimer's time ends: Lambda ends it."""
    world = played.world
    async with _short_claimers(played, ABANDON_S + played.rng.uniform(2.0, 3.0)):
        played.hold()
        coming = asyncio.create_task(played.post(played.rng.randint(5, 20)))
        await in_flight(played, 1)
        # At once, before it breaks them off by itself.
        world.proxy.freeze("forbear_claimer")
        played.strike()
        pids = _holding(played)
        await coming
        await played.until(lambda: set(pids) - set(world.pids(CLAIMER)), "the claimer's deadline")
    world.proxy.thaw()
    played.release()


async def hands_on_before_its_deadline(played: Round) -> None:
    """In order: it claims no more, calls a successor, breaks off what does not end and gives it up."""
    async with _short_claimers(played, 2 * ABANDON_S + played.rng.uniform(0.5, 1.5)):
        posted = await _hang(played)
        played.strike()
        # What hangs is broken off before the end, and comes again from the successor.
        await played.until(lambda: len(played.got()) > posted, "a successor")
    played.release()


async def memory_short(played: Round) -> None:
    """No more memory for a while: whatever it is that cannot be had, what is in hand comes to its end."""
    async with traffic(played):
        for _ in range(played.rng.randint(1, 3)):
            await in_flight(played, 2)
            played.strike()
            pids = played.world.pids(CLAIMER)
            amount = min(map(_address_space, pids), default=0) + played.rng.randrange(SCANT_BYTES)
            with limited(pids, "as", amount):
                await asyncio.gather(played.post(10), pause(played, 0.8, 0.2))
        # An event loop that could not run its callbacks may hang until the function's deadline.
        await played.world.kill(CLAIMER)


async def descriptors_short(played: Round) -> None:
    """No file or socket can be opened: deliveries wait for it, and none ends for that reason."""
    async with traffic(played):
        await in_flight(played, 2)
        played.strike()
        pids = played.world.pids(CLAIMER) + played.world.pids(INGEST)
        with limited(pids, "nofile", played.rng.randint(3, 12)):
            # Kept connections are gone, so that new ones are wanted.
            played.world.receivers.hang_up()
            for _ in range(played.rng.randint(2, 5)):
                await pause(played, 0.3, 0.1)
                await played.world.move_clock(5)  # as if it lasted
            played.world.proxy.cut(played.rng.choice([None, "forbear_claimer", "forbear_ingest"]))
            await pause(played, 0.5)


async def _warm(played: Round) -> None:
    """Some more environments, which then are idle."""
    for _ in range(2):
        played.world.stack.functions.invoke_async(CLAIMER, WOKEN)
    await pause(played, 0.5)


async def _ingest_answers(played: Round) -> None:
    """The first call after a thaw succeeds."""
    before = played.repeats
    await played.post()
    played.expect(played.repeats == before, "the first event after the thaw was refused")


async def _no_claimers(played: Round) -> None:
    """End those that earlier rounds have left, and their marks."""
    await played.world.kill(CLAIMER)
    await played.world.move_clock(LONG_S)


async def _hang(played: Round) -> int:
    """Have requests hang; gives their number."""
    played.hold()
    posted = played.rng.randint(5, 20)
    await played.post(posted)
    await in_flight(played, posted)
    return posted


def _holding(played: Round) -> list[int]:
    """The claimers that have requests in flight."""
    return with_connections_to(played.world.receivers.port, played.world.pids(CLAIMER))


@asynccontextmanager
async def _short_claimers(played: Round, timeout_s: float) -> AsyncIterator[None]:
    """Claimers whose time ends in so many seconds, for as long as the block lasts; none is there yet."""
    functions = played.world.stack.functions
    as_it_was = functions.spec(CLAIMER).timeout_s
    await played.endpoint()
    functions.set_timeout(CLAIMER, timeout_s)
    await _no_claimers(played)
    try:
        yield
    finally:
        functions.set_timeout(CLAIMER, as_it_was)


def _address_space(pid: int) -> int:
    """Bytes of it that a process has (proc(5), statm)."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[0]) * 4096
    except (OSError, IndexError):
        return 0


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("environments-frozen", "The first call after a thaw succeeds, whoever hung up meanwhile.", frozen),
    Scenario(
        "claimer-frozen-beyond-its-lease",
        "What others took over while a claimer was frozen keeps their result.",
        frozen_beyond_its_lease,
    ),
    Scenario("ticks-twice-and-late", "Ticks may come twice, late or not at all.", ticks_twice_and_late),
    Scenario(
        "claimer-ended-at-its-deadline",
        "A claimer whose time ends in mid-flight loses nothing.",
        killed_at_its_deadline,
    ),
    Scenario(
        "claimer-hands-on-before-its-deadline",
        "A claimer whose time is nearly up gives up what it holds to a successor.",
        hands_on_before_its_deadline,
    ),
    Scenario("claimer-short-of-memory", "Without memory nothing is lost.", memory_short),
    Scenario("functions-short-of-descriptors", "Without descriptors deliveries wait; none is dead.", descriptors_short),
)
