"""A month's bill: what is used of each service under a load, times its price. Pure.

Left out, because they depend on more than the load or are cents: cold starts, requests of the management API and
replays, flow logs, snapshots and backups beyond the database's size, a KMS key's yearly rotations, NAT and transfer of
the calls to AWS, the S3 bucket of the bootstrap (Forbear itself uses none), tax and support.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from infra.config import StackConfig
from infra.cost import prices
from infra.cost.awake import CORE_MB, HOURS, Awake, Load, awake
from infra.cost.measured import ESTIMATED, MEASURED, Estimated, Measured
from infra.cost.prices import Price

_GB: Final = 1e9
_GIB: Final = float(1 << 30)
_MONTH_DAYS: Final = HOURS / 24
_BASE_GB: Final = 1.0
"""What a database holds that is empty."""

_PAGE: Final = 4096
"""What Aurora counts as one write of WAL."""
_CLAIM_EVERY_S: Final = 0.02
_MARK_EVERY_S: Final = 1.5

_ALARMS: Final = 12
"""Metrics with an alarm, but for those of a second API and the way out: `infra.alarms`."""

# How often an environment of the claimer may be a new one, with keys to be unwrapped.
_COLD_STARTS_AN_HOUR: Final = 6


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the bill.

    Attributes:
        part: whose it is: the service, roughly.
        what: is paid for.
        quantity: of it.
        price: for `price.scale` of it.
        free: how much of it the free tier takes off in an account that has nothing else.
    """

    part: str
    what: str
    quantity: float
    price: Price
    free: float = 0

    @property
    def dollars(self) -> float:
        """At list price."""
        return self.quantity / self.price.scale * self.price.dollars

    @property
    def dollars_after_free(self) -> float:
        """What is left of it with the free tier."""
        return max(self.quantity - self.free, 0) / self.price.scale * self.price.dollars


@dataclass(frozen=True)
class Bill:
    """A month's bill.

    Attributes:
        load: what was asked.
        config: of which stack.
        awake: who was awake for it.
        lines: what is paid for.
        notes: what the stack cannot do as it is set up.
    """

    load: Load
    config: StackConfig
    awake: Awake
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    @cached_property
    def total(self) -> float:
        """At list prices."""
        return math.fsum(line.dollars for line in self.lines)

    @cached_property
    def total_after_free(self) -> float:
        """With the free tier."""
        return math.fsum(line.dollars_after_free for line in self.lines)

    @property
    def parts(self) -> dict[str, float]:
        """The list price of each part."""
        sums: dict[str, float] = {}
        for line in self.lines:
            sums[line.part] = sums.get(line.part, 0.0) + line.dollars
        return sums

    def per_million_deliveries(self, total: float) -> float | None:
        """A sum spread over the deliveries; None if there are none."""
        return total / self.load.deliveries * 1e6 if self.load.deliveries else None


def bill(load: Load, config: StackConfig, measured: Measured = MEASURED, estimated: Estimated = ESTIMATED) -> Bill:
    """What a load costs a stack in a month."""
    who = awake(load, config, measured, estimated)
    lines = (
        *_functions(load, config, who, measured, estimated),
        Line("API Gateway", "requests", load.requests * _chunks(load), prices.HTTP_API),
        *_database(load, config, who, measured),
        *_network(load, config, estimated),
        *_observability(load, config, who, measured, estimated),
        Line("Scheduler", "ticks and sweeps", who.ticks + who.sweeps, prices.SCHEDULER, prices.SCHEDULER.free),
        *_keys(config, who),
    )
    return Bill(load, config, who, lines, tuple(_notes(load, config, who)))


def _chunks(load: Load) -> int:
    return max(math.ceil(load.batch * load.payload_bytes / (512 << 10)), 1)


def _functions(load: Load, config: StackConfig, who: Awake, measured: Measured, estimated: Estimated) -> Iterator[Line]:
    functions = config.functions
    rate = prices.LAMBDA_ARM if functions.architecture == "arm64" else prices.LAMBDA_X86
    memory = functions.memory_mb
    cpu_ms = (measured.ingest_ms_per_request + load.batch * measured.ingest_ms_per_event) * estimated.lambda_cpu
    ingest_ms = cpu_ms * max(CORE_MB / memory.ingest, 1.0) + estimated.database_wait_ms
    ingest_gb_s = load.requests * ingest_ms / 1000 * memory.ingest / 1024
    claimer_gb_s = who.claimer_s * memory.claimer / 1024
    requests = load.requests + who.calls
    yield Line("Lambda", "requests", requests, prices.LAMBDA_REQUESTS, prices.LAMBDA_REQUESTS.free)
    yield Line("Lambda", f"ingest, {ingest_ms:.1f} ms each", ingest_gb_s, rate, rate.free)
    hours = f"{who.claimer_s / 3600:,.1f} h"
    yield Line("Lambda", f"claimers, {hours}", claimer_gb_s, rate, max(rate.free - ingest_gb_s, 0))


