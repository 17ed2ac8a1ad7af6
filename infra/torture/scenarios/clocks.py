"""Clocks that are an hour off, and receivers that take nearly as long as they may.

Everything that has a time of its own goes by the database's clock, so a function's may say what it likes; and a lease
lasts longer than its request may, whatever its endpoint's time-out is. The fault strikes with requests in flight: that
is when the clock jumps, or when the time of their leases begins to run out.
"""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID

from forbear.ids import Prefix, decode
from infra.local.deployment import CLAIMER, TICK
from infra.torture.ledger import Acknowledged, Receipt
from infra.torture.scenario import QUICK, Round, Scenario

HOUR_S = 3600.0
GAP_S, COOLDOWN_S, TIMEOUT_S = 20.0, 60.0, 10.0
# How far a stamp may lie from what it is for on a busy machine, in seconds; an hour is what is looked for.
CLOSE_S = 30.0
# A lease outlasts its request by so much (the SQL function forbear.claim).
MARGIN_S = 30.0
FIFTY = 50


class Broken(Exception):
    """A promise was not kept."""


async def _off(played: Round, function: str) -> None:
    """A function's clock jumps by an hour with requests in flight, or it is started with such a clock."""
    began = await _now(played)
    await _endpoints(played)
    key = f"{played.rng.getrandbits(128):032x}"
    first = await _post_under(played, key)
    await played.until(lambda: len(played.open()) > 0, "a request to be in flight")
    by_s = played.rng.choice((-HOUR_S, HOUR_S))
    jumps = played.rng.random() < 0.5
    played.strike()
    played.world.set_clocks({function: by_s})
    if not jumps and function != CLAIMER:  # a claimer that is killed loses its leases: that is another scenario's fault
        await played.world.kill(function)
    await _check_leases(played)
    rotated = await _rotate(played)
    more = [await _post_under(played, f"{key}{number}") for number in range(played.rng.randint(3, 8))]
    if await _post_under(played, key) != first:
        raise Broken("the same key gave another event")
    played.release("/held")
    await played.until(partial(_tripped, played), "the breaker to open and the rest to be sent")
    if function == CLAIMER:
        await played.until(partial(_resting, played), "the claimer to rest until something is due")
        _check_schedule(played)
    await _check_stamps(played, began, await _now(played), [first, *more], rotated)
    played.behave(lambda _: 204, "/broken")


async def _endpoints(played: Round) -> None:
    """One that fails the first time, one whose breaker opens, and one that is held."""
    seen: set[str] = set()

    def flaky(receipt: Receipt) -> int:
        again = receipt.delivery in seen
        seen.add(receipt.delivery)
        return 204 if again else 500

    played.behave(flaky, "/flaky")
    played.behave(lambda _: 500, "/broken")
    played.hold("/held")
    once = {"kind": "ladder", "gaps_s": [GAP_S] * 8, "jitter": {"kind": "none"}}
    await played.endpoint("/flaky", policy={**QUICK, "schedule": once})
    breaker = {"failures": 1, "cooldown_s": COOLDOWN_S, "cooldown_cap_s": COOLDOWN_S, "slow_start": False}
    await played.endpoint("/broken", policy={**QUICK, "schedule": once, "breaker": breaker})
    await played.endpoint("/held", policy={**QUICK, "timeout_s": 30})


async def _check_leases(played: Round) -> None:
    """No lease has moved, and none is taken over."""
    rows = await played.world.sql(
        "SELECT extract(epoch FROM q.lease_until - q.claimed_at)::float8, "
        "       extract(epoch FROM q.lease_until - forbear.now())::float8, l.timeout_s "
        "FROM forbear.queue q JOIN forbear.lanes l USING (endpoint_id) "
        "WHERE l.tenant = %s AND q.lease_token IS NOT NULL",
        played.tenant,
    )
    wrong = [row for row in rows if abs(row[0] - row[2] - MARGIN_S) > 0.1 or not 0 < row[1] <= row[2] + MARGIN_S]
    if wrong or not rows:
        raise Broken(f"leases last (in all, from now, the time-out's) {wrong or 'not at all'}")
    await _check_none_lapsed(played)


