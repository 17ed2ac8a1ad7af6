"""Claimers killed (SIGKILL): at each step of claim, send and settle, on last attempts, as probes, one after another."""

from __future__ import annotations

import asyncio
from typing import Any

from infra.local.deployment import CLAIMER
from infra.torture.ledger import Receipt
from infra.torture.proxy import Called, Link, Where
from infra.torture.scenario import QUICK, Round, Scenario

ROLE = "forbear_claimer"
CLAIM, SETTLE, ASLEEP = "forbear.claim(", "forbear.settle(", "DELETE FROM forbear.claimers"
LOOK = "forbear.outlook("
# A lease is the timeout and 30 s (the SQL function forbear.claim).
LEASE_S = QUICK["timeout_s"] + 30
# What a claimer says while requests are in flight; any of these may be its last words.
_SAYS = (CLAIM, SETTLE, "forbear.reap(", "forbear.stay_awake(", "forbear.replay_step(", "forbear.outlook(")
_POINTS: tuple[Where, ...] = ("before", "half", "first byte", "answered")


def killing(played: Round) -> Called:
    """What strikes and kills the claimer whose connection it is at."""

    async def kill(link: Link) -> None:
        played.strike()
        await played.world.kill_at(CLAIMER, link)

    return kill


async def at_random(played: Round) -> None:
    """All claimers, at a random instant of a stream of events to receivers that take their time."""

    async def answer(_receipt: Receipt) -> int:
        await asyncio.sleep(played.rng.uniform(0, 0.4))
        return 200

    played.behave(answer)
    await played.endpoint("/a")
    await played.endpoint("/b")
    for _ in range(played.rng.randint(1, 2)):
        posting = asyncio.create_task(played.post(played.rng.randint(10, 40)))
        await played.until(played.open, "a request to be open")
        await asyncio.sleep(played.rng.uniform(0, 0.3))
        await played.until(played.open, "a request to be open")
        played.strike()
        await played.world.kill(CLAIMER)
        await posting


async def any_words(played: Round) -> None:
    """One claimer, at a random step of a random statement, while requests are open."""
    says, where = played.rng.choice(_SAYS), played.rng.choice(_POINTS)
    skip = played.rng.randrange(4)
    struck = asyncio.Event()

    async def kill(link: Link) -> None:
        nonlocal skip
        if struck.is_set() or not played.open():
            return
        skip -= 1
        if skip < 0:
            struck.set()
            await killing(played)(link)

    async def answer(_receipt: Receipt) -> int:
        await asyncio.sleep(played.rng.uniform(0.1, 0.6))
        return 200

    played.behave(answer)
    await played.endpoint()
    played.world.proxy.at(ROLE, says, where, kill, times=10_000)
    for _ in range(20):
        await played.post(played.rng.randint(2, 8))
        if struck.is_set():
            return
    # Some words are not spoken while there is something to do: then it is killed without having said them.
    await played.until(lambda: struck.is_set() or played.open(), "a request to be open")
    if not struck.is_set():
        struck.set()
        played.strike()
        await played.world.kill(CLAIMER)


async def after_claim(played: Round) -> None:
    """The claim is committed, its answer on the way: leases that nobody knows of."""
    await played.endpoint()
    where: Where = played.rng.choice(("answered", "first byte"))
    step = played.world.proxy.at(ROLE, CLAIM, where, killing(played), least_rows=1)
    await played.post_batch(played.rng.randint(3, 60))
    await played.until(step.done.is_set, "a claim to be killed")


async def while_sending(played: Round) -> None:
    """Some requests are answered and settled, the others open."""
    await played.endpoint("/quick")
    await played.endpoint("/slow")
    played.hold("/slow")
    events = played.rng.randint(5, 40)
    await played.post(events)
    await played.until(lambda: len(played.open()) == events, "every slow request to be open")
    played.strike()
    await played.world.kill(CLAIMER)
    played.release("/slow")


