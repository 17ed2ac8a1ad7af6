"""A stand-in for EventBridge Scheduler: named schedules that invoke a function asynchronously.

Owns schedules and their timers, one timer a schedule; the API's documents are `aws_api`'s. Knows rate and one-time
expressions, UTC only, no flexible window, no retries of its own. Source: "Schedule types in EventBridge Scheduler",
EventBridge Scheduler User Guide.
"""

import asyncio
import json
import logging
import re
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime

from infra.local.errors import AwsError, InvalidSchedule, ScheduleExists, ScheduleNotFound
from infra.local.functions import Functions
from infra.local.pool import ACCOUNT_ID, REGION

_RATE = re.compile(r"rate\((?P<value>[1-9]\d{0,5}) (?P<unit>minute|hour|day)s?\)")
_AT = re.compile(r"at\((?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\)")
_MINUTES = {"minute": 1, "hour": 60, "day": 1_440}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as it is set.

    Attributes:
        name: Its name.
        expression: `rate(5 minutes)` or `at(2026-12-01T08:30:00)`, the latter in UTC.
        function: The name or ARN of the function to invoke.
        input: The event as JSON text; None for the event that Scheduler makes up.
        enabled: Whether it fires.
        description: For people.
    """

    name: str
    expression: str
    function: str
    input: str | None = None
    enabled: bool = True
    description: str = ""

    @property
    def arn(self) -> str:
        """The ARN, in the default group."""
        return f"arn:aws:scheduler:{REGION}:{ACCOUNT_ID}:schedule/default/{self.name}"


@dataclass(slots=True)
class _Entry:
    schedule: Schedule
    created_at: datetime
    changed_at: datetime
    timer: asyncio.TimerHandle | None = None


class Scheduler:
    """The schedules of a stack."""

    def __init__(self, functions: Functions, *, minute_s: float = 60.0) -> None:
        """Start without schedules.

        Args:
            functions: Where the functions are.
            minute_s: How long a minute of a rate lasts, in seconds; tests make it short. One-time schedules go by the
                real clock.
        """
        self._functions = functions
        self._minute_s = minute_s
        self._entries: dict[str, _Entry] = {}
        self._stopped = False

    def stop(self) -> None:
        """Fire nothing any more."""
        self._stopped = True
        for entry in self._entries.values():
            _disarm(entry)

    def get(self, name: str) -> tuple[Schedule, datetime, datetime]:
        """A schedule, when it was created and when it was last changed.

        Args:
            name: Its name.

        Returns:
            The schedule and the two times, in UTC.

        Raises:
            ScheduleNotFound: If there is none.
        """
        entry = self._entry(name)
        return entry.schedule, entry.created_at, entry.changed_at

    def create(self, schedule: Schedule) -> None:
        """Add a schedule.

        Args:
            schedule: The schedule. A rate fires first right away, then once a period, as AWS documents for a schedule
                without a start date; a one-time schedule fires at its time, or right away if that has passed (which
                AWS leaves open).

        Raises:
            ScheduleExists: If the name is taken.
            InvalidSchedule: If the expression or the input is wrong.
            FunctionNotFound: If there is no such function.
        """
        if schedule.name in self._entries:
            raise ScheduleExists(schedule.name)
        self._check(schedule)
        now = datetime.now(UTC)
        self._entries[schedule.name] = entry = _Entry(schedule, now, now)
        self._arm(entry)

    def update(self, schedule: Schedule) -> None:
        """Replace a schedule as a whole.

        Args:
            schedule: What it becomes. It starts over (see `create`) if its expression changes or it becomes enabled;
                otherwise it keeps its beat.

        Raises:
            ScheduleNotFound: If there is none of that name.
            InvalidSchedule: If the expression or the input is wrong.
            FunctionNotFound: If there is no such function.
        """
        entry = self._entry(schedule.name)
        self._check(schedule)
        before, entry.schedule = entry.schedule, schedule
        entry.changed_at = datetime.now(UTC)
        if (before.expression, before.enabled) != (schedule.expression, schedule.enabled):
            _disarm(entry)
            self._arm(entry)

    def _entry(self, name: str) -> _Entry:
        try:
            return self._entries[name]
        except KeyError:
            raise ScheduleNotFound(name) from None

    def _check(self, schedule: Schedule) -> None:
        if not re.fullmatch(r"[0-9a-zA-Z-_.]{1,64}", schedule.name):
            raise InvalidSchedule(f"Invalid schedule name {schedule.name!r}.")
        _first_fire_in_s(schedule.expression)
        if schedule.input is not None:
            try:
                json.loads(schedule.input)
            except ValueError as error:
                raise InvalidSchedule(f"The input is no JSON: {error}") from error
        self._functions.spec(schedule.function)

    def _arm(self, entry: _Entry) -> None:
        if entry.schedule.enabled and not self._stopped:
            loop = asyncio.get_running_loop()
            due = loop.time() + _first_fire_in_s(entry.schedule.expression)
            entry.timer = loop.call_at(due, self._fire, entry, due)

    def _fire(self, entry: _Entry, due: float) -> None:
        entry.timer = None
        rate = _RATE.fullmatch(entry.schedule.expression)
        if rate is not None:
            # Counted from when it was due, not from now, so that the beat does not drift.
            due += int(rate["value"]) * _MINUTES[rate["unit"]] * self._minute_s
            entry.timer = asyncio.get_running_loop().call_at(due, self._fire, entry, due)
        schedule = entry.schedule
        event = _made_up_event(schedule) if schedule.input is None else schedule.input
        try:
            self._functions.invoke_async(schedule.function, event.encode())
        except AwsError as error:
            logger.warning("The schedule %s could not invoke %s: %s", schedule.name, schedule.function, error)


def _first_fire_in_s(expression: str) -> float:
    if _RATE.fullmatch(expression):
        return 0.0
    at = _AT.fullmatch(expression)
    try:
        if at is not None:
            time = datetime.fromisoformat(at["time"]).replace(tzinfo=UTC)
            return max(0.0, (time - datetime.now(UTC)).total_seconds())
    except ValueError:
        pass  # a date such as February 30th
    raise InvalidSchedule(f"Invalid Schedule Expression {expression}: rate(…) and at(…) are known here.")


def _made_up_event(schedule: Schedule) -> str:
    return json.dumps(
        {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Scheduled Event",
            "source": "aws.scheduler",
            "account": ACCOUNT_ID,
            "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": REGION,
            "resources": [schedule.arn],
            "detail": "{}",
        }
    )


def _disarm(entry: _Entry) -> None:
    if entry.timer is not None:
        entry.timer.cancel()
        entry.timer = None
