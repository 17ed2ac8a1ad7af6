"""Scenarios as people ask for them: by a name, by options, or both. Pure.

Owns how options are read into a scenario and what is wrong with one that cannot be.
"""

from __future__ import annotations

import math
import re
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from infra.cli import durations
from infra.cli.errors import UsageError
from infra.simulate.receivers import Capacity, Mode, Outage, RateLimit, Receiver
from infra.simulate.scenarios import CUSTOM, SCENARIOS, Scenario

MOST_EVENTS: Final = 5_000_000
MOST_INTERVALS: Final = 100_000
_LONGEST_RETRY_AFTER_S: Final = 7 * 86_400
_OUTAGE: Final = re.compile(r"([^@:]+)@([^@:]+):([^@:]+)(?::([^@:]+))?")
_THROTTLE: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)(?::([^:]+))?")
# Unless it is said, a run has at most so many intervals, of a length that people count in. That of a named scenario
# stays if these are not too few or too many.
_INTERVALS: Final = 40
_SOME: Final = range(5, 100)
_LENGTHS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400)


@dataclass(frozen=True, slots=True)
class Asked:
    """What was typed of a scenario; None: nothing.

    Attributes:
        rate: Events a second, above 0.
        duration, latency, timeout, step: Durations.
        outages: Each as LENGTH@START:MODE, or with its 503s' Retry-After behind another colon.
        capacity: Requests a second, above 0.
        errors: A share, 0 to 1.
        throttle: Requests a second, or with the Retry-After of a 429 behind a colon.
    """

    rate: float | None = None
    duration: str | None = None
    outages: tuple[str, ...] = ()
    capacity: float | None = None
    latency: str | None = None
    errors: float | None = None
    throttle: str | None = None
    timeout: str | None = None
    step: str | None = None


def scenario(name: str | None, asked: Asked) -> Scenario:
    """The scenario of a name, changed as asked; without a name, what was asked for.

    Raises:
        UsageError: There is no such scenario, or what was asked for cannot be.
    """
    known = f"{', '.join(list(SCENARIOS)[:-1])} or {list(SCENARIOS)[-1]}"
    if name is None and not any(value not in {None, ()} for value in astuple(asked)):
        raise UsageError(f"name a scenario ({known}), or describe one: --rate, --duration, --outage, --capacity, …")
    if name is not None and name not in SCENARIOS:
        raise UsageError(f"there is no scenario {name!r}: name one of {known}")
    base = CUSTOM if name is None else SCENARIOS[name]
    rate_per_s = base.rate_per_s if asked.rate is None else asked.rate
    duration_s = _read("--duration", asked.duration, base.duration_s)
    if duration_s < 1 or rate_per_s * duration_s > MOST_EVENTS:
        raise UsageError(f"--duration: at least 1s, and at most {MOST_EVENTS:,} events at {rate_per_s:g} a second")
    timeout_s = base.timeout_s if asked.timeout is None else durations.read("--timeout", asked.timeout)
    if timeout_s is not None and not 1 <= timeout_s <= 30:
        raise UsageError("--timeout: the timeout of a policy lies between 1s and 30s")
    return replace(
        base,
        rate_per_s=rate_per_s,
        duration_s=duration_s,
        receiver=_receiver(base.receiver, asked),
        timeout_s=timeout_s,
        step_s=_step_s(asked.step, duration_s, base),
    )


def _read(option: str, typed: str | None, otherwise: float) -> float:
    return otherwise if typed is None else durations.read(option, typed)


def _step_s(typed: str | None, duration_s: float, base: Scenario) -> float:
    if typed is None and base is not CUSTOM and duration_s // base.step_s in _SOME:
        return base.step_s
    if typed is None:
        return float(next((length for length in _LENGTHS_S if duration_s <= _INTERVALS * length), _LENGTHS_S[-1]))
    step_s = durations.read("--step", typed)
    if step_s <= 0 or duration_s / step_s > MOST_INTERVALS:
        raise UsageError(f"--step: more than {MOST_INTERVALS:,} intervals would come of {typed!r}: lengthen it")
    return step_s


def _receiver(base: Receiver, asked: Asked) -> Receiver:
    changed: dict[str, Any] = {}
    if asked.outages:
        changed["outages"] = tuple(sorted(map(_outage, asked.outages), key=lambda outage: outage.from_s))
    if asked.capacity is not None:
        changed["capacity"] = Capacity(asked.capacity)
    if asked.latency is not None:
        changed["latency_s"] = durations.read("--latency", asked.latency)
    if asked.errors is not None:
        changed["error_share"] = asked.errors
    if asked.throttle is not None:
        changed["rate_limit"] = _rate_limit(asked.throttle)
    try:
        return replace(base, **changed)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _outage(typed: str) -> Outage:
    found = _OUTAGE.fullmatch(typed)
    modes = ", ".join(Mode)
    if found is None or found[3] not in set(Mode):
        raise UsageError(
            f"--outage: {typed!r} is none: write LENGTH@START:MODE, such as 10m@5m:refuse; the modes are {modes}"
        )
    mode = Mode(found[3])
    if found[4] is not None and mode is not Mode.UNAVAILABLE:
        raise UsageError(f"--outage: {typed!r}: only a 503 carries a Retry-After")
    start, length = durations.read("--outage", found[2]), durations.read("--outage", found[1])
    return Outage(start, start + length, mode, _retry_after("--outage", found[4]))


def _rate_limit(typed: str) -> RateLimit:
    found = _THROTTLE.fullmatch(typed)
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"--throttle: {typed!r} is none: write requests a second, and a Retry-After: 20 or 20:30s")
    per_s = float(found[1])
    return RateLimit(per_s, math.ceil(per_s), _retry_after("--throttle", found[2]))


def _retry_after(option: str, typed: str | None) -> int | None:
    """A header's whole seconds."""
    if typed is None:
        return None
    seconds = durations.read(option, typed)
    if not seconds.is_integer() or seconds > _LONGEST_RETRY_AFTER_S:
        raise UsageError(f"{option}: {typed!r}: a Retry-After is whole seconds, up to 7d")
    return int(seconds)