async def _at_settle(played: Round, where: Where) -> None:
    await played.endpoint()
    played.hold()
    events = played.rng.randint(5, 40)
    await played.post(events)
    await played.until(lambda: len(played.open()) == events, "every request to be open")

    async def note(_link: Link) -> None:
        played.strike()

    async def kill(link: Link) -> None:
        await played.world.kill_at(CLAIMER, link)

    # Counted as the settle is said: a committed one leaves nothing in flight.
    played.world.proxy.at(ROLE, SETTLE, "before", note)
    step = played.world.proxy.at(ROLE, SETTLE, where, kill)
    played.release()
    await played.until(step.done.is_set, "a settle to be killed")


async def before_settle(played: Round) -> None:
    """Requests have been answered; the settle is said and never arrives."""
    await played.endpoint()
    step = played.world.proxy.at(ROLE, SETTLE, "before", killing(played))
    await played.post(played.rng.randint(5, 40))
    await played.until(step.done.is_set, "a settle to be killed")


async def amid_settle(played: Round) -> None:
    """Half of the batch's bytes arrive."""
    await _at_settle(played, "half")


async def after_settle(played: Round) -> None:
    """The batch is committed, its answer on the way: nothing of it may go out again."""
    await _at_settle(played, played.rng.choice(("answered", "first byte")))


async def on_last_attempt(played: Round) -> None:
    """With one attempt left, its claimer dies; what comes after the lease is a verdict all the same."""
    fails = played.rng.random() < 0.5
    policy = QUICK | {"schedule": {"kind": "ladder", "gaps_s": [1], "retries": 1, "jitter": {"kind": "none"}}}

    def answer(receipt: Receipt) -> int:
        return 500 if receipt.number == 1 or fails else 200

    played.behave(answer)
    await played.endpoint(policy=policy)
    events = played.rng.randint(2, 10)
    await played.post(events)
    await played.until(lambda: len(played.got()) == events and not played.open(), "the first attempts")
    played.hold()
    await played.world.move_clock(1)
    await played.until(lambda: len(played.open()) == events, "the last attempts to be open")
    played.strike()
    await played.world.kill(CLAIMER)
    played.release()
    await played.drain()
    states = {row[0] for row in await _ends(played)}
    played.expect(states == {"exhausted" if fails else None}, f"the last attempt's crash ended in {states}")


async def as_probe(played: Round) -> None:
    """The half-open breaker's probe is in flight: another one goes when its lease has lapsed, and not before."""
    fails = True
    policy = QUICK | {"breaker": {"failures": 2, "cooldown_s": 20, "cooldown_cap_s": 20}}
    played.behave(lambda _receipt: 500 if fails else 200)
    endpoint = await played.endpoint(policy=policy)
    await played.post(played.rng.randint(3, 10))
    await _breaker(played, "open", endpoint)
    await played.until(lambda: not played.open(), "the failures to have been answered")
    fails = False
    played.hold()
    got = len(played.got())
    await played.world.move_clock(21)
    await played.until(played.open, "the probe")
    played.strike()
    await played.world.kill(CLAIMER)
    await _looks(played, 3)
    played.expect(len(played.got()) == got + 1, "another probe went while the first one's lease stood")
    await played.world.move_clock(LEASE_S + 1)
    await played.until(played.open, "the second probe")
    await _looks(played, 3)
    played.expect(len(played.got()) == got + 2, "more than one probe went at a time")
    played.release()


async def one_after_the_other(played: Round) -> None:
    """Four lost attempts and then a success, or five: dead, so that a payload which kills its sender ends too."""
    kills = played.rng.choice((4, 5))
    await played.endpoint()
    played.hold()
    events = played.rng.randint(1, 6)
    await played.post(events)
    for _ in range(kills):
        await played.until(lambda: len(played.open()) == events, "every request to be open")
        played.strike()
        await played.world.kill(CLAIMER)
        await played.world.move_clock(LEASE_S + 1)
    played.release()
    await played.drain()
    ends = {row[0] for row in await _ends(played)}
    played.expect(ends == ({None} if kills == 4 else {"lost"}), f"{kills} lost attempts ended in {ends}")


