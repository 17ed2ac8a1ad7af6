"""Waking the claimer: the asynchronous call of its function, and the schedule that ticks only while work is pending.

Owns the two AWS calls. They are imported late (boto3 costs 0.4 s of a cold start) and their failures are logged, not
raised: what a lost call leaves behind is found by the next tick, the next event or the safety sweep.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from forbear.settings import Settings

logger = logging.getLogger(__name__)

RATE = "rate(1 minute)"


def invoke_claimer(settings: Settings, reason: str = "wake") -> None:
    """Start a claimer, without waiting for it.

    Args:
        settings: names the claimer's function; without one this does nothing.
        reason: what the claimer is told: wake, full, successor.
    """
    if settings.claimer_function is None:
        return
    try:
        _client("lambda").invoke(
            FunctionName=settings.claimer_function,
            InvocationType="Event",
            Payload=json.dumps({"forbear": reason}).encode(),
        )
    except Exception:
        logger.exception("the claimer could not be called; the next tick or event will find the work")


class AwsWaking:
    """The claim loop's side: calls successors and switches the schedule.

    Args:
        settings: names the function and the schedule; what has no name is left alone.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def keep_ticking(self) -> None:
        """Have the schedule tick each minute."""
        await asyncio.to_thread(self._update, "ENABLED", RATE)

    async def stop_ticking(self, until: float | None) -> None:
        """Have the schedule rest: until so many seconds from now, or (None) until somebody calls."""
        if until is None:
            await asyncio.to_thread(self._update, "DISABLED", RATE)
        else:
            # at() has no time zone but the schedule's, UTC by default, and fires within its minute.
            at = datetime.fromtimestamp(time.time() + until, UTC) + timedelta(seconds=0.5)
            await asyncio.to_thread(self._update, "ENABLED", f"at({at:%Y-%m-%dT%H:%M:%S})")

    async def call(self, reason: str) -> None:
        """Start another claimer."""
        await asyncio.to_thread(invoke_claimer, self._settings, reason)

    def _update(self, state: str, expression: str) -> None:
        if self._settings.schedule_name is None:
            return
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


@cache
def _client(service: str) -> Any:
    import boto3  # noqa: PLC0415 - only who wakes somebody pays for the import
    from botocore.config import Config  # noqa: PLC0415

    return boto3.client(
        service,
        config=Config(connect_timeout=2, read_timeout=5, retries={"max_attempts": 3, "mode": "standard"}),
    )
