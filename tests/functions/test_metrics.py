"""What is counted and sampled, and the lines that are written of it."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import metrics
from forbear.metrics import ATTEMPTS, CLAIM_LATENCY, EVENTS, FINAL_STATUS, METRICS, SAMPLE, Collector, Reservoir, write
from forbear.policy.verdict import Verdict
from tests.functions.emf import counts, lines, values

type Output = pytest.CaptureFixture[str]


def test_each_metric_has_a_name_of_its_own_and_the_outcomes_are_the_verdicts() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert set(ATTEMPTS.values) == {*Verdict, "lost"}
    every = {metric for metric in vars(metrics).values() if isinstance(metric, metrics.Metric)}
    assert every == set(METRICS)


class TestLines:
    def test_a_line_holds_the_values_and_nothing_that_was_not_asked_for(
        self, capsys: Output, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No service, which would be a dimension that no alarm knows, not even when the environment names one."""
        monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "somebody")
        monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Somebody")
        write("Forbear/Test", {EVENTS: 3, CLAIM_LATENCY: [1.5, 2.5]})
        (line,) = lines(capsys.readouterr().out)
        assert (line.namespace, line.dimensions) == ("Forbear/Test", {})
        assert line.values == {"events_total": [3], "claim_latency_ms": [1.5, 2.5]}

    def test_a_dimension_is_part_of_the_line(self, capsys: Output) -> None:
        write("Forbear/Test", {ATTEMPTS: 3}, outcome="retry")
        (line,) = lines(capsys.readouterr().out)
        assert line.dimensions == {"outcome": "retry"}

    def test_without_a_namespace_or_without_values_nothing_is_written(self, capsys: Output) -> None:
        write(None, {EVENTS: 1})
        write("Forbear/Test", {})
        assert capsys.readouterr().out == ""


class TestTheReservoir:
    @given(st.lists(st.floats(0, 1e6), max_size=300), st.integers(0, 9))
    @settings(max_examples=50)
    def test_it_keeps_all_while_there_is_room_and_then_some_of_them(self, given: list[float], seed: int) -> None:
        reservoir = Reservoir(random.Random(seed))
        for start in range(0, len(given), 7):
            reservoir.add(given[start : start + 7])
        assert len(reservoir.kept) == min(len(given), SAMPLE)
        assert not Counter(reservoir.kept) - Counter(given)
        if len(given) <= SAMPLE:
            assert reservoir.kept == given

    def test_each_value_is_as_likely_to_be_kept_as_another(self) -> None:
        """Of 400 values, 100 are kept: each in a quarter of 2,000 runs, give or take five standard deviations."""
        rng, kept = random.Random(7), Counter[float]()
        for _ in range(2000):
            reservoir = Reservoir(rng)
            reservoir.add(range(400))
            kept.update(reservoir.kept)
        deviation = (2000 * 0.25 * 0.75) ** 0.5
        assert all(abs(kept[value] - 500) < 5 * deviation for value in range(400))


class TestTheCollector:
    def test_counts_are_exact_and_samples_are_bounded(self, capsys: Output) -> None:
        collector = Collector("Forbear/Test")
        for _ in range(5):
            collector.count_each(ATTEMPTS, ["success"] * 900 + ["retry"] * 100)
            collector.sample(CLAIM_LATENCY, range(1000))
        collector.count(FINAL_STATUS, 4500, "delivered")
        collector.flush()
        output = capsys.readouterr().out
        assert counts(output, ATTEMPTS) == {"success": 4500, "retry": 500}
        assert counts(output, FINAL_STATUS) == {"delivered": 4500}
        assert len(values(output, CLAIM_LATENCY)) == SAMPLE
        assert len(lines(output)) == 4  # one for each value of a dimension, and one for the rest

    def test_what_was_written_is_not_written_again(self, capsys: Output) -> None:
        collector = Collector("Forbear/Test")
        collector.count_each(ATTEMPTS, ["success"])
        collector.flush()
        assert len(lines(capsys.readouterr().out)) == 1
        collector.flush()
        assert capsys.readouterr().out == ""

    def test_nothing_counted_is_nothing_written(self, capsys: Output) -> None:
        collector = Collector("Forbear/Test")
        collector.count(FINAL_STATUS, 0, "dead")
        collector.count_each(ATTEMPTS, [])
        collector.sample(CLAIM_LATENCY, [])
        collector.flush()
        assert capsys.readouterr().out == ""

    def test_without_a_namespace_it_forgets_silently(self, capsys: Output) -> None:
        collector = Collector()
        collector.count_each(ATTEMPTS, ["success"])
        collector.flush()
        assert capsys.readouterr().out == ""
