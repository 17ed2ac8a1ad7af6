"""Replay killed (SIGKILL): an order that was stored is carried out, whoever hears of it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from infra.local.deployment import CLAIMER
from infra.torture.proxy import Called, Link, Where
from infra.torture.scenario import Round, Scenario

ROLE, CREATE, STEP = "forbear_replay", "INSERT INTO forbear.replays", "forbear.step_replay("


async def _dead_letters(played: Round) -> list[str]:
    """Events whose deliveries are dead; from now on the receiver takes them. Gives the deliveries' ids."""
    played.behave(lambda _receipt: 301)
    await played.endpoint()
    events = played.rng.randint(3, 30)
    await played.post(events)
    url = f"{played.world.stack.api_url}/v1/deliveries?limit=200&status=dead&tenant={played.tenant}"

    async def dead() -> list[str] | None:
        items = (await played.world.client.get(url)).json()["items"]
        return [item["id"] for item in items] if len(items) == events else None

    found: list[str] = await played.until(dead, "the deliveries to be dead")
    played.behave(lambda _receipt: 200)
    return found


def _killing(played: Round) -> Called:
    async def kill(link: Link) -> None:
        played.strike(calls=True)
        await played.world.kill_at("replay", link)

    return kill


async def _order(played: Round, order: dict[str, Any]) -> httpx.Response | None:
    try:
        return await played.replay(order)
    except httpx.TransportError:
        return None


async def after_commit(played: Round) -> None:
    """The order is stored, the operator not told, and gives it again: the second one finds nothing left to do.

    By a filter for the dead, that is certain. By names, what the first one has delivered by then is sent once more, as
    for any second replay: an order has no idempotency key.
    """
    names = await _dead_letters(played)
    by_filter = played.rng.random() < 0.5
    order = {"filter": {"tenant": played.tenant, "status": "dead"}} if by_filter else {"deliveries": names}
    step = played.world.proxy.at(ROLE, CREATE, "answered", _killing(played))
    first = await _order(played, order)
    await played.until(step.done.is_set, "the replay to be killed")
    played.expect(first is None or first.is_error, "the killed replay was answered")
    if played.rng.random() < 0.5:
        second = await _order(played, order)
        played.expect(second is not None and second.status_code == 202, "the repeated replay was not accepted")
    await played.drain()
    wanted = {2} if by_filter else {2, 3}
    await _generations(played, wanted)


async def amid_steps(played: Round) -> None:
    """One of its steps is under way: the claimer goes on with it, dead or alive."""
    await _dead_letters(played)
    where: Where = played.rng.choice(("before", "half", "first byte", "answered"))
    played.world.proxy.at(ROLE, STEP, where, _killing(played))
    if played.rng.random() < 0.5:

        async def kill_claimer(link: Link) -> None:
            await played.world.kill_at(CLAIMER, link)

        played.world.proxy.at(
            "forbear_claimer", "forbear.replay_step(", played.rng.choice(("before", "answered")), kill_claimer
        )
    await _order(played, {"filter": {"tenant": played.tenant, "status": "dead"}})
    await played.drain()
    await _generations(played, {2})


async def at_random(played: Round) -> None:
    """At a random instant of the call."""
    await _dead_letters(played)
    calling = asyncio.create_task(_order(played, {"filter": {"tenant": played.tenant, "status": "dead"}}))
    await played.until(lambda: played.world.pids("replay"), "the replay function")
    await asyncio.sleep(played.rng.uniform(0, 0.8))
    if not calling.done():
        played.strike(calls=True)
        await played.world.kill("replay")
    await calling
    if not played.in_flight:  # it was quicker: now it is warm, and is hit between two messages
        played.world.proxy.at(ROLE, "", "before", _killing(played))
        await _order(played, {"filter": {"tenant": played.tenant, "status": "dead"}})
    await _order(played, {"filter": {"tenant": played.tenant, "status": "dead"}})
    await played.drain()
    await _generations(played, {2})


async def _generations(played: Round, wanted: set[int]) -> None:
    rows = await played.world.sql(
        "SELECT DISTINCT d.generation FROM forbear.deliveries d JOIN forbear.lanes l USING (endpoint_id) "
        "WHERE l.tenant = %s",
        played.tenant,
    )
    found = {row[0] for row in rows}
    played.expect(found <= wanted, f"the deliveries have had {found} generations, and not {wanted}")


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("replay-killed-after-commit", "A stored order is carried out, and a repeat does no harm.", after_commit),
    Scenario("replay-killed-amid-steps", "What a dead replay has begun is ended by claimers.", amid_steps),
    Scenario("replay-killed-at-random", "Whenever it dies, asking again puts each dead letter back once.", at_random),
)
