"""Waking the claimer: the asynchronous call of its function, and the schedule that ticks only while work is pending.

Owns the AWS calls, the maintenance function's among them, and the mark that says a claimer was called. boto3 is
imported late (0.4 s of a cold start). A call that fails is logged and not raised: the work is committed, and the next
event, tick or sweep finds it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from forbear.db import Database, Unavailable
from forbear.settings import Settings

logger = logging.getLogger(__name__)

RATE = "rate(1 minute)"


def wake(database: Database, settings: Settings) -> None:
    """Call a claimer if none is awake or called: after the COMMIT that made work, in a transaction of its own.

    Args:
        database: where the marks are.
        settings: names the claimer's function.
    """
    try:
        row = database.run(
            lambda connection: connection.execute("SELECT forbear.call_claimer() AS called").fetchone(),
            repeatable=False,
        )
    except Unavailable:
        row = None  # the lost answer may have been yes; a claimer too many does no harm, one too few does
    if row is None or row["called"]:
        summon(database, settings)


def summon(database: Database, settings: Settings) -> None:
    """Call a claimer, having been told to by the SQL function forbear.call_claimer.

    When the call fails, the mark that keeps others from calling is taken away.
    """
    if invoke_claimer(settings, "wake"):
        return
    try:
        database.run(
            lambda connection: connection.execute(
                "DELETE FROM forbear.claimers WHERE id = '00000000-0000-0000-0000-000000000000'"
            ),
            repeatable=True,
        )
    except Unavailable as error:
        logger.warning("the mark of a failed call could not be taken away; it expires by itself: %s", error)


def invoke_claimer(settings: Settings, reason: str) -> bool:
    """Start a claimer, without waiting for it.

    Args:
        settings: names the claimer's function; without one there is nothing to start.
        reason: what the claimer is told: wake, full, successor.

    Returns:
        False if the call failed.
    """
    if settings.claimer_function is None:
        return True
    try:
        _client("lambda").invoke(
            FunctionName=settings.claimer_function,
            InvocationType="Event",
            Payload=json.dumps({"forbear": reason}).encode(),
        )
    except Exception:
        logger.exception("the claimer could not be called; the next event, tick or sweep will find the work")
        _count_failure(settings)
        return False
    return True


def invoke_maintenance(settings: Settings) -> None:
    """Start the maintenance function, without waiting for it. A call that fails is made again by a later claimer.

    Args:
        settings: names the function; without one there is nothing to start.
    """
    if settings.maintenance_function is None:
        return
    try:
        _client("lambda").invoke(FunctionName=settings.maintenance_function, InvocationType="Event", Payload=b"{}")
    except Exception:
        logger.exception("maintenance could not be called; a claimer tries again in some minutes")


class AwsWaking:
    """The claim loop's side: calls successors and switches the schedule.

    Args:
        settings: names the function and the schedule; what has no name is left alone.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def keep_ticking(self) -> bool:
        """Have the schedule tick each minute. False if that failed."""
        return await asyncio.to_thread(self._update, "ENABLED", RATE)

    async def stop_ticking(self, until: float | None) -> bool:
        """Have the schedule rest: until so many seconds from now, or (None) until somebody calls. False: it failed."""
        if until is None:
            return await asyncio.to_thread(self._update, "DISABLED", RATE)
        # at() has no time zone but the schedule's, UTC by default, and fires within its minute.
        at = datetime.fromtimestamp(time.time() + until, UTC) + timedelta(seconds=0.5)
        return await asyncio.to_thread(self._update, "ENABLED", f"at({at:%Y-%m-%dT%H:%M:%S})")

    async def call(self, reason: str) -> None:
        """Start another claimer."""
        await asyncio.to_thread(invoke_claimer, self._settings, reason)

    def _update(self, state: str, expression: str) -> bool:
        if self._settings.schedule_name is None:
            return True
        name = {"Name": self._settings.schedule_name, "GroupName": self._settings.schedule_group}
        try:
            scheduler = _client("scheduler")
            now = scheduler.get_schedule(**name)
            # UpdateSchedule replaces the whole schedule: what is not given falls back to its default.
            kept = {
                key: now[key]
                for key in ("Description", "FlexibleTimeWindow", "KmsKeyArn", "ScheduleExpressionTimezone", "Target")
                if key in now
            }
            scheduler.update_schedule(**name, **kept, State=state, ScheduleExpression=expression)
        except Exception:
            logger.exception("the schedule could not be switched to %s", state)
            _count_failure(self._settings)
            return False
        return True


def _count_failure(settings: Settings) -> None:
    from forbear.metrics import WAKE_CALLS_FAILED, write  # noqa: PLC0415 - not imported by functions that count nothing else

    write(settings.metrics_namespace, {WAKE_CALLS_FAILED: 1})


@cache
def _client(service: str) -> Any:
    import boto3  # noqa: PLC0415 - only who wakes somebody pays for the import
    from botocore.config import Config  # noqa: PLC0415

    return boto3.client(
        service,
        config=Config(connect_timeout=2, read_timeout=5, retries={"max_attempts": 3, "mode": "standard"}),
    )
