"""Scenarios as people ask for them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.cli.errors import UsageError
from infra.simulate.asking import Asked, scenario
from infra.simulate.receivers import Capacity, Mode, Outage, RateLimit
from infra.simulate.scenarios import SCENARIOS

TEXTS = st.one_of(
    st.text(max_size=20),
    st.from_regex(r"[0-9.]{1,9}[smhdw]@[0-9.]{1,9}[smhdw]:(503|hang|refuse|x)(:[0-9.]{1,5}[sd])?", fullmatch=True),
    st.from_regex(r"[0-9]{1,3}(:[0-9]{1,3}s)?", fullmatch=True),
)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_s_name_gives_it_as_it_is(name: str) -> None:
    assert scenario(name, Asked()) == SCENARIOS[name]
    assert SCENARIOS[name].name == name


def test_options_describe_a_scenario() -> None:
    asked = Asked(
        rate=2,
        duration="1h",
        outages=("10m@30m:503:60s", "5s@1m:hang", "1m@5m:refuse"),
        capacity=9,
        latency="0.2s",
        errors=0.1,
        throttle="7.5:30s",
        timeout="5s",
        step="2m",
    )
    made = scenario(None, asked)
    assert (made.name, made.rate_per_s, made.duration_s, made.timeout_s, made.step_s) == ("custom", 2, 3600, 5, 120)
    receiver = made.receiver
    assert (receiver.latency_s, receiver.capacity, receiver.error_share) == (0.2, Capacity(9), 0.1)
    assert receiver.rate_limit == RateLimit(7.5, 8, 30)
    assert receiver.outages == (
        Outage(60, 65, Mode.HANG),
        Outage(300, 360, Mode.REFUSE),
        Outage(1800, 2400, Mode.UNAVAILABLE, 60),
    )


def test_options_change_what_they_name_of_a_scenario_and_leave_the_rest() -> None:
    changed = scenario("storm", Asked(rate=20, duration="20m"))
    storm = SCENARIOS["storm"]
    assert (changed.rate_per_s, changed.duration_s) == (20, 1200)
    assert (changed.receiver, changed.timeout_s, changed.step_s) == (storm.receiver, storm.timeout_s, storm.step_s)


@pytest.mark.parametrize(("duration", "step_s"), [("30s", 1), ("1h", 120), ("24h", 3600), ("30d", 86_400)])
def test_intervals_are_of_a_length_that_people_count_in(duration: str, step_s: float) -> None:
    assert scenario(None, Asked(rate=0.01, duration=duration)).step_s == step_s


@pytest.mark.parametrize(
    ("name", "asked", "says"),
    [
        (None, Asked(), "name a scenario (storm, metastable, outage or day)"),
        ("strom", Asked(), "there is no scenario 'strom'"),
        (None, Asked(rate=1_000, duration="2h"), "5,000,000 events"),
        (None, Asked(duration="0s"), "at least 1s"),
        (None, Asked(duration="soon"), "--duration: 'soon' is no duration"),
        (None, Asked(timeout="31s"), "between 1s and 30s"),
        (None, Asked(step="0s"), "--step"),
        (None, Asked(step="0.001s"), "--step"),
        (None, Asked(outages=("10m",)), "write LENGTH@START:MODE"),
        (None, Asked(outages=("10m@5m:melt",)), "the modes are refuse, 503, hang"),
        (None, Asked(outages=("10m@5m:hang:5s",)), "only a 503 carries a Retry-After"),
        (None, Asked(outages=("10m@5m:503:0.5s",)), "whole seconds"),
        (None, Asked(outages=("10m@5m:hang", "1m@6m:hang")), "give outages that do not overlap"),
        (None, Asked(throttle="0"), "--throttle"),
        (None, Asked(throttle="5:9000d"), "up to 7d"),
    ],
)
def test_what_cannot_be_is_refused_and_told_why(name: str | None, asked: Asked, says: str) -> None:
    with pytest.raises(UsageError) as raised:
        scenario(name, asked)
    assert says in str(raised.value)


@given(
    st.builds(
        Asked,
        duration=st.none() | TEXTS,
        latency=st.none() | TEXTS,
        outages=st.lists(TEXTS, max_size=3).map(tuple),
        throttle=st.none() | TEXTS,
        timeout=st.none() | TEXTS,
        step=st.none() | TEXTS,
    )
)
@settings(max_examples=200)
def test_whatever_is_typed_gives_a_scenario_or_a_usage_error(asked: Asked) -> None:
    try:
        assert scenario("day", asked).name == "day"
    except UsageError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - there may be none
