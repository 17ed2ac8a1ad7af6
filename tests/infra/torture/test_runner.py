"""Rounds are judged: kept, void, lost, stuck and broken ones, and the world serves the next one all the same."""

from __future__ import annotations

import asyncio

import pytest

from infra.torture.runner import Outcome, order, play
from infra.torture.scenario import Round, Scenario
from infra.torture.showing import document, line, markdown, rows, troubles, verdict


async def harmless(played: Round) -> None:
    """Requests are in flight, and nothing happens to them."""
    await played.endpoint()
    played.hold()
    await played.post(2)
    await played.until(lambda: len(played.open()) == 2, "two requests to be open")
    played.strike()
    played.release()


async def void(played: Round) -> None:
    """Nothing is in flight."""
    played.strike()


async def losing(played: Round) -> None:
    """A row is deleted behind everybody's back."""
    await harmless(played)
    await played.drain()
    played.hold()
    await played.post()
    await played.until(played.open, "a request to be open")
    await played.world.sql(
        "DELETE FROM forbear.queue q USING forbear.lanes l WHERE l.endpoint_id = q.endpoint_id AND l.tenant = %s",
        played.tenant,
    )


async def repeating(played: Round) -> None:
    """A delivered row is put back behind everybody's back."""
    await harmless(played)
    await played.drain()
    await played.world.sql(
        "INSERT INTO forbear.queue (id, event_id, endpoint_id, due_at, payload_bytes, attempts) "
        "SELECT d.id, d.event_id, d.endpoint_id, forbear.now(), d.payload_bytes, d.attempts "
        "FROM forbear.deliveries d JOIN forbear.lanes l USING (endpoint_id) WHERE l.tenant = %s LIMIT 1",
        played.tenant,
    )
    await played.world.sql(
        "UPDATE forbear.lanes SET ready_at = forbear.now(), low_water = '-infinity' WHERE tenant = %s", played.tenant
    )


async def stuck(played: Round) -> None:
    """The endpoint is paused, and nobody resumes it."""
    await harmless(played)
    await played.drain()
    endpoint = await played.endpoint("/paused")
    response = await played.world.client.post(f"{played.world.stack.api_url}/v1/endpoints/{endpoint}/pause")
    response.raise_for_status()
    await played.post()


async def failing(played: Round) -> None:
    """The scenario itself is at fault."""
    await harmless(played)
    raise LookupError("no such thing")


def scenarios(*plays: object) -> list[Scenario]:
    return [Scenario(play.__name__, "None.", play) for play in plays]  # type: ignore[attr-defined, arg-type]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.torture.runner.DRAIN_S", 6.0)


@pytest.mark.timeout(240)
async def test_every_kind_of_round_is_judged_for_what_it_is() -> None:
    chosen = scenarios(harmless, void, losing, repeating, stuck, failing, harmless)
    told: list[str] = []
    outcomes = [
        outcome
        async for outcome in play(
            order(chosen, len(chosen), 5, shuffled=False), on_round=lambda scenario, _: told.append(scenario.name)
        )
    ]
    assert told == [scenario.name for scenario in chosen]
    kept, empty, lost, repeated, left, broken, after = outcomes

    assert (kept.kept, kept.in_flight, kept.account.delivered) == (True, 2, 2)
    assert (empty.void, empty.kept, empty.problems) == (True, False, ())
    assert (lost.account.lost, lost.kept, lost.void) == (1, False, False)
    assert (repeated.account.unexplained, repeated.kept) == (1, False)
    assert (left.stuck, left.kept) == (1, False)
    assert any("held True" in problem for problem in left.problems)
    assert broken.problems == ("the scenario failed: LookupError: no such thing",)
    assert after.kept, after.problems

    assert verdict(outcomes) == "4 broken, 1 void"
    assert list(rows(outcomes))[-1][:2] == ("in all", "7")
    wrong = "\n".join(troubles(outcomes))
    assert "again: forbear torture losing --seed 7" in wrong
    assert wrong in markdown(outcomes, 60.0)
    assert line(empty).endswith("0 in flight: 1 void")
    assert document(lost)["lost"] == 1


def test_a_seed_gives_the_same_rounds() -> None:
    chosen = scenarios(harmless, void, losing, stuck)

    def names(seed: int, *, shuffled: bool) -> list[tuple[str, int]]:
        return [(scenario.name, at) for scenario, at in order(chosen, 9, seed, shuffled=shuffled)]

    assert names(3, shuffled=False)[:5] == [("harmless", 3), ("void", 4), ("losing", 5), ("stuck", 6), ("harmless", 7)]
    assert names(3, shuffled=True) == names(3, shuffled=True)
    assert len({tuple(names(seed, shuffled=True)) for seed in range(5)}) > 1
    assert {name for name, _ in names(3, shuffled=True)[:4]} == {"harmless", "void", "losing", "stuck"}


async def test_a_run_that_is_broken_off_leaves_nothing_behind() -> None:
    begun = asyncio.Event()

    async def collect() -> list[Outcome]:
        plan = order(scenarios(harmless), 100, 1, shuffled=False)
        return [outcome async for outcome in play(plan, on_round=lambda _scenario, _seed: begun.set())]

    running = asyncio.create_task(collect())
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
