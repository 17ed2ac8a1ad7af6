from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from infra.config import StackConfig
from infra.cost.awake import Load
from infra.cost.breakeven import LEAST, MOST, cheaper
from infra.cost.hosted import PLANS, Plan, as_markdown
from infra.cost.model import bill
from infra.cost.showing import document, lines, picture

CONFIG = StackConfig()


def test_forbear_costs_as_much_as_a_plan_where_it_breaks_even() -> None:
    """At each end of a span the two cost the same, or the plan takes no more."""
    for plan in PLANS:
        for span in cheaper(Load(events=0), CONFIG, PLANS)[plan.name]:
            for events in span:
                if not LEAST < events < MOST:
                    continue
                load = Load(events=events)
                theirs = plan.cost(replace(load, events=events * 0.99))
                assert theirs is not None
                if plan.cost(replace(load, events=events * 1.01)) is not None:
                    assert bill(load, CONFIG).total == pytest.approx(theirs, rel=0.03)


def test_a_plan_that_costs_nothing_is_never_dearer() -> None:
    """Nothing costs less than nothing; what costs a fortune always costs more."""
    free = Plan("free", 0, "event", float("inf"), None, "")
    dear = Plan("dear", 1e9, "delivery", float("inf"), None, "")
    spans = cheaper(Load(events=0), CONFIG, (free, dear))
    assert spans["free"] == ()
    assert spans["dear"] == ((LEAST, MOST),)


def test_a_plan_counts_what_it_counts() -> None:
    """Events or deliveries, what is included, what is beyond, and how many a second it takes."""
    load = Load(events=1e6, fan_out=3)
    assert Plan("a", 10, "event", 500_000, 100, "").cost(load) == pytest.approx(60)
    assert Plan("b", 10, "delivery", 500_000, 100, "").cost(load) == pytest.approx(260)
    assert Plan("c", 10, "delivery", 500_000, None, "").cost(load) is None
    assert Plan("d", 10, "event", 1e9, None, "", per_second=0.1).cost(load) is None


def test_every_price_says_where_it_is_from() -> None:
    """A source and a date, or that it is remembered."""
    for plan in PLANS:
        assert "202" in plan.source or plan.remembered


def test_the_documentation_has_the_plans() -> None:
    """The table in docs/cost.md is the one that `python -m infra.cost.hosted` prints."""
    assert as_markdown() in (Path(__file__).parents[3] / "docs" / "cost.md").read_text()


def test_a_bill_is_shown_in_full() -> None:
    """The table ends in the sum, the document has every line, and the picture has everybody."""
    month = bill(Load(events=1e6), CONFIG)
    spans = cheaper(month.load, CONFIG, PLANS)
    shown = "\n".join(lines(month, PLANS, spans))
    assert f"{month.total:,.2f}" in shown
    assert all(plan.name in shown for plan in PLANS)
    told = document(month, PLANS, spans)
    assert told["dollars"] == pytest.approx(sum(line["dollars"] for line in told["lines"]), abs=0.01)
    assert len(told["hosted"]) == len(PLANS)
    assert picture(month, PLANS).series_names[0] == "Forbear"
