"""What a claimer asks of the database: claim, settle, reap, replay on, stay awake.

Owns the calls and the shapes of their rows; every statement is one round trip and one transaction. Knows no policy and
no network. Lost connections are replaced here; what was under way then is the caller's to repeat (settling twice does
no harm, a claim whose answer was lost lapses by itself).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import DictRow, dict_row

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
        self._connection: psycopg.AsyncConnection[DictRow] | None = None
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

    async def claim(self, slots: int, payload_bytes: int, free: int | None = None) -> list[Lease]:
        """Lease due deliveries: at most `slots`, with about `payload_bytes` of payload.

        Without a keyring nothing is claimed. If an endpoint needs a data key that has come since the keyring was read,
        it is read again.

        Args:
            slots: how many at most.
            payload_bytes: of how many bytes in all; one is let through in any case.
            free: the claimer's free slots, from which a lane's share is reckoned; None: as many as `slots`.

        Raises:
            Unavailable: the database cannot be reached.
            KeyUnavailable: the keyring cannot be had.
        """
        keyring = await self.keyring()
        began = self.monotonic()
        rows = await self._rows("SELECT * FROM forbear.claim(%s, %s, 200, %s)", (slots, payload_bytes, free))
        leases = _leases(rows, keyring, began)
        if any(isinstance(lease.lane.endpoint, UnknownKey) for lease in leases):
            self._keyring = None
            try:
                leases = _leases(rows, await self.keyring(), began)
            except Unavailable as error:
                self._keyring = keyring
                logger.warning("whether there is another data key cannot be seen: %s", error)
        return leases

    async def settle(
        self,
        results: Sequence[Result],
        changes: Sequence[LaneChange] = (),
        same: Mapping[UUID, Control] | None = None,
    ) -> Settled:
        """Record a batch of results, and of late ones what they saw; see the SQL functions settle and keep_late.

        Doing it twice does no harm: the second time, every result is late and its evidence there already.

        Args:
            results: one a lease.
            changes: what the batch came to for lanes, one each.
            same: the control of lanes that the batch leaves as it is known; told if it is not that any more.
        """
        same = same or {}
        attempts = [result.attempt or _NONE_MADE for result in results]
        now = self.monotonic()
        rows = await self._rows(
            statement("settle"),
            {
                "ids": [result.lease.delivery_id for result in results],
                "tokens": [result.lease.token for result in results],
                "endpoints": [result.lease.lane.endpoint_id for result in results],
                "outcomes": [result.outcome for result in results],
                "reasons": [result.reason for result in results],
                "delays": [result.delay_s for result in results],
                "limited": [result.limited for result in results],
                "verdicts": [result.attempt and result.attempt.verdict for result in results],
                "ages": [now - attempt.began for attempt in attempts],
                "latencies_ms": [attempt.latency_ms for attempt in attempts],
                "urls": [attempt.url for attempt in attempts],
                "addresses": [attempt.address for attempt in attempts],
                "request_headers": [attempt.request_headers for attempt in attempts],
                "statuses": [attempt.status for attempt in attempts],
                "response_headers": [attempt.response_headers for attempt in attempts],
                "response_bodies": [attempt.response_body for attempt in attempts],
                "errors": [attempt.error for attempt in attempts],
                "error_details": [_storable(attempt.error_detail) for attempt in attempts],
                "retry_afters": [attempt.retry_after_s for attempt in attempts],
                "honoured": [attempt.retry_after_honoured for attempt in attempts],
                "lane_ids": [change.endpoint_id for change in changes],
                "versions": [change.before.version for change in changes],
                "controls": [change.after and control_json(change.after) for change in changes],
                "waits": [change.wait_s for change in changes],
                "disables": [change.disable for change in changes],
                "same_ids": list(same),
                "same_versions": [control.version for control in same.values()],
            },
        )
        stale = {UUID(lane["endpoint"]): parse_control(lane["control"]) for lane in rows[0]["stale"] or ()}
        late = frozenset(place - 1 for place in rows[0]["late"])
        for place in sorted(late):
            await self._keep_late(results[place].lease, results[place].attempt)
        return Settled(late, stale)

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

    async def replay_step(self) -> bool:
        """Work on a due replay, if there is one. Says whether there was."""
        return (await self._rows("SELECT forbear.replay_step(1000) AS walked"))[0]["walked"] is not None

    async def outlook(self, claimer: UUID) -> Outlook:
        """Look at what is next."""
        row = (await self._rows("SELECT * FROM forbear.outlook(%s)", (claimer,)))[0]
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
        return (await self._rows("SELECT * FROM forbear.measure()"))[0]

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

    async def _rows(self, sql: str, parameters: Any = ()) -> list[DictRow]:
        try:
            async with self._turn, asyncio.timeout(PATIENCE_S):
                connection = await self._open()
                for pause_s in GIVE_WAY_S:
                    try:
                        return await self._fetch(connection, sql, parameters)
                    except GAVE_WAY:  # a deadlock or the like: nothing was done
                        await asyncio.sleep(random.uniform(0, pause_s))  # noqa: S311 - it keeps no secret
                    except psycopg.errors.CheckViolation as error:
                        if not is_missing_partition(error):
                            raise
                        await connection.execute(MAKE_PARTITIONS)
                return await self._fetch(connection, sql, parameters)
        except TimeoutError as error:
            await self.aclose()
            raise Unavailable(f"the database did not answer within {PATIENCE_S:g} s") from error
        except psycopg.Error as error:
            without_values(error)
            if not is_lost(error):
                raise
            await self.aclose()
            raise Unavailable(f"the database cannot be reached: {error}") from error

    async def _fetch(self, connection: psycopg.AsyncConnection[DictRow], sql: str, parameters: Any) -> list[DictRow]:
        cursor = await connection.execute(sql, parameters, binary=True)
        return await cursor.fetchall()

    async def _open(self) -> psycopg.AsyncConnection[DictRow]:
        if self._connection is not None and (self._connection.closed or hung_up(self._connection)):
            await self.aclose()
        if self._connection is None:
            # Where credentials are fetched or renewed, that blocks: requests are in flight meanwhile.
            arguments = (
                await asyncio.to_thread(self._target.arguments) if self._target.iam else self._target.arguments()
            )
            self._connection = await psycopg.AsyncConnection.connect(row_factory=dict_row, **arguments)
            cursor = await self._connection.execute("SELECT forbear.now() AS now")
            row = await cursor.fetchone()
            if row is not None:
                self._clock, self._at = row["now"], self.monotonic()
        return self._connection


_NONE_MADE = Attempt("", 0.0, 0.0, "", None, b"", None, b"", b"", None, "", None, retry_after_honoured=False)


def _leases(rows: Sequence[DictRow], keyring: Keyring, began: float) -> list[Lease]:
    known: dict[UUID, Lane] = {}
    for row in rows:
        if row["endpoint"] is not None:
            endpoint, policy = parse_endpoint(row["endpoint"], row["endpoint_id"], keyring)
            control = parse_control(row["control"])
            known[row["endpoint_id"]] = Lane(row["endpoint_id"], endpoint, policy, control, row["in_flight"])
    return [_lease(row, known[row["endpoint_id"]], began) for row in rows]


def _lease(row: DictRow, lane: Lane, began: float) -> Lease:
    return Lease(
        delivery_id=row["delivery_id"],
        event_id=row["event_id"],
        lane=lane,
        token=row["lease_token"],
        number=row["attempt"],
        progress=Progress(row["tries"], row["limited"], row["started_at"], row["held_s"]),
        expires_at=row["expires_at"],
        replay_id=row["replay_id"],
        probe=row["probe"],
        epoch=lane.control.breaker.epoch,
        event_type=row["event_type"],
        content_type=row["content_type"],
        payload=row["payload"],
        claimed=began,
    )


def _storable(text: str) -> str:
    """A text without what PostgreSQL's type does not hold (NUL, lone surrogates): one text must not spoil a batch."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
