"""What a scenario is, and one round of it: a tenant of its own, its endpoints, its events and its books.

Owns what a round does to the world in order to have something to lose, notes what is in flight when the fault strikes,
and lets everything come to its end. What the faults are is the scenarios'; what the books say is the ledger's.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx
import psycopg

from infra.local.deployment import CLAIMER, TICK
from infra.torture import standing
from infra.torture.ledger import Account, Acknowledged, Delivery, Receipt, balance
from infra.torture.world import World, until

# Quick, and without what a scenario has not asked for: a breaker, a budget, being disabled.
QUICK: dict[str, Any] = {
    "schedule": {"kind": "ladder", "gaps_s": [1, 1, 1, 1], "jitter": {"kind": "none"}},
    "breaker": None,
    "disable": None,
    "budget": None,
    "timeout_s": 10,
}
# A producer's patience: attempts under one key, and the pause between them.
_POSTS, _PAUSE_S = 30, 0.3
_POSTING_AT_ONCE = 16
# Due, and nobody comes: what the sweep finds within six hours, so long after the schedule has come to rest, or (then
# its ticks should have found it) has kept ticking.
_SWEEP_AT_REST_S, _SWEEP_TICKING_S = 2.0, 12.0
_SWEEP = b'{"forbear": "sweep"}'


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault, and what must hold all the same.

    Attributes:
        name: in kebab case.
        promise: one sentence.
        play: brings the fault about; when it returns, the runner drains and closes the books.
        may_die: the reasons for which deliveries may end dead in it; otherwise all must be delivered.
    """

    name: str
    promise: str
    play: Callable[[Round], Awaitable[None]]
    may_die: frozenset[str] = frozenset()


