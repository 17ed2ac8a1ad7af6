from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.bench.groups.cost import measure
from infra.bench.world import Scale, World
from infra.config import StackConfig
from infra.cost.awake import Load
from infra.cost.model import Bill, bill

ROOT = Path(__file__).parents[3]


def stack(profile: str = "small", **knobs: object) -> StackConfig:
    """A stack with a profile's defaults but for some knobs, whose dots are written as two underscores."""
    given_ = {key.replace("__", "."): value for key, value in knobs.items()}
    return StackConfig.read({"profile": profile, **given_}, ROOT / "tests" / "infra" / "cost")


STACKS = [stack(), stack("production"), stack(database__io_optimized=True, network__nat="gateways")]

loads = st.builds(
    Load,
    events=st.floats(0, 1e10),
    fan_out=st.floats(0, 200),
    payload_bytes=st.floats(0, 1 << 20),
    retries=st.floats(0, 5),
    receiver_s=st.floats(0, 30),
    hours_a_day=st.floats(0.01, 24),
    batch=st.integers(1, 500),
)
more = st.floats(1, 1000)


def dearer(before: Bill, after: Bill) -> bool:
    """Whether one costs as much as the other or more, with the free tier and without; but for rounding."""
    sums = ((before.total, after.total), (before.total_after_free, after.total_after_free))
    return all(later >= earlier * (1 - 1e-9) for earlier, later in sums)


@given(loads, st.sampled_from(STACKS), more)
def test_cost_never_falls_with_volume(load: Load, config: StackConfig, times: float) -> None:
    """More events cost as much or more, though claimers are woken less often when they sleep less."""
    assert dearer(bill(load, config), bill(replace(load, events=load.events * times), config))


@given(loads, st.sampled_from(STACKS), more)
def test_cost_never_falls_with_fan_out(load: Load, config: StackConfig, times: float) -> None:
    """More endpoints cost as much or more."""
    assert dearer(bill(load, config), bill(replace(load, fan_out=load.fan_out * times), config))


@given(loads, st.sampled_from(STACKS), more)
def test_cost_never_falls_with_payload(load: Load, config: StackConfig, times: float) -> None:
    """Larger events cost as much or more."""
    assert dearer(bill(load, config), bill(replace(load, payload_bytes=load.payload_bytes * times), config))


@given(loads, st.sampled_from(STACKS))
def test_parts_sum_to_the_total(load: Load, config: StackConfig) -> None:
    """No line is left out of the parts, none is negative, and the free tier only takes off."""
    month = bill(load, config)
    assert math.isclose(sum(month.parts.values()), month.total, rel_tol=1e-9)
    assert all(0 <= line.dollars_after_free <= line.dollars for line in month.lines)


@given(loads, st.sampled_from(STACKS))
def test_nobody_is_awake_for_longer_than_the_month(load: Load, config: StackConfig) -> None:
    """One claimer, and a database at its floor, cost no more than all month, whatever the spread of a light load."""
    light = replace(load, events=min(load.events, 1e5), fan_out=1, retries=0, receiver_s=0.2)
    month = bill(light, config)
    assert month.awake.claimer_s <= 731 * 3600
    assert month.awake.capacity_acu_h <= 731 * max(config.database.min_acu, 0.5) * (1 + config.database.readers)


@pytest.mark.parametrize("column", [0, 1])
def test_an_idle_stack_costs_what_the_documentation_says(column: int) -> None:
    """The table of an idle month in docs/aws.md, its sum and its alarms, is what the model says of no events."""
    table = (ROOT / "docs" / "aws.md").read_text()
    profile = ("small", "production")[column]
    month = bill(Load(events=0), stack(profile))
    lines = {line.what: line for line in month.lines}
    beside = ("alarms", "dashboard")
    documented = re.search(r"\| \*\*sum\*\* \| \*\*([0-9.]+)\*\* \| \*\*([0-9.]+)\*\* \|", table)
    assert documented is not None
    idle = sum(line.dollars for line in month.lines if line.what not in beside)
    assert idle == pytest.approx(float(documented[column + 1]), abs=0.02)
    alarms = re.search(r"\| alarms, .*\| ([0-9]+): ([0-9.]+) \| ([0-9]+): ([0-9.]+) \|", table)
    assert alarms is not None
    assert lines["alarms"].quantity == int(alarms[2 * column + 1])
    assert lines["alarms"].dollars_after_free == pytest.approx(float(alarms[2 * column + 2]))
    assert lines["dashboard"].dollars_after_free == 0


def test_small_has_the_alarms_that_its_stack_has() -> None:
    """The model's alarms are those of the template."""
    template = (ROOT / "tests" / "infra" / "aws" / "snapshots" / "small.txt").read_text()
    lines = {line.what: line for line in bill(Load(events=0), stack()).lines}
    assert lines["alarms"].quantity == template.count("(CloudWatch::Alarm)")


def test_gaps_save() -> None:
    """The same events in fewer hours of the day keep claimers and the database awake for less time."""
    all_day, office_hours = Load(events=1e6), Load(events=1e6, hours_a_day=8)
    assert bill(office_hours, stack()).awake.claimer_s < bill(all_day, stack()).awake.claimer_s
    assert bill(office_hours, stack()).total < bill(all_day, stack()).total * 0.7


def test_a_claimer_that_waits_costs_its_wall_time() -> None:
    """Slow receivers cost a claimer's time although it takes no more CPU."""
    fast, slow = Load(events=1e5, receiver_s=0.1), Load(events=1e5, receiver_s=10)
    assert bill(slow, stack()).awake.claimer_s > 3 * bill(fast, stack()).awake.claimer_s


def test_a_stream_without_gaps_keeps_one_claimer_awake_all_month() -> None:
    """Many events, evenly spread, and one claimer enough for them."""
    month = bill(Load(events=2e7), stack())
    assert month.awake.claimer_s == pytest.approx(730 * 3600, rel=0.01)
    assert not month.notes


def test_what_a_stack_cannot_do_is_said() -> None:
    """More than the claimers, the API or the database may do, as they are set up, is a note each."""
    notes = " ".join(bill(Load(events=2e10), stack()).notes)
    assert "delivery.max_claimers" in notes
    assert "api.rate_per_s" in notes
    assert "database.max_acu" in notes


def test_batches_cost_less_than_single_events() -> None:
    """One request for many events is paid for once."""
    assert bill(Load(events=1e8, batch=100), stack()).total < bill(Load(events=1e8), stack()).total - 90


def test_knobs_cost_what_they_cost() -> None:
    """A gateway instead of an instance, a reader, a key of the stack's own."""
    idle = Load(events=0)
    plain = bill(idle, stack()).parts
    assert bill(idle, stack(network__nat="gateways", network__nat_gateways=1)).parts["NAT"] == pytest.approx(36.5)
    assert bill(idle, stack(functions__own_key=True)).parts["keys"] == pytest.approx(plain["keys"] + 1)
    assert bill(idle, stack(database__min_acu=0.5, database__readers=1)).parts["Aurora"] == pytest.approx(87.7)


def test_the_bench_tells_what_a_million_deliveries_cost() -> None:
    """A figure for each profile and volume, dearer for the few than for the many."""
    figures = list(measure(World(), Scale.of(quick=True)))
    assert {figure.unit for figure in figures} == {"$"}
    for profile in ("small", "production"):
        costs = [figure.median for figure in figures if f", {profile}," in figure.name]
        assert len(costs) == 4
        assert costs == sorted(costs, reverse=True)
