"""A claimer killed while requests are in flight: nothing is lost, and what is repeated was in flight."""

from __future__ import annotations

import asyncio
import os
import signal

import psycopg

from forbear.ids import Prefix, encode
from infra.local.deployment import CLAIMER
from tests.e2e.world import Receipt, running, until

EVENTS = 40


async def test_nothing_is_lost_when_the_claimer_is_killed_in_mid_flight(database_url: str) -> None:
    async with running(database_url) as world:
        hanging = asyncio.Event()

        async def answer(receipt: Receipt, _time: int) -> int:
            if int(receipt.event_id[-1] in "02468ac"):  # some are answered before the kill, the others hang
                return 204
            await hanging.wait()
            return 204

        world.receiver.answer = answer
        await world.endpoint(policy={"timeout_s": 30})
        acknowledged = [await world.post(n) for n in range(EVENTS)]
        await until(lambda: len({receipt.event_id for receipt in world.receiver.receipts}) == EVENTS)

        hung = world.receiver.in_flight
        assert hung > 0, "no request was in flight: the run shows nothing"
        claimers = set(world.stack.functions.pids(CLAIMER))
        for pid in claimers:
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not claimers & set(world.stack.functions.pids(CLAIMER)))
        before = len(world.receiver.receipts)
        hanging.set()

        with psycopg.connect(database_url, autocommit=True) as connection:
            rows = connection.execute("SELECT event_id FROM forbear.queue WHERE lease_token IS NOT NULL").fetchall()
            leased = {encode(Prefix.EVENT, row[0]) for row in rows}
            assert len(leased) >= hung
            connection.execute("UPDATE forbear.clock SET shift = shift + interval '2 minutes'")
            # Leases and the dead claimer's mark have lapsed; the next event calls another one.
            acknowledged.append(await world.post("one more"))

            def unfinished() -> bool:
                return connection.execute("SELECT count(*) FROM forbear.queue").fetchone() == (0,)

            await until(unfinished)
            assert connection.execute("SELECT DISTINCT state FROM forbear.history").fetchall() == [("delivered",)]
            lost = connection.execute("SELECT count(*) FROM forbear.attempts WHERE verdict = 'lost'").fetchone()
            assert lost == (len(leased),)

        received = [receipt.event_id for receipt in world.receiver.receipts]
        assert set(received) == set(acknowledged)
        assert set(received[before:]) - {acknowledged[-1]} == leased
        assert len(received) - len(set(received)) == len(leased)