async def _check_none_lapsed(played: Round) -> None:
    await played.world.sql("SELECT forbear.reap(500)")
    rows = await played.world.sql(
        "SELECT count(*) FROM forbear.attempts a JOIN forbear.deliveries d ON d.id = a.delivery_id "
        "JOIN forbear.endpoints e ON e.id = d.endpoint_id WHERE e.tenant = %s AND a.verdict = 'lost'",
        played.tenant,
    )
    if rows[0][0]:
        raise Broken(f"{rows[0][0]} leases were taken over while their requests were in flight")


async def _tripped(played: Round) -> bool:
    """Whether the breaker is open, and nothing is leased or due."""
    rows = await played.world.sql(
        "SELECT bool_or(l.breaker_state = 'open'), count(q.id) FILTER (WHERE q.lease_token IS NOT NULL "
        "OR (q.due_at <= forbear.now() AND l.breaker_state <> 'open')) "
        "FROM forbear.lanes l LEFT JOIN forbear.queue q USING (endpoint_id) WHERE l.tenant = %s",
        played.tenant,
    )
    return bool(rows[0][0] and rows[0][1] == 0)


def _schedule(played: Round) -> str:
    return played.world.stack.scheduler.get(TICK)[0].expression


async def _resting(played: Round) -> bool:
    return _schedule(played).startswith("at(")


def _check_schedule(played: Round) -> None:
    """It ticks again when the next thing is due, by the Scheduler's clock."""
    expression = _schedule(played)
    found = re.fullmatch(r"at\((.+)\)", expression)
    if found is None:
        return  # somebody has woken up meanwhile
    wait = datetime.fromisoformat(found[1]).replace(tzinfo=UTC) - datetime.now(UTC)
    if wait > timedelta(seconds=COOLDOWN_S + CLOSE_S):
        raise Broken(f"the schedule rests for {wait}: {expression}")


async def _check_stamps(
    played: Round, began: datetime, ended: datetime, events: list[str], rotated: tuple[str, datetime]
) -> None:
    """Everything that has a time has one between these, or as long after one as its policy says."""
    attempts = await played.world.sql(
        "SELECT a.started_at, a.next_due_at, a.verdict, a.request_headers, a.latency_ms FROM forbear.attempts a "
        "JOIN forbear.deliveries d ON d.id = a.delivery_id JOIN forbear.endpoints e ON e.id = d.endpoint_id "
        "WHERE e.tenant = %s",
        played.tenant,
    )
    wrong: list[str] = []

    def within(what: str, at: datetime, after_s: float = 0.0) -> None:
        slack = timedelta(seconds=CLOSE_S)
        if not began - slack <= at - timedelta(seconds=after_s) <= ended + slack:
            wrong.append(f"{what} is {at}, between {began} and {ended} expected, {after_s:g} s later")

    for started, due, verdict, headers, latency_ms in attempts:
        within("an attempt", started)
        signed = int(re.findall(rb"(?im)^webhook-timestamp: (\d+)", headers)[0])
        if abs(signed - started.timestamp()) > CLOSE_S:
            wrong.append(f"an attempt of {started} is signed with {signed}")
        if verdict == "retry" and abs((due - started).total_seconds() - GAP_S - latency_ms / 1000) > CLOSE_S:
            wrong.append(f"the retry of an attempt of {started} is due at {due}")
    for event in events:
        within(event, _stamped(decode(Prefix.EVENT, event)))
    for (opened,) in await played.world.sql(
        "SELECT breaker_until FROM forbear.lanes WHERE tenant = %s AND breaker_state = 'open'", played.tenant
    ):
        within("the breaker's cool-down", opened, COOLDOWN_S)
    for made, age in await played.world.sql(
        "SELECT created_at, forbear.now() - created_at FROM forbear.idempotency_keys WHERE tenant = %s", played.tenant
    ):
        within(f"a key's age of {age}", made)
    within("a secret's end", rotated[1], 24 * HOUR_S)
    if not attempts or wrong:
        raise Broken("; ".join(wrong[:5]) or "there was no attempt")


def _stamped(value: UUID) -> datetime:
    """The time in a UUIDv7."""
    return datetime.fromtimestamp((value.int >> 80) / 1000, UTC)


async def _now(played: Round) -> datetime:
    rows = await played.world.sql("SELECT forbear.now()")
    now: datetime = rows[0][0]
    return now