@dataclass
class Round:
    """One round's view of the world.

    Attributes:
        world: where it is played.
        rng: for every choice of a number, instant or order.
        tenant: this round's own; also the first segment of its receivers' paths.
        in_flight: requests in flight at each strike.
        swept: how often only the sweep found what was due.
        repeats: posts that were made again under their key.
        duplicates: posts that were answered as duplicates.
        unacknowledged: posts that were never answered.
        acknowledged: the events, by their ids.
        problems: what a scenario found wrong.
    """

    world: World
    rng: Random
    tenant: str
    in_flight: list[int] = field(default_factory=list)
    swept: int = 0
    repeats: int = 0
    duplicates: int = 0
    unacknowledged: int = 0
    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _calls: int = 0
    _endpoints: int = 0

    @property
    def path(self) -> str:
        """The path below which all of the round's receivers are."""
        return f"/{self.tenant}"

    # What a scenario does.

    async def endpoint(self, path: str = "/", *, url: str | None = None, **more: Any) -> str:
        """Make an endpoint; gives its id.

        Args:
            path: which of the round's receivers it is.
            url: where it is instead, if not at the counting receivers.
            more: further members of the request; without a policy it is a quick one without a breaker.
        """
        where = url or f"{self.world.receivers.url}{self.path}{path}"
        body = {"tenant": self.tenant, "url": where, "policy": QUICK, **more}
        response = await self.world.client.post(f"{self.world.stack.api_url}/v1/endpoints", json=body)
        response.raise_for_status()
        return str(response.json()["id"])

    async def post(self, n: int = 1, *, event_type: str = "torture.round") -> list[str]:
        """Post events, several at a time, each under a key of its own, until they are acknowledged; gives their ids.

        On errors of the server, timeouts and lost connections it posts again under the same key; what is not
        acknowledged in the end is missing from the ids and counted.
        """
        room = asyncio.Semaphore(_POSTING_AT_ONCE)

        async def one(payload: str, key: str) -> str | None:
            async with room:
                return await self._post(payload, key, event_type)

        # Chosen first, in order, so that a seed gives the same ones.
        chosen = [
            (json.dumps({"n": place, "filler": "x" * self.rng.randrange(200)}), f"{self.rng.getrandbits(128):032x}")
            for place in range(n)
        ]
        answers = await asyncio.gather(*(one(payload, key) for payload, key in chosen))
        return [event for event in answers if event is not None]

    async def post_batch(self, n: int) -> list[str]:
        """Post one batch likewise; gives the ids of its events."""
        payloads = [json.dumps({"n": place}) for place in range(n)]
        key = f"{self.rng.getrandbits(128):032x}"
        events = ",".join(
            f'{{"tenant":"{self.tenant}","type":"torture.batch","payload":{payload}}}' for payload in payloads
        )
        answer = await self._until_acknowledged("/v1/events/batch", f'{{"events":[{events}]}}', key, 207)
        if answer is None:
            self.unacknowledged += n
            return []
        for result, payload in zip(answer["results"], payloads, strict=True):
            if result["status"] == 202:
                self.duplicates += result["duplicate"]
                self.acknowledged[result["id"]] = Acknowledged(result["deliveries"], payload.encode())
        return [result["id"] for result in answer["results"] if result["status"] == 202]

    async def replay(self, order: dict[str, Any]) -> httpx.Response:
        """Ask the replay function, once."""
        if self.world.stack.replay_url is None:
            raise RuntimeError("the stack has a replay function")
        self._calls += 1
        try:
            return await self.world.client.post(self.world.stack.replay_url, json=order)
        finally:
            self._calls -= 1

    def strike(self, *, calls: bool = False) -> None:
        """Note what is in flight now; to be called right before the fault.

        Args:
            calls: count the producer's and the operator's calls, which the fault concerns, and not the deliveries:
                those that are open at the receivers, or leased.
        """
        self.in_flight.append(self._calls if calls else max(len(self.open()), self._leased()))

    def expect(self, holds: object, otherwise: str) -> None:
        """Note a problem unless something holds that the books cannot know."""
        if not holds:
            self.problems.append(otherwise)

    def hold(self, path: str = "") -> None:
        """Have the round's receivers, or those below a path, answer nothing until `release`."""
        self.world.receivers.hold(f"{self.path}{path}")

    def release(self, path: str = "") -> None:
        """Have them answer again, what is held too."""
        self.world.receivers.release(f"{self.path}{path}")

    def behave(self, answer: Callable[[Receipt], Awaitable[int] | int], path: str = "") -> None:
        """Have them answer what this gives."""
        self.world.receivers.behave(f"{self.path}{path}", answer)

    def got(self) -> list[Receipt]:
        """What the round's receivers have got, in order."""
        return self.world.receivers.got(self.path)

    def open(self) -> list[Receipt]:
        """What they have not answered yet, and whose sender is still there."""
        return self.world.receivers.open(self.path)

    async def asleep(self) -> None:
        """Wait until no claimer is awake and the schedule rests: then it is for ingest alone to call one."""

        async def are_they() -> bool:
            rows = await self.world.sql(
                "SELECT 1 FROM forbear.control c WHERE c.schedule = 'resting' "
                "AND NOT EXISTS (SELECT FROM forbear.claimers WHERE awake_until > forbear.now())"
            )
            return bool(rows)

        await until(are_they, "claimers to fall asleep")

    async def until(self, condition: Callable[[], Any], what: str, patience_s: float = 20.0) -> Any:
        """Wait for a condition; see `infra.torture.world.until`."""
        return await until(condition, what, patience_s)

    # What the runner does in the end.

    async def drain(self, patience_s: float = 30) -> None:
        """Let everything of this tenant come to its end; gives up after so many seconds.

        It heals nothing. It moves the clock on to when something is due, a lease lapses or a bar falls, but only when
        nothing moves; what is due is found by the schedule's tick, and what is not found, by the sweep.
        """
        end = time.monotonic() + patience_s
        seen: Any = None
        still_since = swept_at = time.monotonic()
        while time.monotonic() < end:
            try:
                now_there = await standing.unfinished(self.world.sql, self.tenant)
            except psycopg.OperationalError:
                await asyncio.sleep(0.2)
                continue
            if now_there is None:
                return
            now = time.monotonic()
            if now_there.rows != seen or self.open():
                seen, still_since = now_there.rows, now
            elif now_there.next_s > 0 and now - still_since > now_there.still_s:
                await self.world.move_clock(now_there.next_s + 0.01)
                still_since = swept_at = now
            elif now_there.next_s <= 0 and now - max(still_since, swept_at) > self._sweep_after_s():
                self._sweep()
                swept_at = now
            await asyncio.sleep(0.05)

    async def close(self, may_die: frozenset[str]) -> Account:
        """Close the books: what the database says of each delivery, and the API alike."""
        shown = await self._shown()
        kept = await standing.ends(self.world.sql, self.tenant)
        account = balance(
            self.acknowledged,
            self.got(),
            kept,
            await standing.attempts(self.world.sql, self.tenant),
            stored=await standing.events(self.world.sql, self.tenant),
            unacknowledged=self.unacknowledged,
            may_die=may_die,
        )
        if sorted(shown, key=str) != sorted(kept, key=str):
            self.problems.append(f"the API shows {len(shown)} deliveries, not all of them as the database has them")
        return account

    async def _post(self, payload: str, key: str, event_type: str) -> str | None:
        body = f'{{"tenant":"{self.tenant}","type":"{event_type}","payload":{payload}}}'
        answer = await self._until_acknowledged("/v1/events", body, key, 202)
        if answer is None:
            self.unacknowledged += 1
            return None
        self.duplicates += answer["duplicate"]
        self.acknowledged[answer["id"]] = Acknowledged(answer["deliveries"], payload.encode())
        return str(answer["id"])

    async def _until_acknowledged(self, path: str, body: str, key: str, expected: int) -> dict[str, Any] | None:
        for attempt in range(_POSTS):
            self.repeats += attempt > 0
            self._calls += 1
            try:
                response = await self.world.client.post(
                    f"{self.world.stack.api_url}{path}",
                    content=body,
                    headers={"content-type": "application/json", "idempotency-key": key},
                )
            except httpx.TransportError:
                pass
            else:
                if response.status_code == expected:
                    return dict(response.json())
                if response.status_code < 500:
                    raise RuntimeError(f"{path} answered {response.status_code} {response.text[:300]}")
            finally:
                self._calls -= 1
            await asyncio.sleep(_PAUSE_S)
        return None

    def _leased(self) -> int:
        with psycopg.connect(self.world.postgres.url(), autocommit=True, connect_timeout=2) as connection:
            row = connection.execute(
                "SELECT count(*) FROM forbear.queue q JOIN forbear.lanes l USING (endpoint_id) "
                "WHERE l.tenant = %s AND q.lease_token IS NOT NULL",
                (self.tenant,),
            ).fetchone()
        return int(row[0]) if row else 0

    def _sweep_after_s(self) -> float:
        tick, _, _ = self.world.stack.scheduler.get(TICK)
        return _SWEEP_TICKING_S if tick.enabled and tick.expression.startswith("rate") else _SWEEP_AT_REST_S

    def _sweep(self) -> None:
        """Sweep. A schedule that rests until a time would tick then, had the wall's clock been moved, too."""
        tick, _, _ = self.world.stack.scheduler.get(TICK)
        self.swept += not (tick.enabled and tick.expression.startswith("at"))
        self.world.stack.functions.invoke_async(CLAIMER, _SWEEP)

    async def _shown(self) -> list[Delivery]:
        """The tenant's deliveries as the API shows them."""
        found: list[Delivery] = []
        query: dict[str, Any] = {"tenant": self.tenant, "limit": 200}
        while True:
            response = await self.world.client.get(f"{self.world.stack.api_url}/v1/deliveries", params=query)
            response.raise_for_status()
            page = response.json()
            found += [
                Delivery(
                    one["id"], one["event_id"], one["status"], one["reason"], one["generation"], one["attempt_count"]
                )
                for one in page["items"]
            ]
            if page["next"] is None:
                return found
            query["cursor"] = page["next"]
