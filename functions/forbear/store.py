"""What a claimer asks of the database: claim, settle, reap, replay on, stay awake.

Owns the calls and the shapes of their rows. Every statement is a transaction of its own; those of a turn are one round
trip. Knows no policy and no network. Lost connections are replaced here; what was under way then is the caller's to
repeat (settling twice does no harm, a claim whose answer was lost lapses by itself).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import DictRow, dict_row, tuple_row

from forbear import columns
from forbear.conversing import ServedConnection
from forbear.data_keys import DataKeys
from forbear.db import (
    GAVE_WAY,
    GIVE_WAY_S,
    MAKE_PARTITIONS,
    Target,
    Unavailable,
    hung_up,
    is_lost,
    is_missing_partition,
    statement,
    without_values,
)
from forbear.leases import Lane, Lease, UnknownKey, control_json, parse_control, parse_endpoint
from forbear.policy.control import Control
from forbear.policy.verdict import Progress
from forbear.vault import Keyring

logger = logging.getLogger(__name__)

# No statement of the claimer's takes a second; one that does not answer in this time never will.
PATIENCE_S = 15.0
# Statements are prepared when they have been asked so often.
PREPARED_AFTER = 3

# A statement and its parameters.
type Asked = tuple[str, Mapping[str, Any] | Sequence[Any]]

_CLAIM = (
    "SELECT delivery_id, event_id, endpoint_id, lease_token, attempt, tries, limited, started_at, held_s, expires_at,"
    " replay_id, probe, event_type, content_type, payload, endpoint, control, in_flight"
    " FROM forbear.claim(%s, %s, 200, %s)"
)
_REPLAY_STEP = "SELECT forbear.replay_step(1000)"


@dataclass(slots=True)  # not frozen: see forbear.leases
class Attempt:
    """The evidence of an attempt, as it is kept. `began`: when it did, by the store's `monotonic`."""

    verdict: str
    began: float
    latency_ms: float
    url: str
    address: str | None
    request_headers: bytes
    status: int | None
    response_headers: bytes
    response_body: bytes
    error: str | None
    error_detail: str
    retry_after_s: float | None
    retry_after_honoured: bool


@dataclass(slots=True)  # not frozen: see forbear.leases
class Result:
    """What became of a lease: `outcome` is delivered, dead, retry or return; `attempt` is None when none was made."""

    lease: Lease
    outcome: str
    reason: str | None
    delay_s: float
    limited: bool
    attempt: Attempt | None


@dataclass(frozen=True, slots=True)
class LaneChange:
    """What a batch came to for a lane.

    Attributes:
        endpoint_id: the lane's.
        before: its control as the caller knows it.
        after: what it became; None: it stays.
        wait_s: for how long a receiver asked everybody to wait; None: it did not.
        disable: why the endpoint is disabled; None: it is not.
    """

    endpoint_id: UUID
    before: Control
    after: Control | None = None
    wait_s: float | None = None
    disable: str | None = None


@dataclass(frozen=True, slots=True)
class Settlement:
    """A batch to record.

    Attributes:
        results: one a lease.
        changes: what the batch came to for lanes, one each.
        same: the control of lanes that the batch leaves as it is known; told if it is not that any more.
    """

    results: Sequence[Result]
    changes: Sequence[LaneChange] = ()
    same: Mapping[UUID, Control] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Room:
    """What a claim may take: `slots` deliveries with about `payload_bytes` of payload; one is let through in any case.

    `free`: the claimer's free slots, from which a lane's share is reckoned; None: as many as `slots`.
    """

    slots: int
    payload_bytes: int
    free: int | None = None


@dataclass(frozen=True, slots=True)
class Turned:
    """What came of a turn; None for what was not asked, and for what was left undone because something else failed.

    `took_s`: how long the database took for the whole.
    """

    settled: Settled | None
    leases: list[Lease] | None
    stepped: bool | None
    took_s: float


@dataclass(frozen=True, slots=True)
class Settled:
    """Which results came too late, by their places in the batch; the control that others changed, as it is now."""

    late: frozenset[int]
    stale: dict[UUID, Control]


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is next, by the database's clock; None: nothing. `others`: claimers awake besides this one."""

    clock: datetime
    next_at: datetime | None
    lease_at: datetime | None
    replay_at: datetime | None
    others: int

    @property
    def rest_s(self) -> float:
        """Seconds until anything at all wants attention; infinity when nothing ever will."""
        times = (self.next_at, self.lease_at, self.replay_at)
        return min(((at - self.clock).total_seconds() for at in times if at is not None), default=math.inf)


