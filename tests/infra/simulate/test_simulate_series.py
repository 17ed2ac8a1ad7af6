"""Counting a run, and how it looks: the table, the picture, the document."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.plotting import terminal
from infra.plotting.files import drawn
from infra.simulate.arrivals import arrivals
from infra.simulate.receivers import Capacity, Mode, Outage, RateLimit, Receiver
from infra.simulate.scenarios import Scenario
from infra.simulate.series import Counts, Run
from infra.simulate.showing import about, picture, table

SCENARIO = Scenario(
    name="sketch",
    summary="",
    rate_per_s=1,
    duration_s=150,
    receiver=Receiver(0.05, Capacity(3), RateLimit(9), 0.25, (Outage(10, 70, Mode.HANG),)),
    timeout_s=5,
)


def counted() -> Counts:
    counts = Counts(60, 150)
    counts.add(counts.arrivals, [0, 59.9, 60, 149])
    counts.add(counts.attempts, [1, 61, 62, 140])
    counts.add(counts.successes, [2, 149.9])
    counts.add(counts.dead, [90])
    counts.note_breaker(30, "open")
    counts.note_breaker(60, "half_open_probe")
    counts.note_breaker(61, "closed")
    counts.note_breaker(70, "closed")
    return counts


def sketch(policy: str = "ours") -> Run:
    counts = counted()
    return Run(policy, "sketch", 1, 60, 150, counts.intervals(), tuple(counts.breaker))


def test_what_happens_is_counted_in_the_interval_that_it_falls_into() -> None:
    first, second, last = sketch().intervals
    assert (first.arrivals, first.attempts, first.successes, first.dead) == (2, 1, 1, 0)
    assert (second.arrivals, second.attempts, second.successes, second.dead) == (1, 2, 0, 1)
    assert (last.from_s, last.arrivals, last.attempts, last.successes) == (120, 1, 1, 1)


def test_the_backlog_and_the_breaker_are_those_of_an_interval_s_end() -> None:
    assert [interval.backlog for interval in sketch().intervals] == [1, 1, 1]
    assert [interval.breaker for interval in sketch().intervals] == ["open", "closed", "closed"]


def test_a_state_that_stays_is_noted_once() -> None:
    assert [at for at, _ in sketch().breaker] == [0, 30, 60, 61]


@given(st.lists(st.floats(-1e-6, 400), max_size=60), st.floats(0.5, 200), st.floats(1, 300))
@settings(max_examples=80)
def test_everything_until_the_end_is_counted_once(times: list[float], step_s: float, duration_s: float) -> None:
    counts = Counts(step_s, duration_s)
    inside = [at for at in times if 0 <= at < duration_s]
    counts.add(counts.arrivals, inside)
    run = Run("p", "s", 1, step_s, duration_s, counts.intervals(), tuple(counts.breaker))
    assert run.totals == {"arrivals": len(inside), "attempts": 0, "successes": 0, "dead": 0, "backlog": len(inside)}
    counts.add(counts.arrivals, [duration_s + step_s])
    assert sum(counts.arrivals) == len(inside)


@given(st.floats(0.01, 50), st.floats(1, 100), st.integers(0, 2**32))
@settings(max_examples=60)
def test_arrivals_come_in_order_within_the_time_and_the_same_for_a_seed(
    rate_per_s: float, duration_s: float, seed: int
) -> None:
    times = arrivals(rate_per_s, duration_s, Random(seed))
    assert list(times) == sorted(times)
    assert all(0 <= at <= duration_s for at in times)
    assert times == arrivals(rate_per_s, duration_s, Random(seed))


def test_about_as_many_arrive_as_the_rate_says() -> None:
    assert len(arrivals(10, 10_000, Random(1))) == pytest.approx(100_000, rel=0.02)


def test_a_run_is_a_document_of_its_intervals_and_totals() -> None:
    document = json.loads(json.dumps(sketch().document()))
    assert document["totals"] == {"arrivals": 4, "attempts": 4, "successes": 2, "dead": 1, "backlog": 1}
    assert document["breaker"][1] == {"at_s": 30, "state": "open"}
    assert document["intervals"][0] == {
        "from_s": 0,
        "arrivals": 2,
        "attempts": 1,
        "successes": 1,
        "dead": 0,
        "backlog": 1,
        "breaker": "open",
    }


def test_the_table_shows_policies_side_by_side_in_aligned_columns() -> None:
    names, heads, *rows, totals = table([sketch("first"), sketch("second, whose name is a long one")])
    assert names.index("first") == heads.index("attempts")
    assert names.index("second") == heads.rindex("attempts")
    assert heads.split() == ["from", "arrivals", *["attempts", "successes", "dead", "backlog", "breaker"] * 2]
    assert rows[0].split() == ["0s", "2", *["1", "1", "0", "1", "open"] * 2]
    assert rows[1].split() == ["1m", "1", *["2", "0", "1", "1", "closed"] * 2]
    assert totals.split() == ["in", "all", "4", *["4", "2", "1", "1"] * 2]
    end = heads.index("backlog") + len("backlog")
    assert all(row[end - 1].isdigit() and row[end] == " " for row in (*rows, totals + " "))


def test_a_scenario_is_told_in_a_line() -> None:
    assert about(SCENARIO) == (
        "1 events/s for 2m30s; a receiver that does 3 requests/s; no answer at all for 1m from 10s on; 500 to 25%;"
        " 429 beyond 9 requests/s; timeout 5s"
    )


def test_a_picture_has_a_column_for_each_policy_and_shades_outages() -> None:
    figure = picture(SCENARIO, [sketch("first"), sketch("second")])
    assert [[panel.title for panel in row] for row in figure.rows] == [["first", "second"]] * 3
    assert {span.name for panel in figure.panels for span in panel.spans} == {"no answer at all"}
    load, backlog, breaker = (row[0] for row in figure.rows)
    assert [series.name for series in load.series] == ["arrivals", "offered load", "goodput"]
    assert load.series[1].y[0] == pytest.approx(1 / 60)
    assert list(backlog.series[0].x) == [0, 60, 120, 150]
    assert list(breaker.series[0].y) == [0, 3, 1, 0, 0]


def test_a_picture_can_be_drawn() -> None:
    figure = picture(SCENARIO, [sketch("first"), sketch("second")])
    assert "offered load" in terminal.drawn(figure, 100)
    assert b"<svg" in drawn(figure, "svg")
