"""Ingest killed (SIGKILL): whatever the producer was not told, repeating it under the same key stores it once."""

from __future__ import annotations

import asyncio

from infra.local.deployment import CLAIMER
from infra.torture.proxy import Called, Link, Where
from infra.torture.scenario import Round, Scenario

ROLE, INGEST = "forbear_ingest", "forbear.ingest("


def _killing(played: Round) -> Called:
    async def kill(link: Link) -> None:
        played.strike(calls=True)
        await played.world.kill_at("ingest", link)

    return kill


async def before_statement(played: Round) -> None:
    """The statement never arrives, or half of it."""
    await played.endpoint()
    played.world.proxy.at(ROLE, INGEST, played.rng.choice(("before", "half")), _killing(played))
    await played.post(played.rng.randint(1, 12))


async def after_commit(played: Round) -> None:
    """The event is committed, the producer not told: its repeat is a duplicate of the one event."""
    await played.endpoint()
    if played.rng.random() < 0.5:
        await played.asleep()
    where: Where = played.rng.choice(("answered", "first byte"))
    kills = played.rng.randint(1, 2)
    played.world.proxy.at(ROLE, INGEST, where, _killing(played), times=kills)
    await played.post(played.rng.randint(2, 12))
    played.expect(played.duplicates >= 1, "the repeat of a stored event was not answered as a duplicate")
    await played.drain()
    # The dead one may have been told to call a claimer, and all others relied on that: the repeat does not.
    played.expect(not played.swept, "only the sweep found what was stored")


async def of_batch(played: Round) -> None:
    """A batch, at any of its steps: all of it or nothing, and once."""
    await played.endpoint()
    where: Where = played.rng.choice(("before", "half", "answered", "first byte"))
    played.world.proxy.at(ROLE, INGEST, where, _killing(played))
    events = await played.post_batch(played.rng.randint(2, 60))
    stored = where in {"answered", "first byte"}
    expected = len(events) if stored else 0
    played.expect(
        played.duplicates == expected, f"killed at {where}, {played.duplicates} of the repeats are duplicates"
    )


async def at_random(played: Round) -> None:
    """All of its environments, several times, at random instants of a burst."""
    await played.endpoint("/a")
    await played.endpoint("/b")
    posting = asyncio.create_task(played.post(played.rng.randint(40, 120)))
    for _ in range(played.rng.randint(1, 3)):
        await asyncio.sleep(played.rng.uniform(0.05, 0.4))
        if posting.done():
            break
        await played.until(lambda: played.world.pids("ingest") or posting.done(), "an ingest to be there")
        if posting.done():
            break
        played.strike(calls=True)
        await played.world.kill("ingest")
    await posting


async def with_everything(played: Round) -> None:
    """Ingest and claimers, all of them at once."""
    await played.endpoint()
    played.hold()
    posting = asyncio.create_task(played.post(played.rng.randint(30, 60)))
    await played.until(played.open, "a request to be open")
    await asyncio.sleep(played.rng.uniform(0, 0.2))
    played.strike()
    await asyncio.gather(*(played.world.kill(function) for function in ("ingest", CLAIMER, "manage", "replay")))
    played.release()
    await posting


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("ingest-killed-before-statement", "What was not stored is stored by the repeat.", before_statement),
    Scenario("ingest-killed-after-commit", "What was stored and not acknowledged is there once.", after_commit),
    Scenario("ingest-killed-with-batch", "A batch is stored as a whole, once.", of_batch),
    Scenario("ingest-killed-at-random", "Whenever ingests die, each event is there once.", at_random),
    Scenario("everything-killed", "Nothing depends on any process remembering.", with_everything),
)
