"""The claim loop: lease what is due, send it, settle what came of it, until there is nothing to do or time is up.

Owns the claimer's course: when to claim, settle, take over, hand on and go to sleep; what settling does stands in
`settling`. One coroutine talks to the database, one statement after another; attempts run beside it and hand their
results over, so that batches grow by themselves while the database is busy. Knows no SQL and no AWS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from dataclasses import dataclass
from random import Random
from typing import Protocol
from uuid import uuid4

from forbear.attempting import attempt
from forbear.db import Unavailable
from forbear.leases import Lease
from forbear.measuring import Measuring
from forbear.metrics import ATTEMPTS, CLAIM_LATENCY, SCHEDULE_OFF, Collector
from forbear.sender import Sender
from forbear.settling import BATCH, Settling, Tally
from forbear.store import Awake, Outlook, Room, Store, Turned

logger = logging.getLogger(__name__)

# An awake claimer looks this often whether there is something new; nobody calls it while its mark says it is awake.
LOOK_EVERY_S = 0.02
# And this often while it has found nothing due: such a look costs the database 0.1 ms.
IDLE_LOOK_EVERY_S = 0.005
# But at leases that may lapse, so often: that reads them all.
FULL_LOOK_EVERY_S = 0.25
MARK_FOR_S = 5.0
RENEW_AFTER_S = 1.5
REAP_EVERY_S = 5.0
# A replay goes on beside other work, a step at a time; with nothing else to do, without a pause.
STEP_EVERY_S = 0.1
# A claimer stops claiming this long before its time is up (an attempt takes 30 s at most), or when half of it is over.
STOP_BEFORE_END_S = 45.0
# What is still in flight this long before the end is given up, so that its results can be settled.
ABANDON_BEFORE_END_S = 3.0
# After a SIGTERM, what is in flight has this long, less the time to abandon it.
STOP_WITHIN_S = 7.0
# How long to wait for a database that wakes up (half a minute, as a rule). Then Lambda is told: it tries again in some
# minutes, and claimers that all wait would use the account's concurrency up.
PATIENT_FOR_S = 90.0
CALL_HELP_AFTER_S = 1.0
# Whoever lacks descriptors or memory claims nothing for so long, and sends what it has.
SHORT_S = 1.0
LATER_S = 0.5


class Waking(Protocol):
    """What the loop asks of the platform. Failures are the implementation's to log; nothing is raised."""

    async def keep_ticking(self) -> bool:
        """Have the schedule tick. False if that failed."""

    async def stop_ticking(self, until: float | None) -> bool:
        """Have the schedule rest: until so many seconds from now, or (None) until somebody calls. False: it failed."""

    async def call(self, reason: str) -> None:
        """Start another claimer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a claimer. Times in seconds, `payload_bytes` in bytes."""

    in_flight: int = 1000
    payload_bytes: int = 32 << 20
    claimers: int = 4
    linger_s: float = 1.0
    tick_s: float = 60.0