async def falling_asleep(played: Round) -> None:
    """An event comes in the very moment in which a claimer goes to sleep, and dies over it: no sweep is needed."""
    words = ("DELETE FROM forbear.claimers WHERE id", "SET schedule", "forbear.outlook(")
    says = played.rng.choice(words)
    where: Where = played.rng.choice(("before", "answered"))
    killed = asyncio.Event()

    async def wait(link: Link) -> None:
        # The event is stored, and its ingest has looked for a mark, before the claimer dies.
        async def kill(_ingest: Link) -> None:
            played.strike(calls=True)
            await played.world.kill_at(CLAIMER, link)
            killed.set()

        played.world.proxy.at("forbear_ingest", "forbear.ingest(", "answered", kill)
        posting = asyncio.create_task(played.post())
        await killed.wait()
        tasks.append(posting)

    tasks: list[asyncio.Task[Any]] = []
    await played.endpoint()
    await played.post()
    await played.until(lambda: played.got() and not played.open(), "the first delivery")
    played.world.proxy.at(ROLE, says, where, wait)
    await played.until(lambda: tasks, "the claimer to go to sleep")
    await asyncio.gather(*tasks)
    await played.drain()
    played.expect(not played.swept, f"only the sweep found it ({says}, {where})")


async def _ends(played: Round) -> list[tuple[Any, ...]]:
    return await played.world.sql(
        "SELECT d.reason FROM forbear.deliveries d JOIN forbear.lanes l USING (endpoint_id) WHERE l.tenant = %s",
        played.tenant,
    )


async def _breaker(played: Round, state: str, endpoint: str) -> None:
    async def is_it() -> bool:
        url = f"{played.world.stack.api_url}/v1/endpoints/{endpoint}"
        return bool((await played.world.client.get(url)).json()["circuit"]["state"] == state)

    await played.until(is_it, f"the breaker to be {state}")


async def _looks(played: Round, number: int) -> None:
    """Wait until claimers have looked for work so many times more."""

    def looks() -> int:
        return sum(played.world.proxy.count(ROLE, words) for words in (CLAIM, LOOK))

    before = looks()
    await played.until(lambda: looks() >= before + number, f"{number} looks for work")


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("claimer-killed-at-random", "Whenever claimers die, only what was in flight comes again.", at_random),
    Scenario("claimer-killed-at-any-statement", "No statement's loss, half-way or answer hurts.", any_words),
    Scenario("claimer-killed-after-claim", "Leases that nobody knows of lapse and are taken over.", after_claim),
    Scenario("claimer-killed-while-sending", "Requests that were open come again, settled ones do not.", while_sending),
    Scenario(
        "claimer-killed-before-settle", "What was sent and not settled comes again after its lease.", before_settle
    ),
    Scenario("claimer-killed-amid-settle", "Half a batch is none: all of it comes again.", amid_settle),
    Scenario("claimer-killed-after-settle", "A committed batch counts, although its answer was lost.", after_settle),
    Scenario(
        "claimer-killed-on-last-attempt",
        "The last attempt's crash still ends in a verdict.",
        on_last_attempt,
        may_die=frozenset({"exhausted"}),
    ),
    Scenario("claimer-killed-as-probe", "A breaker's probe is replaced after its lease, by exactly one.", as_probe),
    Scenario(
        "claimers-killed-one-after-the-other",
        "Five lost attempts end a delivery (lost), four do not.",
        one_after_the_other,
        may_die=frozenset({"lost"}),
    ),
    Scenario("claimer-killed-falling-asleep", "No event is overlooked when its claimer goes to sleep.", falling_asleep),
)