async def _post_under(played: Round, key: str) -> str:
    """Post an event under a key of one's own; gives its id."""
    response = await played.world.client.post(
        f"{played.world.stack.api_url}/v1/events",
        json={"tenant": played.tenant, "type": "torture.round", "payload": {}},
        headers={"idempotency-key": key},
    )
    response.raise_for_status()
    answer = response.json()
    event = str(answer["id"])
    played.acknowledged.setdefault(event, Acknowledged(answer["deliveries"]))
    return event


async def _rotate(played: Round) -> tuple[str, datetime]:
    """Have the management function make an endpoint and rotate its secret; gives its id and the first one's end."""
    quiet = await played.endpoint("/quiet", event_types=["torture.other"])
    answer = await _call(played, f"/v1/endpoints/{quiet}/rotate-secret")
    (end,) = [earlier["expires_at"] for earlier in answer["earlier"]]
    return quiet, datetime.fromisoformat(end)


async def _call(played: Round, path: str) -> Any:
    response = await played.world.client.post(f"{played.world.stack.api_url}{path}", json={})
    response.raise_for_status()
    return response.json()


async def fifty_slow(played: Round) -> None:
    """Fifty deliveries at once take nearly the time-out each, and their leases nearly lapse."""
    timeout_s = 5.0

    async def slow(_receipt: Receipt) -> int:
        await asyncio.sleep(0.85 * timeout_s)
        return 204

    played.behave(slow)
    await played.endpoint(policy={**QUICK, "timeout_s": timeout_s})
    await played.post(FIFTY)
    await played.until(lambda: len(played.open()) == FIFTY, "all of them to be in flight")
    played.strike()
    await played.world.move_clock(MARGIN_S - 10)
    await _check_none_lapsed(played)
    await played.until(lambda: all(receipt.status for receipt in played.got()), "all of them to be answered")
    await _check_sent_once(played, FIFTY)


async def every_timeout(played: Round) -> None:
    """To each time-out its lease: while requests wait, their time passes up to shortly before its end."""
    timeouts_s = (5, 10, 15, 20, 25, 30)
    events = played.rng.randint(1, 4)
    for timeout_s in timeouts_s:
        played.hold(f"/{timeout_s}")
        await played.endpoint(f"/{timeout_s}", policy={**QUICK, "timeout_s": timeout_s})
    await played.post(events)
    await played.until(lambda: len(played.open()) == events * len(timeouts_s), "all of them to be in flight")
    played.strike()
    passed_s = 0.0
    for timeout_s in timeouts_s:
        # The requests know nothing of it: they are as old as they really are.
        await played.world.move_clock(timeout_s + MARGIN_S - 10 - passed_s)
        passed_s = timeout_s + MARGIN_S - 10
        await _check_none_lapsed(played)
        played.release(f"/{timeout_s}")
        await played.until(partial(_settled, played, f"/{timeout_s}"), "the results to be settled")
    await _check_sent_once(played, events * len(timeouts_s))


async def _settled(played: Round, path: str) -> bool:
    rows = await played.world.sql(
        "SELECT count(*) FROM forbear.queue q JOIN forbear.endpoints e ON e.id = q.endpoint_id "
        "WHERE e.tenant = %s AND e.url LIKE %s",
        played.tenant,
        f"%{path}",
    )
    return bool(rows[0][0] == 0)


async def _check_sent_once(played: Round, number: int) -> None:
    """Each was sent once and settled as what it was."""
    await played.drain()
    rows = await played.world.sql(
        "SELECT a.verdict, a.late, count(*), max(a.number) FROM forbear.attempts a JOIN forbear.deliveries d "
        "ON d.id = a.delivery_id JOIN forbear.endpoints e ON e.id = d.endpoint_id WHERE e.tenant = %s GROUP BY 1, 2",
        played.tenant,
    )
    if rows != [("success", False, number, 1)] or len(played.got()) != number:
        raise Broken(f"{number} deliveries came {len(played.got())} times; verdict, late, number, latest: {rows}")


SCENARIOS: tuple[Scenario, ...] = (
    *(
        Scenario(
            f"clock-off-{function}",
            f"The clock of the machine of {function} may be an hour ahead or behind: nothing goes by it.",
            partial(_off, function=function),
        )
        for function in (CLAIMER, "ingest", "manage")
    ),
    Scenario("slow-receivers", "Fifty deliveries that take nearly their time-out are sent once each.", fifty_slow),
    Scenario("lease-per-timeout", "Whatever an endpoint's time-out is, the lease outlasts it.", every_timeout),
)