def _database(load: Load, config: StackConfig, who: Awake, measured: Measured) -> Iterator[Line]:
    fast = config.database.io_optimized
    capacity = prices.AURORA_CAPACITY_IO_OPTIMIZED if fast else prices.AURORA_CAPACITY
    storage = prices.AURORA_STORAGE_IO_OPTIMIZED if fast else prices.AURORA_STORAGE
    stored = load.events * (load.payload_bytes + measured.stored_bytes_per_event)
    stored += load.attempts * measured.stored_bytes_per_attempt
    kept_gb = _BASE_GB + stored * config.delivery.retention_days / _MONTH_DAYS / _GIB
    yield Line("Aurora", "capacity", who.capacity_acu_h, capacity)
    yield Line("Aurora", f"storage, {config.delivery.retention_days} days kept", kept_gb, storage)
    if not fast:
        wal = load.events * (load.payload_bytes + measured.wal_bytes_per_event)
        wal += load.attempts * measured.wal_bytes_per_attempt
        # A claim and a settle write for as many as there are, and not more often than a claimer looks.
        commits = load.requests + 2 * min(load.attempts, who.claimer_s / _CLAIM_EVERY_S)
        marks = who.claimer_s / _MARK_EVERY_S if load.events else 0
        yield Line("Aurora", "writes", wal / _PAGE + commits + marks, prices.AURORA_IO)


def _network(load: Load, config: StackConfig, estimated: Estimated) -> Iterator[Line]:
    network = config.network
    out_gb = load.attempts * (load.payload_bytes + estimated.out_bytes) / _GB
    back_gb = load.attempts * estimated.back_bytes / _GB
    if network.nat == "instance":
        addresses = 1
        yield Line("NAT", "instance", HOURS, prices.NAT_INSTANCE)
        yield Line("NAT", "its disk", 8, prices.NAT_INSTANCE_DISK)
    else:
        addresses = network.nat_gateways
        yield Line("NAT", f"gateways, {addresses}", addresses * HOURS, prices.NAT_GATEWAY)
        yield Line("NAT", "traffic through it", out_gb + back_gb, prices.NAT_GATEWAY_DATA)
    yield Line("NAT", "public addresses", addresses * HOURS, prices.PUBLIC_ADDRESS)
    answers_gb = load.requests * estimated.answer_bytes / _GB
    yield Line("transfer", "out", out_gb + answers_gb, prices.TRANSFER_OUT, prices.TRANSFER_OUT.free)
    inside = load.events * (load.payload_bytes + 1_000) + load.attempts * (load.payload_bytes + 1_000)
    yield Line("transfer", "between zones", inside * estimated.between_zones / _GB, prices.BETWEEN_ZONES)


def _observability(
    load: Load, config: StackConfig, who: Awake, measured: Measured, estimated: Estimated
) -> Iterator[Line]:
    claimer_minutes = who.claimer_s / 60 if load.events else 0
    logged = load.requests * measured.log_bytes_per_request
    logged += claimer_minutes * measured.log_bytes_per_claimer_minute + who.wakings * measured.log_bytes_per_waking
    yield Line("CloudWatch", "logs", logged / _GB, prices.LOGS, prices.LOGS.free)
    quiet_hours = who.sweeps * (1 - who.traffic_hours / HOURS)
    series = (estimated.series * who.traffic_hours + estimated.sweep_series * quiet_hours) / HOURS
    yield Line("CloudWatch", "metrics", series, prices.METRICS, prices.METRICS.free)
    way_out = 1 if config.network.nat == "instance" else 2 * config.network.nat_gateways
    alarms = _ALARMS + config.api.keys + way_out
    yield Line("CloudWatch", "alarms", alarms, prices.ALARMS, prices.ALARMS.free)
    if config.observability.dashboard:
        yield Line("CloudWatch", "dashboard", 1, prices.DASHBOARD, prices.DASHBOARD.free)
    if config.functions.tracing:
        yield Line("X-Ray", "traces, 1 in 20", (load.requests + who.calls) / 20, prices.TRACES, prices.TRACES.free)


def _keys(config: StackConfig, who: Awake) -> Iterator[Line]:
    keys = 1 + config.functions.own_key + config.database.own_key
    yield Line("keys", "KMS keys", keys, prices.KMS_KEY)
    unwrapped = min(who.wakings, who.traffic_hours * _COLD_STARTS_AN_HOUR) + who.sweeps
    yield Line("keys", "KMS requests", unwrapped, prices.KMS_REQUESTS, prices.KMS_REQUESTS.free)
    yield Line("keys", "master secret", 1, prices.SECRET)


def _notes(load: Load, config: StackConfig, who: Awake) -> Iterator[str]:
    per_second = load.requests / load.active_s
    if who.claimers > config.delivery.max_claimers:
        yield (
            f"it takes {math.ceil(who.claimers)} claimers at once, and delivery.max_claimers is "
            f"{config.delivery.max_claimers}: raise it"
        )
    if per_second > config.api.rate_per_s:
        yield f"{per_second:,.0f} requests a second come in, and api.rate_per_s is {config.api.rate_per_s}: raise it"
    if who.acu > config.database.max_acu:
        yield (
            f"the database needs {who.acu:,.1f} ACU, and database.max_acu is {config.database.max_acu:g}: raise it. "
            "Beyond what one writer does, this is an extrapolation"
        )
