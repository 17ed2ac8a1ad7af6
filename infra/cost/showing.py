"""A bill as lines for people, as a document, and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from infra.cost import prices
from infra.cost.breakeven import LEAST, MOST, VOLUMES
from infra.cost.hosted import Plan
from infra.cost.measured import MEASURED
from infra.cost.model import Bill, Line, bill
from infra.plotting.figure import Axis, Figure, Panel, Series

type Spans = Mapping[str, Sequence[tuple[float, float]]]

_DRAWN_FROM: Final = 1e4
_CENT: Final = 0.01


def lines(month: Bill, plans: Sequence[Plan], spans: Spans) -> Iterator[str]:
    """The bill, and the comparison, as tables."""
    yield from _about(month)
    yield ""
    rows = [("", "", "", "$ a month", "with free tier"), *map(_row, _worth_showing(month))]
    rows.append(("sum", "", "", _dollars(month.total), _dollars(month.total_after_free)))
    if month.load.deliveries:
        each = (month.per_million_deliveries(total) or 0.0 for total in (month.total, month.total_after_free))
        rows.append(("a million deliveries", "", "", *map(_dollars, each)))
    yield from _table(rows, right=(3, 4))
    yield ""
    yield from (f"note: {note}." for note in month.notes)
    yield (
        f"List prices of {prices.REGION}, {prices.AS_OF}; those marked * are remembered and not looked up. CPU times "
        f"measured {MEASURED.as_of}."
    )
    yield ""
    heads = ("hosted service", "$ a month", "Forbear costs less at, events a month")
    theirs = [
        (f"{plan.name}{'*' if plan.remembered else ''}", _theirs(plan, month), _spoken(spans[plan.name]))
        for plan in plans
    ]
    yield from _table([heads, *theirs], right=(1,))
    yield ""
    yield "List prices without the free tier, and nobody's time. Sources, and what each service counts: docs/cost.md."


def document(month: Bill, plans: Sequence[Plan], spans: Spans) -> dict[str, Any]:
    """The same as JSON."""
    load, who = month.load, month.awake
    return {
        "events_per_month": load.events,
        "deliveries": load.deliveries,
        "attempts": load.attempts,
        "profile": month.config.profile,
        "region": prices.REGION,
        "prices_as_of": prices.AS_OF,
        "measured_as_of": MEASURED.as_of,
        "lines": [
            {
                "part": line.part,
                "what": line.what,
                "quantity": line.quantity,
                "price": line.price.dollars,
                "unit": line.price.unit,
                "remembered": line.price.remembered,
                "dollars": round(line.dollars, 4),
                "dollars_with_free_tier": round(line.dollars_after_free, 4),
            }
            for line in month.lines
        ],
        "parts": {part: round(dollars, 4) for part, dollars in month.parts.items()},
        "dollars": round(month.total, 4),
        "dollars_with_free_tier": round(month.total_after_free, 4),
        "dollars_per_million_deliveries": month.per_million_deliveries(month.total),
        "awake": {
            "claimer_hours": who.claimer_s / 3600,
            "claimers_at_once": who.claimers,
            "acu_hours": who.capacity_acu_h,
            "acu_needed": who.acu,
        },
        "notes": list(month.notes),
        "hosted": [
            {
                "plan": plan.name,
                "dollars": plan.cost(load),
                "forbear_costs_less": [
                    [round(low), None if high >= MOST else round(high)] for low, high in spans[plan.name]
                ],
                "source": plan.source,
                "remembered": plan.remembered,
                "remark": plan.remark or None,
            }
            for plan in plans
        ],
    }


def picture(month: Bill, plans: Sequence[Plan]) -> Figure:
    """The cost of a month over the number of events, Forbear's in the load's own stack and that of each plan."""
    volumes = [volume for volume in VOLUMES if volume >= _DRAWN_FROM]
    ours = [bill(replace(month.load, events=volume), month.config).total for volume in volumes]
    drawn = [Series("Forbear", volumes, ours)]
    for plan in plans:
        costs = [(volume, plan.cost(replace(month.load, events=volume))) for volume in volumes]
        taken = [(volume, cost) for volume, cost in costs if cost is not None and cost >= 1]
        if taken:
            name = f"{plan.name}{' *' if plan.remembered else ''}"
            drawn.append(Series(name, [volume for volume, _ in taken], [cost for _, cost in taken]))
    load = month.load
    title = f"A month's cost: {month.config.profile}, fan-out {load.fan_out:g}, {load.payload_bytes:,.0f} bytes"
    axes = Axis("events a month", log=True), Axis("dollars a month, list prices", log=True)
    return Figure(title, ((Panel(*axes, tuple(drawn)),),))


def _about(month: Bill) -> Iterator[str]:
    load, who = month.load, month.awake
    when = "all day" if load.hours_a_day >= 24 else f"in {load.hours_a_day:g} hours a day"
    yield (
        f"{load.events:,.0f} events of {load.payload_bytes:,.0f} bytes, {when}, {load.deliveries:,.0f} deliveries, "
        f"{load.attempts:,.0f} attempts; profile {month.config.profile}"
    )
    yield (
        f"claimers run for {who.claimer_s / 3600:,.0f} hours together, of 730 in a month; the database takes "
        f"{who.capacity_acu_h:,.0f} ACU-hours"
    )


def _worth_showing(month: Bill) -> Iterator[Line]:
    """Lines that come to a cent."""
    return (line for line in month.lines if line.dollars >= _CENT / 2)


def _row(line: Line) -> tuple[str, ...]:
    price = line.price
    star = "*" if price.remembered else ""
    quantity = line.quantity / price.scale
    written = f"{quantity:,.0f}" if quantity >= 1000 or quantity == int(quantity) else f"{quantity:,.3g}"
    each = f"{price.dollars:.10f}".rstrip("0")
    each = each if len(each.partition(".")[2]) > 1 else f"{price.dollars:.2f}"
    arithmetic = f"{written} × ${each}{star} per {price.unit}"  # noqa: RUF001 - it is meant to be one
    return (line.part, line.what, arithmetic, _dollars(line.dollars), _dollars(line.dollars_after_free))


def _theirs(plan: Plan, month: Bill) -> str:
    dollars = plan.cost(month.load)
    return "too much for it" if dollars is None else _dollars(dollars)


def _spoken(spans: Sequence[tuple[float, float]]) -> str:
    """Spans of events in words."""
    if not spans:
        return "none"
    return ", ".join(_span(low, high) for low, high in spans)


def _span(low: float, high: float) -> str:
    if low <= LEAST and high >= MOST:
        return "any number"
    if low <= LEAST:
        return f"up to {_volume(high)}"
    return f"{_volume(low)} {'and more' if high >= MOST else f'to {_volume(high)}'}"


def _volume(events: float) -> str:
    """Two digits of it, which is all that is known."""
    rounded = float(f"{events:.2g}")
    for size, name in ((1e6, "M"), (1e3, "k")):
        if rounded >= size:
            return f"{rounded / size:g}{name}"
    return f"{rounded:g}"


def _dollars(dollars: float) -> str:
    return f"{dollars:,.2f}"


def _table(rows: Sequence[Sequence[str]], right: Sequence[int]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        padded = (cell.rjust(width) if at in right else cell.ljust(width) for at, (cell, width) in enumerate(cells))
        yield "  ".join(padded).rstrip()
