"""How long claimers and the database are awake, and how many claimers there are at once.

A claimer that is awake costs its wall time, whatever it does; so what matters is how much of the month lies within
reach of some event. Events come at random (a Poisson process), at an even rate, during some hours of each day. Each
keeps a claimer awake for the time that it takes to send it, the time that a claimer lingers after its last work, and
the wait for a retry if there is one. The share of time that at least one of such stretches covers, of length w and at
rate r, is 1 - exp(-r w) (an M/G/infinity queue that is not empty), and r exp(-r w) of them begin each second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Final

from forbear.settings import Settings
from infra.config import StackConfig
from infra.cost.measured import Estimated, Measured

HOURS: Final = 730.0
"""A month's."""
DAYS: Final = 30
"""A month's, for what happens a few times a day."""

CORE_MB: Final = 1769
"""The memory that comes with a whole CPU in Lambda."""

_DEFAULTS: Final[dict[str, Any]] = {setting.name: setting.default for setting in fields(Settings)}
_IN_FLIGHT: Final[int] = _DEFAULTS["max_in_flight"]
_LINGER_S: Final[float] = _DEFAULTS["linger_s"]
# A claimer hands on when its 15 minutes are nearly over: `forbear.loop`.
_LIFE_S: Final = 855.0


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a stack in a month.

    Attributes:
        events: posted.
        fan_out: deliveries of each.
        payload_bytes: of each.
        retries: attempts beyond the first, for each delivery, on average.
        receiver_s: what a receiver takes to answer.
        hours_a_day: in which the events come, evenly.
        batch: events in a request.
    """

    events: float
    fan_out: float = 1
    payload_bytes: float = 1_000
    retries: float = 0.02
    receiver_s: float = 0.2
    hours_a_day: float = 24
    batch: float = 1

    @property
    def deliveries(self) -> float:
        """Of all events."""
        return self.events * self.fan_out

    @property
    def attempts(self) -> float:
        """Of all deliveries."""
        return self.deliveries * (1 + self.retries)

    @property
    def requests(self) -> float:
        """That ingest gets."""
        return self.events / self.batch

    @property
    def active_s(self) -> float:
        """How much of the month events come in, in seconds."""
        return HOURS * 3600 * self.hours_a_day / 24


@dataclass(frozen=True, slots=True)
class Awake:
    """Who is awake in a month.

    Attributes:
        claimer_s: wall time of all claimers, the sweeps' included.
        claimers: at once, while events come.
        calls: of the claimer function: wake-up calls, successors, ticks, sweeps.
        ticks: of the schedule.
        sweeps: of the other one.
        wakings: wake-up calls.
        traffic_hours: hours in which anything happens; metrics are paid for by the hour.
        capacity_acu_h: ACU-hours of the database, readers included.
        acu: which capacity the load needs while events come.
    """

    claimer_s: float
    claimers: float
    calls: float
    ticks: float
    sweeps: float
    wakings: float
    traffic_hours: float
    capacity_acu_h: float
    acu: float


def claimer_cpu_s(load: Load, measured: Measured, estimated: Estimated) -> float:
    """CPU of Lambda that all attempts take, at a full core."""
    return load.attempts * (measured.claimer_us_per_attempt + estimated.tls_us_per_attempt) / 1e6 * estimated.lambda_cpu


def awake(load: Load, config: StackConfig, measured: Measured, estimated: Estimated) -> Awake:
    """Who is awake under a load."""
    memory = config.functions.memory_mb.claimer
    per_second = load.requests / load.active_s
    retries_per_second = load.deliveries * load.retries / load.active_s
    stretch_s = estimated.start_s + load.receiver_s + _LINGER_S
    covered = per_second * stretch_s + retries_per_second * (estimated.retry_wait_s + load.receiver_s + _LINGER_S)
    reached_s = load.active_s * -math.expm1(-covered)
    wakings = load.requests * math.exp(-covered)
    slow = max(CORE_MB / memory, 1.0)
    busy_s = max(claimer_cpu_s(load, measured, estimated) * slow, load.attempts * load.receiver_s / _IN_FLIGHT)
    busy_s = max(busy_s / estimated.claimer_busy, reached_s)
    ticks = reached_s / 60
    sweeps = _sweeps(config)
    claimer_s = busy_s + ticks * estimated.tick_s + sweeps * estimated.sweep_s
    needed_h = _needed_acu_h(load, busy_s, measured, estimated)
    hour_share = -math.expm1(-per_second * 3600)
    return Awake(
        claimer_s=claimer_s,
        claimers=busy_s / load.active_s,
        calls=wakings + busy_s / _LIFE_S + ticks + sweeps,
        ticks=ticks,
        sweeps=sweeps,
        wakings=wakings,
        traffic_hours=load.active_s / 3600 * hour_share,
        capacity_acu_h=_capacity_acu_h(load, config, covered, needed_h, estimated),
        acu=needed_h / (load.active_s / 3600),
    )


def _needed_acu_h(load: Load, claimer_s: float, measured: Measured, estimated: Estimated) -> float:
    """ACU-hours that the CPU takes which the load asks of the database, and claimers that look for work."""
    cpu_us = load.events * measured.database_us_per_event + load.attempts * measured.database_us_per_attempt
    cpu_us += claimer_s * measured.database_ms_per_claimer_second * 1e3
    return cpu_us / 1e6 / estimated.vcpus_per_acu / estimated.database_busy / 3600


def _capacity_acu_h(load: Load, config: StackConfig, covered: float, needed_h: float, estimated: Estimated) -> float:
    """ACU-hours of the month, readers included.

    Args:
        load: what is asked.
        config: of which stack.
        covered: how many stretches in which a claimer is awake lie over a moment, on average.
        needed_h: the ACU-hours that the load's CPU takes.
        estimated: how long a connection is kept.
    """
    database = config.database
    active_h = load.active_s / 3600
    floor = max(database.min_acu, 0.5)
    kept_s = estimated.session_s + database.auto_pause_s
    if database.min_acu > 0:
        awake_h, resting_h = active_h, HOURS - active_h
    else:
        # Every event and every retry keeps it awake for so long more.
        per_second = (load.requests + load.deliveries * load.retries) / load.active_s
        awake_h = active_h * -math.expm1(-covered - per_second * kept_s)
        resting_h = min(_sweeps(config) * kept_s / 3600, HOURS) * (1 - awake_h / HOURS)
    busy_h = max(awake_h * floor, needed_h)
    return (1 + database.readers) * (busy_h + resting_h * floor)


def _sweeps(config: StackConfig) -> float:
    return DAYS * 24 / config.schedule.sweep_hours
