"""Public list prices of hosted webhook services, dated and with their sources. Facts only; their features differ.

What is `remembered` was not confirmed: nobody read it off the service's page or a transcription of that. Plans with a
price on request are left out. `python -m infra.cost.hosted` prints the table that docs/cost.md has.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final, Literal

from infra.cost.awake import HOURS, Load


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan of a service.

    Attributes:
        name: the service's and its own.
        dollars: a month.
        unit: what it counts: events as posted, or deliveries (one event to one endpoint). None counts retries.
        included: how many of them the price holds.
        dollars_per_million: for those beyond; None: there are none to be had.
        per_second: how many it takes a second at most; None: enough.
        remembered: nobody confirmed the price.
        source: where the price was read, and when.
        remark: what else matters about the price.
    """

    name: str
    dollars: float
    unit: Literal["event", "delivery"]
    included: float
    dollars_per_million: float | None
    source: str
    per_second: float | None = None
    remembered: bool = False
    remark: str = ""

    def cost(self, load: Load) -> float | None:
        """What a month of a load costs, in dollars; None: the plan does not take it."""
        counted = load.events if self.unit == "event" else load.deliveries
        if self.per_second is not None and counted / load.active_s > self.per_second:
            return None
        beyond = max(counted - self.included, 0)
        if not beyond:
            return self.dollars
        return None if self.dollars_per_million is None else self.dollars + beyond / 1e6 * self.dollars_per_million


_DAYS: Final = HOURS / 24
_SVIX: Final = "svix.com/pricing, as transcribed on 2026-09-20"
_HOOKDECK: Final = "hookdeck.com/pricing, as transcribed on 2026-09-20"
_SVIX_UNIT: Final = "whether it counts an event once for each endpoint was not found; once is assumed, the cheaper way"
_HOOK0: Final = "remembered; in euros, taken as dollars (hook0.com tells of a free plan with 100 events a day)"
_VOLUME: Final = "with volume the price beyond falls to 3.30 a million at best; fixed addresses cost $100 more"

PLANS: Final = (
    Plan("Svix Free", 0, "event", 50_000, 100, _SVIX, per_second=200, remark=_SVIX_UNIT),
    Plan("Svix Professional", 490, "event", 50_000, 100, _SVIX, per_second=800, remark=_SVIX_UNIT),
    Plan(
        "Hookdeck Team",
        39,
        "delivery",
        10_000,
        10,
        _HOOKDECK,
        remark=f"5 a second to each destination are included; {_VOLUME}",
    ),
    Plan(
        "Hookdeck Growth",
        499,
        "delivery",
        10_000,
        10,
        _HOOKDECK,
        remark=_VOLUME,
    ),
    Plan(
        "Convoy Cloud Pro",
        99,
        "event",
        float("inf"),
        None,
        "second-hand, from two public pages of 2026-03 and 2026-05 about getconvoy.io/pricing",
        per_second=25,
        remembered=True,
        remark="flat, up to 25 events a second; fixed addresses cost $100 more",
    ),
    Plan("Hook0 Startup", 59, "event", 30_000 * _DAYS, None, _HOOK0, remembered=True),
    Plan("Hook0 Pro", 190, "event", 100_000 * _DAYS, None, _HOOK0, remembered=True),
)


def as_markdown() -> str:
    """The plans as a table in Markdown."""
    rows = [
        "| plan | a month | included | beyond, a million | counts | takes at most | source | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for plan in PLANS:
        star = "*" if plan.remembered else ""
        included = "any number" if plan.included == float("inf") else f"{plan.included:,.0f}"
        beyond = "not to be had" if plan.dollars_per_million is None else f"${plan.dollars_per_million:,.2f}"
        most = "" if plan.per_second is None else f"{plan.per_second:g}/s"
        unit = {"event": "events", "delivery": "deliveries"}[plan.unit]
        cells = (plan.name, f"${plan.dollars:,.0f}{star}", included, beyond, unit, most, plan.source, plan.remark)
        rows.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.stdout.write(as_markdown())
