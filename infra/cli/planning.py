"""What `forbear schedule` shows: a schedule changed as asked, its plan as a document and as facts, plans as a picture.

Pure. Imports the policy's model, so the command imports this when it runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from forbear.policy.model import Policy
from forbear.policy.plan import Plan, derive
from forbear.policy.presets import Preset
from forbear.policy.schedule import Exponential, Schedule
from infra.cli import durations
from infra.cli.errors import UsageError
from infra.cli.output import Columns, Document, counted, visible
from infra.plotting.figure import Axis, Figure, Panel, Series

OPTIONS: Final = {
    "base_s": "--first",
    "multiplier": "--multiplier",
    "cap_s": "--cap",
    "retries": "--retries",
    "window_s": "--window",
    "jitter": "--jitter",
}
"""The fields of schedules that can be said on the command line, and how."""

_FEW: Final = 100  # attempts, which a linear axis can show one by one
_SCHEDULE: Final[TypeAdapter[Schedule]] = TypeAdapter(Schedule)


def read_jitter(typed: str) -> dict[str, Any]:
    """Read a jitter as it is typed, `full` or `proportional:0.2`, for `adjusted` and `own` to check.

    Raises:
        UsageError: The number is none.
    """
    kind, colon, ratio = typed.partition(":")
    try:
        return {"kind": kind, **({"ratio": float(ratio)} if colon else {})}
    except ValueError:
        raise UsageError(f"--jitter: {ratio!r} is no number: write {kind}:0.2 for 20 %") from None


def adjusted(preset: Preset, fields: Mapping[str, Any], give_up_s: float | None) -> Preset:
    """A preset with some of its schedule replaced.

    Args:
        preset: Any preset.
        fields: Fields of its schedule, by their names in `OPTIONS`.
        give_up_s: Not None: with the fewest retries that last so long, and without a window.

    Raises:
        UsageError: The schedule's kind has no such field, or not such a value; or it is not exponential or can never
            last so long.
    """
    schedule = preset.policy.schedule
    for field in fields:
        if field not in type(schedule).model_fields:
            raise UsageError(f"{OPTIONS[field]}: a schedule of the kind {schedule.kind} has no {field}: leave it out")
    kept = tuple(part for part in preset.from_default if part.removeprefix("schedule.") not in fields)
    return _with(replace(preset, from_default=kept), {**schedule.model_dump(), **fields}, give_up_s)


def own(fields: Mapping[str, Any], give_up_s: float | None) -> Preset:
    """An exponential schedule from its fields alone, with all else from the default policy.

    Args:
        fields: Its fields, by their names in `OPTIONS`.
        give_up_s: Not None: with the fewest retries that last so long.

    Raises:
        UsageError: A field is missing, has no such value, or the schedule can never last so long.
    """
    if missing := [OPTIONS[field] for field in ("base_s", "multiplier") if field not in fields]:
        raise UsageError(f"a schedule of one's own needs {' and '.join(missing)}: add it, or name a preset")
    others = tuple("schedule.jitter" if part == "schedule" else part for part in Policy.model_fields)
    whole = Preset("own", "", "", Policy(), others if "jitter" not in fields else others[1:])
    return _with(whole, {"kind": "exponential", **fields}, give_up_s)


def _with(preset: Preset, fields: Mapping[str, Any], give_up_s: float | None) -> Preset:
    """A preset with a schedule of these fields, and with the retries that it takes to last so long."""
    try:
        # What is still to be worked out must not be what is found missing.
        schedule = _SCHEDULE.validate_python(fields if give_up_s is None else {**fields, "retries": 0})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        # The place is the kind (said by no option), the field, and what is within it.
        where = [OPTIONS.get(str(part), str(part)) for part in first["loc"][1:]]
        raise UsageError(": ".join([*where, first["msg"].removeprefix("Value error, ")])) from error
    if give_up_s is not None:
        if not isinstance(schedule, Exponential):
            raise UsageError(
                "--give-up works out the retries of exponential schedules only: name such a preset, or none and give "
                "--first, --multiplier and --cap"
            )
        try:
            attempts = derive(give_up_s, schedule.base_s, schedule.multiplier, schedule.cap_s)
        except ValueError as error:
            raise UsageError(f"--give-up: {error}") from error
        schedule = schedule.model_copy(update={"retries": attempts - 1, "window_s": None})
    return replace(preset, policy=preset.policy.model_copy(update={"schedule": schedule}))


def document(preset: Preset, plan: Plan, limit: int, changed_fields: tuple[str, ...] = ()) -> dict[str, Any]:
    """A plan for programs: times in seconds, whole numbers as integers.

    Args:
        preset: Whose schedule it is, as it was planned.
        plan: Its plan.
        limit: How many rows at most.
        changed_fields: What of the schedule is not as it was published.
    """
    rows = plan.rows[:limit]
    return {
        "preset": preset.name,
        "summary": preset.summary,
        "source": preset.source,
        "from_default": list(preset.from_default),
        "changed": list(changed_fields),
        "schedule": _plain(preset.policy.schedule.model_dump()),
        "attempts": [_plain(asdict(row)) for row in rows],
        "more": plan.on_paper.attempts - len(rows),
        "attempts_in_all": {"on_paper": plan.on_paper.attempts, "expected": plan.expected.attempts},
        "gives_up_s": _plain({"on_paper": plan.on_paper.elapsed_s, "expected": plan.expected.elapsed_s}),
    }


def _ending(shown: Document, how: str) -> str:
    attempts = counted(shown["attempts_in_all"][how], "attempt")
    return f"{attempts}, the last after {durations.written(shown['gives_up_s'][how])}"


FACTS: Final[Columns] = {
    "schedule": "preset",
    "summary": "summary",
    "source": "source",
    "from default": "from_default",
    "changed": "changed",
    "policy": lambda shown: json.dumps({"schedule": shown["schedule"]}) if shown["changed"] else None,
    "on paper": lambda shown: _ending(shown, "on_paper"),
    "expected": lambda shown: _ending(shown, "expected"),
}
"""What is told of a plan's document above its rows; a changed schedule's policy is there to be pasted."""

ROWS: Final[Columns] = {
    "attempt": "attempt",
    "gap": lambda row: durations.written(row["gap_s"]),
    "elapsed": lambda row: durations.written(row["elapsed_s"]),
    "earliest": lambda row: durations.written(row["earliest_s"]),
    "expected": lambda row: durations.written(row["expected_s"]),
    "latest": lambda row: durations.written(row["latest_s"]),
}
"""What is told of each attempt in it."""


def picture(plans: Sequence[tuple[str, Plan]]) -> Figure:
    """The attempts of plans with their names, one or more, over time."""
    most = max(plan.on_paper.attempts for _, plan in plans)
    panel = Panel(
        Axis("time since the first attempt, before jitter", "time", log=True),
        Axis("attempts", log=most > _FEW),
        tuple(_series(visible(name), plan) for name, plan in plans),
    )
    names = [f"{name} ({counted(plan.on_paper.attempts, 'attempt')})" for name, plan in plans]
    return Figure(
        "Attempts of a delivery that keeps failing",
        ((panel,),),
        visible(f"How many attempts a delivery has had at each time after the first: {', '.join(names)}."),
        "where jitter may put it",
    )


def _series(name: str, plan: Plan) -> Series:
    # All of the first attempts, then ever fewer: so they look on logarithmic axes.
    rows = [plan.rows[0]]
    for row in plan.rows[1:]:
        if row.attempt <= _FEW or row.attempt >= rows[-1].attempt * 1.1 or row is plan.rows[-1]:
            rows.append(row)
    x, y = [row.elapsed_s for row in rows], [row.attempt for row in rows]
    spread = [(row.earliest_s, row.latest_s) for row in rows]
    if plan.more:
        end = plan.on_paper
        x, y, spread = [*x, end.elapsed_s], [*y, end.attempts], [*spread, (end.elapsed_s, end.elapsed_s)]
    # Where points are left out, there are no steps.
    return Series(name, x, y, "step" if plan.on_paper.attempts <= _FEW else "line", spread)


def _plain(value: Any) -> Any:
    """Numbers as people write them: whole ones without a fraction, others to the microsecond."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, float):
        return int(value) if value.is_integer() else round(value, 6)
    return value