class ClaimLoop:
    """One claimer's life.

    Args:
        store: its database.
        sender: what sends its requests.
        waking: the platform.
        limits: its bounds.
        rng: for jitter.
        collector: measures what it does; None: nobody wants to know.
    """

    def __init__(
        self,
        store: Store,
        sender: Sender,
        waking: Waking,
        limits: Limits,
        rng: Random,
        *,
        collector: Collector | None = None,
    ) -> None:
        self.id = uuid4()
        self.tally = Tally()
        self._collector = collector or Collector()
        self._measuring = Measuring(store, self._collector)
        self._settling = Settling(store, self.tally, self._collector)
        self._store = store
        self._sender = sender
        self._waking = waking
        self._limits = limits
        self._rng = rng
        self._tasks: dict[asyncio.Task[None], Lease] = {}
        self._bytes = 0
        self._changed = asyncio.Event()
        self._stopping = False
        self._end = float("inf")
        self._marked_at = self._reaped_at = self._stepped_at = self._claimed_at = self._looked_at = -1e9
        self._busy_at = time.monotonic()
        self._claim_took_s = 0.0
        self._full_since: float | None = None
        self._short_until = 0.0
        # What the latest turn said of a replay's step.
        self._stepped: bool | None = None
        # The latest look found nothing due: looking costs less than claiming.
        self._idle = False

    def stop(self) -> None:
        """Claim no more; end when what is in flight is settled, or soon. Safe from a signal handler of the loop."""
        self._stopping = True
        self._end = min(self._end, time.monotonic() + STOP_WITHIN_S)
        self._changed.set()

    async def run(self, time_left_s: float, *, only_if_alone: bool = False, sweeping: bool = False) -> Tally:
        """Work until there is nothing to do, or the time is nearly up.

        Args:
            time_left_s: how long this may take.
            only_if_alone: return at once when another claimer is awake (a tick of the schedule, or the sweep).
            sweeping: it is the sweep, which should find nothing that a tick has not found.
        """
        self._end = min(self._end, time.monotonic() + time_left_s)
        stop_at = self._end - min(STOP_BEFORE_END_S, time_left_s / 2)
        if not await self._begin(only_if_alone, sweeping):
            return self.tally
        try:
            await self._get_keys()
            handed_on = False
            while time.monotonic() < self._end - ABANDON_BEFORE_END_S:
                over = self._stopping or time.monotonic() > stop_at
                if over and not handed_on:
                    handed_on = True
                    await self._hand_on()
                if over and not self._tasks and not self._settling.results:
                    return self.tally
                try:
                    asleep = await self._turn(claiming=not over)
                except Unavailable as error:
                    logger.warning("%s unavailable: %s", error.what, error)
                    await self._wait(LATER_S)
                    continue
                if asleep:
                    return self.tally
            await self._abandon()
        except Exception:
            # Whatever it is, what is in hand must not wait until its leases lapse.
            await self._abandon()
            raise
        finally:
            for task in self._tasks:
                task.cancel()
            await self._forget_mark()
            await self._measuring.finish()
        return self.tally

    async def _begin(self, only_if_alone: bool, sweeping: bool) -> bool:
        """Mark itself awake and have the schedule tick, before anything is claimed. False: there is no need for it."""
        others = 1 if only_if_alone else self._limits.claimers
        awake = await self._mark(others)
        if not awake.marked:
            return False
        self._marked_at = time.monotonic()
        overdue_s = await self._measuring.gauge()
        # Whatever the note says of the schedule: somebody may have switched it off, or a note been restored.
        missed = sweeping and overdue_s > 2 * self._limits.tick_s
        if missed:
            self._collector.count(SCHEDULE_OFF)
            logger.warning("work is %.0f s overdue, and the schedule did not tick: it does now", overdue_s)
        if missed or awake.schedule != "ticking":
            await self._tick_on()
        return True

    async def _mark(self, others: int) -> Awake:
        """Mark itself awake. Patiently: the connection may have been lost, or the database be waking from a pause."""
        began = time.monotonic()
        patient_until = began + min(PATIENT_FOR_S, (self._end - began) / 2)
        while True:
            try:
                return await self._store.stay_awake(self.id, MARK_FOR_S, others)
            except Unavailable as error:
                if self._stopping or time.monotonic() > patient_until:
                    raise
                logger.info("the database is waited for: %s", error)
            await self._wait(LATER_S)

    async def _get_keys(self) -> None:
        """Have what opens secrets, before anything is claimed. As patiently, and marked and ticking meanwhile."""
        patient_until = time.monotonic() + min(PATIENT_FOR_S, (self._end - time.monotonic()) / 2)
        while True:
            try:
                await self._store.keyring()
            except Unavailable as error:
                if self._stopping or time.monotonic() > patient_until:
                    raise
                logger.warning("%s unavailable, nothing is claimed: %s", error.what, error)
            else:
                return
            await self._wait(LATER_S)
            with contextlib.suppress(Unavailable):
                await self._store.stay_awake(self.id, MARK_FOR_S)

    async def _tick_on(self) -> None:
        # What is not known to tick is told again by the next claimer.
        await self._store.note_schedule("ticking" if await self._waking.keep_ticking() else "unknown")

    async def _turn(self, *, claiming: bool) -> bool:
        """One round: settle, keep the mark, take over, claim, and wait if there was nothing. True: it fell asleep."""
        now = time.monotonic()
        if claiming and now - self._marked_at > RENEW_AFTER_S:
            await self._store.stay_awake(self.id, MARK_FOR_S)
            self._marked_at = now
        if now - self._reaped_at > REAP_EVERY_S:
            self._reaped(await self._store.reap())
            self._reaped_at = now
        await self._measuring.now_and_then()
        self._idle = self._idle and not self._settling.results
        was_idle = self._idle
        claimed = await self._settle_and_claim(claiming=claiming and not was_idle)
        if claiming:
            await self._call_help()
        if claimed or self._settling.results:
            return False
        if claiming and self._free() >= self._much_room() and await self._rest():
            return True
        if self._idle:
            await self._wait(IDLE_LOOK_EVERY_S)
        elif not was_idle:
            await self._wait(LOOK_EVERY_S)
        return False

    async def _settle_and_claim(self, *, claiming: bool) -> bool:
        """Settle what has ended, and claim what there is room for. True: something was claimed."""
        if claiming and time.monotonic() - self._stepped_at > STEP_EVERY_S:
            await self._step()
        room = self._room() if claiming and self._may_claim() else None
        before = self.tally.claimed
        asked_at = self._claimed_at
        if self._settling.results:
            self._busy_at = time.monotonic()
            await self._settling.settle(room, take=self._take)
        if room is not None and self._claimed_at == asked_at:
            # There was nothing to settle; or something failed, and what stood behind it is asked by itself.
            self._take(await self._store.turn(room=room))
        return self.tally.claimed > before

    async def _step(self) -> None:
        """Work on a due replay; beside what is to be settled, but not behind a claim, whose answer must not be lost."""
        self._stepped_at = time.monotonic()
        self._stepped = None
        if self._settling.results:
            await self._settling.settle(step=True, take=self._take)
        if self._stepped is None:
            self._take(await self._store.turn(step=True))

    def _take(self, turned: Turned) -> None:
        """Take what came of a turn: start what was leased."""
        self._stepped = turned.stepped
        if turned.stepped or turned.leases:
            self._busy_at = time.monotonic()
        if turned.leases is not None:
            self._claimed_at = time.monotonic()
            self._claim_took_s = turned.took_s
            self._collector.sample(CLAIM_LATENCY, [turned.took_s * 1000])
            self._start(turned.leases)

    def _reaped(self, number: int) -> None:
        self.tally.reaped += number
        self._collector.count(ATTEMPTS, number, "lost")

    def _may_claim(self) -> bool:
        """Whether to claim now: at once while there is much room, now and then while there is little.

        With little room, claiming may take a third of the time: what hangs keeps its slots, and what is healthy goes
        through the others all the faster.
        """
        if self._free() <= 0 or self._bytes >= self._limits.payload_bytes or time.monotonic() < self._short_until:
            return False
        little_s = min(LOOK_EVERY_S, 2 * self._claim_took_s)
        return self._free() >= self._much_room() or time.monotonic() - self._claimed_at > little_s

    def _free(self) -> int:
        return self._limits.in_flight - len(self._tasks)

    def _much_room(self) -> int:
        return self._limits.in_flight // 8

    def _room(self) -> Room:
        free = self._free()
        return Room(min(free, BATCH), self._limits.payload_bytes - self._bytes, free)

    def _start(self, leases: list[Lease]) -> None:
        self._settling.learn(leases)
        for lease in leases:
            self._bytes += len(lease.payload)
            task = asyncio.create_task(self._attempt(lease))
            self._tasks[task] = lease
            task.add_done_callback(self._done)
        self.tally.claimed += len(leases)

    async def _attempt(self, lease: Lease) -> None:
        attempted = await attempt(lease, self._sender, self._store.now, self._rng)
        if attempted.unsent:
            self._short_until = time.monotonic() + SHORT_S
        self._settling.results.append(attempted)
        self._changed.set()

    def _done(self, task: asyncio.Task[None]) -> None:
        self._bytes -= len(self._tasks.pop(task).payload)

    async def _call_help(self) -> None:
        """Full for a while, and still lanes that are ready: start another claimer."""
        if self._free() >= max(1, self._much_room()) and self._bytes < self._limits.payload_bytes:
            self._full_since = None
            return
        now = time.monotonic()
        if self._full_since is None:
            self._full_since = now
        elif now - self._full_since > CALL_HELP_AFTER_S:
            self._full_since = now
            outlook = await self._store.outlook(self.id)
            if outlook.others + 1 < self._limits.claimers and outlook.next_at and outlook.next_at <= outlook.clock:
                await self._waking.call("full")

    async def _rest(self) -> bool:
        """Nothing due: see what is next; with nothing in hand, go to sleep if it is far. True: asleep."""
        now = time.monotonic()
        lingering = bool(self._tasks) or now - self._busy_at < self._limits.linger_s
        full = not lingering and now - self._looked_at > FULL_LOOK_EVERY_S
        if full:
            self._looked_at = now
        outlook = await self._store.outlook(self.id, leases=full)
        self._idle = outlook.next_at is None or outlook.next_at > outlook.clock
        if outlook.replay_at is not None and outlook.replay_at <= outlook.clock:
            self._stepped_at = -1e9
            self._idle = False
            return False
        if outlook.lease_at is not None and outlook.lease_at <= outlook.clock:
            self._reaped_at = -1e9
            return False
        if not full or self._must_stay(outlook):
            return False
        # Asleep from here on; whoever commits after this finds no mark and calls. Whoever committed before is found
        # by looking once more.
        await self._store.fall_asleep(self.id)
        outlook = await self._store.outlook(self.id)
        if self._must_stay(outlook):
            await self._store.stay_awake(self.id, MARK_FOR_S)
            self._marked_at = time.monotonic()
            return False
        if not outlook.others:
            await self._tick_off(outlook.rest_s)
        return True

    def _must_stay(self, outlook: Outlook) -> bool:
        """Whether something is due now, or before the next tick with nobody else awake to wait for it."""
        return outlook.rest_s <= 0 or (outlook.rest_s < self._limits.tick_s and not outlook.others)

    async def _tick_off(self, rest_s: float) -> None:
        """Have the schedule rest; then look whether somebody came meanwhile who relies on its ticking."""
        await self._store.note_schedule("resting")
        began = time.monotonic()
        await self._waking.stop_ticking(None if rest_s == math.inf else rest_s)
        outlook = await self._store.outlook(self.id)
        if outlook.others or outlook.rest_s < rest_s - (time.monotonic() - began) - 1:
            await self._tick_on()

    async def _hand_on(self) -> None:
        """Time is up, or a stop was asked for: nobody may rely on this claimer; if there is work, start a successor."""
        try:
            await self._store.fall_asleep(self.id)
            if self._stopping:
                return
            outlook = await self._store.outlook(self.id)
            if outlook.rest_s < math.inf and not outlook.others:
                await self._waking.call("successor")
        except Unavailable as error:
            logger.warning("database unavailable, no successor called: %s", error)

    async def _abandon(self) -> None:
        """The end is near: settle what has ended, break off what is in flight and give it up to the next claimer."""
        leases = list(self._tasks.values())
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            while self._settling.results:
                await self._settling.settle()
            if leases:
                self._reaped(await self._store.give_up(leases))
        except Unavailable as error:
            logger.warning("database unavailable, %d results unsettled: %s", len(self._settling.results), error)

    async def _forget_mark(self) -> None:
        try:
            await self._store.fall_asleep(self.id)
        except Unavailable as error:
            logger.warning("database unavailable, the mark expires by itself: %s", error)

    async def _wait(self, seconds: float) -> None:
        """Wait until a result is there, or so many seconds."""
        timer = asyncio.get_running_loop().call_later(seconds, self._changed.set)
        await self._changed.wait()
        timer.cancel()
        self._changed.clear()