@dataclass(frozen=True, slots=True)
class Awake:
    """What a claimer learns by marking itself awake: whether it is marked now, and the schedule's state."""

    marked: bool
    schedule: str


class Store:
    """The claimer's connection.

    Args:
        target: the database, or just its URL.
        data_keys: what opens the endpoints' secrets and headers.
        monotonic: seconds from any point on, like `time.monotonic`; a simulation's go by its own time.
    """

    def __init__(
        self, target: Target | str, data_keys: DataKeys, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.monotonic = monotonic
        self._data_keys = data_keys
        self._keyring: Keyring | None = None
        self._target = Target(target) if isinstance(target, str) else target
        self._connection: ServedConnection | None = None
        self._turn = asyncio.Lock()
        self._at = monotonic()
        self._clock: datetime | None = None

    def now(self) -> datetime:
        """The database's time, from its latest answer and the time passed since."""
        if self._clock is None:
            raise RuntimeError("the database has not been asked yet")
        return self._clock + timedelta(seconds=self.monotonic() - self._at)

    async def keyring(self) -> Keyring:
        """What opens secrets and headers; read from the database when it is not there yet.

        Raises:
            KeyUnavailable: it cannot be had.
        """
        if self._keyring is None:
            # Unwrapping waits for another service: requests are in flight meanwhile.
            self._keyring = await asyncio.to_thread(self._data_keys.ring, await self._rows(*self._data_keys.statement))
        return self._keyring

    async def turn(
        self, settlement: Settlement | None = None, room: Room | None = None, *, step: bool = False
    ) -> Turned:
        """Settle, claim and work on a due replay, in one round trip.

        Settling records a batch of results; what late ones saw is for `keep_late`. Doing it twice does no harm: the
        second time, every result is late and its evidence there already. A claim leases due deliveries; without a
        keyring nothing is claimed, and if an endpoint needs a data key that has come since the keyring was read, it is
        read again. What fails takes the answers behind it with it: so nothing stands behind a claim but what may.

        Args:
            settlement: what to settle, if anything.
            room: what to claim, if anything.
            step: whether to work on a due replay.

        Returns:
            What came of it. If anything fails, the first of what was asked is done all the same or its error raised;
            the others may be left undone.

        Raises:
            Unavailable: the database cannot be reached; nobody knows what was done.
            KeyUnavailable: there is room and nothing to settle, and the keyring cannot be had; nothing was done.
            psycopg.Error: the database refused the first of what was asked.
        """
        keyring = None
        if room is not None:
            try:
                keyring = await self.keyring()
            except Unavailable:
                if settlement is None:
                    raise
                room = None  # what has ended must be settled all the same
        began = self.monotonic()
        asked: dict[str, Asked] = {}
        if settlement is not None:
            asked["settled"] = statement("settle"), _settling(settlement, began)
        if step:
            asked["stepped"] = _REPLAY_STEP, ()
        if room is not None:
            asked["claimed"] = _CLAIM, (room.slots, room.payload_bytes, room.free)
        answers = dict(zip(asked, await self._converse(list(asked.values())), strict=True))
        took_s = self.monotonic() - began
        settled, stepped, claimed = (answers.get(name) for name in ("settled", "stepped", "claimed"))
        return Turned(
            None if settled is None else _settled(settled),
            None if claimed is None or keyring is None else await self._claimed(claimed, keyring, began),
            None if stepped is None else stepped[0][0] is not None,
            took_s,
        )

    async def keep_late(self, results: Sequence[Result], late: Iterable[int]) -> None:
        """Keep what late results saw; see the SQL function keep_late. Doing it twice does no harm.

        Args:
            results: a batch that was settled.
            late: the places of those that were late.
        """
        for place in sorted(late):
            await self._keep_late(results[place].lease, results[place].attempt)

    async def claim(self, slots: int, payload_bytes: int, free: int | None = None) -> list[Lease]:
        """Claim and nothing else; see `turn` and `Room`."""
        return (await self.turn(room=Room(slots, payload_bytes, free))).leases or []

    async def settle(
        self,
        results: Sequence[Result],
        changes: Sequence[LaneChange] = (),
        same: Mapping[UUID, Control] | None = None,
    ) -> Settled:
        """Settle and nothing else, and keep what late results saw; see `turn` and `Settlement`."""
        settled = (await self.turn(Settlement(results, changes, same or {}))).settled or _NOTHING_SETTLED
        await self.keep_late(results, settled.late)
        return settled

    async def replay_step(self) -> bool:
        """Work on a due replay, if there is one. Says whether there was."""
        return bool((await self.turn(step=True)).stepped)

    async def _claimed(self, rows: Sequence[Any], keyring: Keyring, began: float) -> list[Lease]:
        leases = _leases(rows, keyring, began)
        if any(isinstance(lease.lane.endpoint, UnknownKey) for lease in leases):
            self._keyring = None
            try:
                leases = _leases(rows, await self.keyring(), began)
            except (Unavailable, psycopg.Error) as error:
                self._keyring = keyring
                logger.warning("whether there is another data key cannot be seen: %s", error)
        return leases

    async def _keep_late(self, lease: Lease, attempt: Attempt | None) -> None:
        if attempt is None:
            return
        await self._rows(
            statement("keep_late"),
            {
                "id": lease.delivery_id,
                "number": lease.number,
                "age": self.monotonic() - attempt.began,
                "latency_ms": attempt.latency_ms,
                "url": attempt.url,
                "address": attempt.address,
                "request_headers": attempt.request_headers,
                "status": attempt.status,
                "response_headers": attempt.response_headers,
                "response_body": attempt.response_body,
                "error": attempt.error,
                "error_detail": _storable(attempt.error_detail),
                "retry_after": attempt.retry_after_s,
            },
        )

    async def reap(self) -> int:
        """Take over leases that have lapsed. Gives their number, 500 at most."""
        return int((await self._rows("SELECT forbear.reap(500) AS number"))[0]["number"])

    async def outlook(self, claimer: UUID, *, leases: bool = True) -> Outlook:
        """Look at what is next; at leases that may lapse only if asked to."""
        row = (await self._rows("SELECT * FROM forbear.outlook(%s, %s)", (claimer, leases)))[0]
        self._clock, self._at = row["clock"], self.monotonic()
        return Outlook(**row)

    async def stay_awake(self, claimer: UUID, seconds: float, unless_others: int | None = None) -> Awake:
        """Mark this claimer awake for so many seconds from now, unless so many others are awake (None: in any case).

        Sets this store's clock, too: while an environment is frozen its own does not go on.
        """
        sql = "SELECT * FROM forbear.stay_awake(%s, %s, %s)"
        row = (await self._rows(sql, (claimer, timedelta(seconds=seconds), unless_others)))[0]
        self._clock, self._at = row.pop("clock"), self.monotonic()
        return Awake(**row)

    async def fall_asleep(self, claimer: UUID) -> None:
        """Take the mark away. Look once more after it: the mark may have kept a producer from calling."""
        await self._rows("DELETE FROM forbear.claimers WHERE id = %s RETURNING id", (claimer,))

    async def give_up(self, leases: Sequence[Lease]) -> int:
        """End leases whose attempts were broken off: they are taken over at once and not when they lapse.

        Gives the number of leases taken over, others' among them, 500 at most.
        """
        await self._rows(
            "SELECT forbear.end_leases(%s::uuid[], %s::uuid[]) AS done",
            ([lease.delivery_id for lease in leases], [lease.token for lease in leases]),
        )
        return await self.reap()

    async def measure(self) -> DictRow:
        """Read the gauges, and take the ends that nobody has counted; see the SQL function forbear.measure."""
        (row,) = await self._rows("SELECT * FROM forbear.measure()")
        return dict(row)

    async def must_call_maintenance(self, every: timedelta) -> bool:
        """Whether the latest maintenance is longer ago than this, and nobody else has just been told to call it."""
        return bool((await self._rows("SELECT forbear.call_maintenance(%s) AS due", (every,)))[0]["due"])

    async def note_schedule(self, schedule: str) -> None:
        """Remember the state that the schedule is in."""
        await self._rows("UPDATE forbear.control SET schedule = %s RETURNING true AS done", (schedule,))

    async def aclose(self) -> None:
        """Close the connection. The next call opens another."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close()

    async def _converse(self, asked: Sequence[Asked]) -> list[list[Any] | None]:
        """Ask for several things in one round trip, each a transaction of its own. Gives their rows, as tuples.

        All but the last are enclosed in BEGIN and COMMIT: without them, what is sent between two syncs is one
        transaction. A failure skips what stands behind it. Then the first one is done again by itself, unless its
        COMMIT was confirmed; of the others, what was not confirmed is None.
        """
        if len(asked) == 1:
            return [await self._rows(*asked[0], tuples=True)]
        try:
            async with self._turn, asyncio.timeout(PATIENCE_S):
                answers = await self._pipelined(await self._open(), asked)
        except TimeoutError as error:
            raise await self._no_answer() from error
        except psycopg.Error as error:
            raise await self._lost(error) from error
        if answers[0] is None:
            answers[0] = await self._rows(*asked[0], tuples=True)
        return answers

    async def _pipelined(
        self, connection: psycopg.AsyncConnection[DictRow], asked: Sequence[Asked]
    ) -> list[list[Any] | None]:
        cursors = [connection.cursor(binary=True, row_factory=tuple_row) for _ in asked]
        commits: list[psycopg.AsyncCursor[DictRow]] = []
        try:
            async with connection.pipeline():
                for cursor, (sql, parameters) in zip(cursors[:-1], asked[:-1], strict=True):
                    await connection.execute("BEGIN")
                    await cursor.execute(sql, parameters)
                    commits.append(await connection.execute("COMMIT"))
                await cursors[-1].execute(*asked[-1])
        except psycopg.Error as error:
            if is_lost(error) and not isinstance(error, GAVE_WAY):
                raise
            without_values(error)
            logger.info("something of a turn failed: %s", error)
            await connection.rollback()
            confirmed = [commit.statusmessage == "COMMIT" for commit in commits]
            return [
                await cursor.fetchall() if done else None
                for cursor, done in zip(cursors, [*confirmed, False], strict=False)
            ] + [None] * (len(cursors) - len(confirmed) - 1)
        return [await cursor.fetchall() for cursor in cursors]

    async def _rows(
        self, sql: str, parameters: Mapping[str, Any] | Sequence[Any] = (), *, tuples: bool = False
    ) -> list[Any]:
        """Ask for one thing, as often as it takes. Gives its rows, as dictionaries or tuples."""
        try:
            async with self._turn, asyncio.timeout(PATIENCE_S):
                connection = await self._open()
                for pause_s in GIVE_WAY_S:
                    try:
                        return await _fetch(connection, sql, parameters, tuples=tuples)
                    except GAVE_WAY:  # a deadlock or the like: nothing was done
                        await asyncio.sleep(random.uniform(0, pause_s))  # noqa: S311 - it keeps no secret
                    except psycopg.errors.CheckViolation as error:
                        if not is_missing_partition(error):
                            raise
                        await connection.execute(MAKE_PARTITIONS)
                return await _fetch(connection, sql, parameters, tuples=tuples)
        except TimeoutError as error:
            raise await self._no_answer() from error
        except psycopg.Error as error:
            raise await self._lost(error) from error

    async def _no_answer(self) -> Unavailable:
        await self.aclose()
        return Unavailable(f"the database did not answer within {PATIENCE_S:g} s")

    async def _lost(self, error: psycopg.Error) -> Exception:
        """What to raise for an error: itself if it is the statement's fault."""
        without_values(error)
        if not is_lost(error):
            return error
        await self.aclose()
        return Unavailable(f"the database cannot be reached: {error}")

    async def _open(self) -> ServedConnection:
        if self._connection is not None and (self._connection.closed or hung_up(self._connection)):
            await self.aclose()
        if self._connection is None:
            # Where credentials are fetched or renewed, that blocks: requests are in flight meanwhile.
            arguments = (
                await asyncio.to_thread(self._target.arguments) if self._target.iam else self._target.arguments()
            )
            # A claimer says the same few things all its life: prepared, a look costs half.
            arguments["prepare_threshold"] = PREPARED_AFTER
            self._connection = await ServedConnection.connect(row_factory=dict_row, **arguments)
            columns.register(self._connection)
            cursor = await self._connection.execute("SELECT forbear.now() AS now")
            row = await cursor.fetchone()
            if row is not None:
                self._clock, self._at = row["now"], self.monotonic()
        return self._connection


_NONE_MADE = Attempt("", 0.0, 0.0, "", None, b"", None, b"", b"", None, "", None, retry_after_honoured=False)
_NOTHING_SETTLED = Settled(frozenset(), {})


def _settled(rows: Sequence[Any]) -> Settled:
    ((late, stale),) = rows
    return Settled(
        frozenset(place - 1 for place in late),
        {UUID(lane["endpoint"]): parse_control(lane["control"]) for lane in stale or ()},
    )


async def _fetch(connection: psycopg.AsyncConnection[DictRow], sql: str, parameters: Any, *, tuples: bool) -> list[Any]:
    cursor = connection.cursor(binary=True, row_factory=tuple_row) if tuples else connection.cursor(binary=True)
    await cursor.execute(sql, parameters)
    return await cursor.fetchall()


def _leases(rows: Sequence[Any], keyring: Keyring, began: float) -> list[Lease]:
    known: dict[UUID, Lane] = {}
    for row in rows:
        endpoint_id, (endpoint_text, control_text, in_flight) = row[2], row[15:]
        if endpoint_text is not None:
            endpoint, policy = parse_endpoint(endpoint_text, endpoint_id, keyring)
            known[endpoint_id] = Lane(endpoint_id, endpoint, policy, parse_control(control_text), in_flight)
    leases = []
    for row in rows:
        if row[14] is None:
            logger.error("delivery %s has no event: it is lost, and dead after some leases", row[0])
            continue
        lane = known[row[2]]
        leases.append(
            Lease(
                delivery_id=row[0],
                event_id=row[1],
                lane=lane,
                token=row[3],
                number=row[4],
                progress=Progress(row[5], row[6], row[7], row[8]),
                expires_at=row[9],
                replay_id=row[10],
                probe=row[11],
                epoch=lane.control.breaker.epoch,
                event_type=row[12],
                content_type=row[13],
                payload=row[14],
                claimed=began,
            )
        )
    return leases


def _settling(settlement: Settlement, now: float) -> dict[str, Any]:
    """The parameters of the statement that settles."""
    results, changes = settlement.results, settlement.changes
    attempts = [result.attempt or _NONE_MADE for result in results]
    return {
        "ids": columns.uuids([result.lease.delivery_id for result in results]),
        "tokens": columns.uuids([result.lease.token for result in results]),
        "endpoints": columns.uuids([result.lease.lane.endpoint_id for result in results]),
        "outcomes": columns.texts([result.outcome for result in results]),
        "reasons": columns.texts([result.reason for result in results]),
        "delays": columns.floats([result.delay_s for result in results]),
        "limited": columns.booleans([result.limited for result in results]),
        "verdicts": columns.texts([None if result.attempt is None else result.attempt.verdict for result in results]),
        "ages": columns.floats([now - attempt.began for attempt in attempts]),
        "latencies_ms": columns.floats([attempt.latency_ms for attempt in attempts]),
        "urls": columns.texts([attempt.url for attempt in attempts]),
        "addresses": columns.texts([attempt.address for attempt in attempts]),
        "request_headers": columns.blobs([attempt.request_headers for attempt in attempts]),
        "statuses": columns.ints([attempt.status for attempt in attempts]),
        "response_headers": columns.blobs([attempt.response_headers for attempt in attempts]),
        "response_bodies": columns.blobs([attempt.response_body for attempt in attempts]),
        "errors": columns.texts([attempt.error for attempt in attempts]),
        "error_details": columns.texts([_storable(attempt.error_detail) for attempt in attempts]),
        "retry_afters": columns.floats([attempt.retry_after_s for attempt in attempts]),
        "honoured": columns.booleans([attempt.retry_after_honoured for attempt in attempts]),
        "lane_ids": columns.uuids([change.endpoint_id for change in changes]),
        "versions": columns.longs([change.before.version for change in changes]),
        "controls": columns.texts([None if change.after is None else control_json(change.after) for change in changes]),
        "waits": columns.floats([change.wait_s for change in changes]),
        "disables": columns.texts([change.disable for change in changes]),
        "same_ids": columns.uuids(list(settlement.same)),
        "same_versions": columns.longs([control.version for control in settlement.same.values()]),
    }


def _storable(text: str) -> str:
    """A text without what PostgreSQL's type does not hold (NUL, lone surrogates): one text must not spoil a batch."""
    return text and text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
