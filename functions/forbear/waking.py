"""Waking the claimer: the asynchronous call of its function, and the schedule that ticks only while work is pending.

Owns the AWS calls, the maintenance function's among them, and the mark that says a claimer was called. boto3 is
imported late (0.4 s of a cold start). Whatever fails here is logged and not raised: the work is committed, and the next
event, tick or sweep finds it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from datetime import timedelta
from functools import cache, partial
from typing import Any

from forbear.db import Database
from forbear.settings import Settings

logger = logging.getLogger(__name__)

RATE = "rate(1 minute)"
# Who calls a function has an answer of its own to give. Lambda takes a call within a tenth of a second; when it has not
# in this time it is not asked again. What it refuses at once (too many calls, say) is tried again after these.
CALL_S = 1.0
PAUSES_S = (0.1, 0.4)


def prepare(settings: Settings) -> None:
    """Make ready for calling a claimer, in time that passes anyhow: boto3's import takes as long as the call.

    Args:
        settings: names the claimer's function.
    """
    if settings.claimer_function is None:
        return
    try:
        _client("lambda")
    except Exception:
        logger.exception("the call of a claimer could not be prepared")


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
    except Exception:
        # The lost answer may have been yes; a claimer too many does no harm, one too few does.
        logger.exception("whether a claimer is awake could not be asked: one is called")
        row = None
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
    except Exception:
        logger.exception("the mark of a failed call could not be taken away; it expires by itself")


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
        _invoke(settings.claimer_function, {"forbear": reason})
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
        _invoke(settings.maintenance_function, {})
    except Exception:
        logger.exception("maintenance could not be called; a claimer tries again in some minutes")


def _invoke(function: str, event: dict[str, str]) -> None:
    from botocore.exceptions import ClientError  # noqa: PLC0415 - as boto3

    call = partial(
        _client("lambda").invoke, FunctionName=function, InvocationType="Event", Payload=json.dumps(event).encode()
    )
    for pause_s in PAUSES_S:
        try:
            call()
        except ClientError as error:
            logger.info("a call was refused, and is tried again: %s", error)
            time.sleep(pause_s)
        else:
            return
    call()


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
        return await asyncio.to_thread(self._update, "DISABLED" if until is None else "ENABLED", RATE, until)

    async def call(self, reason: str) -> None:
        """Start another claimer."""
        await asyncio.to_thread(invoke_claimer, self._settings, reason)

    def _update(self, state: str, expression: str, rest_s: float | None = None) -> bool:
        if self._settings.schedule_name is None:
            return True
        name = {"Name": self._settings.schedule_name, "GroupName": self._settings.schedule_group}
        try:
            scheduler = _client("scheduler")
            now = scheduler.get_schedule(**name)
            if rest_s is not None:
                expression = _once_after(rest_s, now)
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


def _once_after(seconds: float, answer: dict[str, Any]) -> str:
    """The expression that fires once, in so many seconds: by the clock that it is read by, the Scheduler's own.

    A function's clock that is ahead would have the work wait for it.

    Args:
        seconds: from now.
        answer: what the Scheduler has just answered; its date (RFC 9110 section 6.6.1) is cut to the second.
    """
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - as boto3, which has imported it

    asked_at = parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["date"])
    # at() has no time zone but the schedule's, UTC by default, and fires within its minute.
    return f"at({asked_at + timedelta(seconds=seconds + 1):%Y-%m-%dT%H:%M:%S})"


def _count_failure(settings: Settings) -> None:
    from forbear.metrics import WAKE_CALLS_FAILED, write  # noqa: PLC0415 - not imported by functions that count nothing else

    write(settings.metrics_namespace, {WAKE_CALLS_FAILED: 1})


@cache
def _client(service: str) -> Any:
    import boto3  # noqa: PLC0415 - only who wakes somebody pays for the import
    from botocore.config import Config  # noqa: PLC0415

    if service == "lambda":
        config = Config(connect_timeout=CALL_S, read_timeout=CALL_S, retries={"total_max_attempts": 1})
    else:
        config = Config(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 3, "mode": "standard"})
    return boto3.client(service, config=config)
