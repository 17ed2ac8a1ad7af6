"""How rounds look: a line each while they are played, a table at the end, and a summary in Markdown to keep. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from infra.torture.runner import Outcome

HEADS: Final = (
    "scenario",
    "rounds",
    "acknowledged",
    "delivered",
    "dead",
    "pending",
    "lost",
    "duplicated",
    "unexplained",
    "in flight",
    "",
)
_SHOWN = 12


def verdict(outcomes: Iterable[Outcome]) -> str:
    """What rounds come to, in a word or two."""
    counted = list(outcomes)
    broken = sum(bool(outcome.problems) and bool(outcome.in_flight) for outcome in counted)
    void = sum(outcome.void for outcome in counted)
    parts = [f"{broken} broken"] * bool(broken) + [f"{void} void"] * bool(void)
    return ", ".join(parts) or "kept"


def rows(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, ...]]:
    """The table: a line a scenario, in the order in which they came first, and the sums; cells as `HEADS`."""
    for name in dict.fromkeys(outcome.scenario for outcome in outcomes):
        yield _row(name, [outcome for outcome in outcomes if outcome.scenario == name])
    yield _row("in all", outcomes)


def _row(name: str, outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    accounts = [outcome.account for outcome in outcomes]
    numbers = [len(outcomes)] + [
        sum(getattr(account, field) for account in accounts)
        for field in ("acknowledged", "delivered", "dead", "pending", "lost", "duplicated", "unexplained")
    ]
    flights = sorted(outcome.in_flight for outcome in outcomes)
    flight = f"{flights[0]} to {flights[-1]}" if flights and flights[0] != flights[-1] else f"{flights[0]}"
    return (name, *(f"{number:,}" for number in numbers), flight, verdict(outcomes))


def line(outcome: Outcome) -> str:
    """One round in a line."""
    account = outcome.account
    return (
        f"{outcome.scenario} (seed {outcome.seed}, {outcome.seconds:.1f} s): {account.acknowledged} acknowledged, "
        f"{account.delivered} delivered, {account.dead} dead, {account.pending} pending, {account.lost} lost, "
        f"{account.duplicated} duplicated ({account.unexplained} unexplained), {outcome.in_flight} in flight: "
        f"{verdict([outcome])}"
    )


def troubles(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """What was wrong in each round that did not keep its promise, and how to play it again."""
    for outcome in outcomes:
        if not outcome.kept:
            yield f"{outcome.scenario}, seed {outcome.seed}: {verdict([outcome])}"
            yield from (f"  {problem}" for problem in outcome.problems[:_SHOWN])
            if len(outcome.problems) > _SHOWN:
                yield f"  and {len(outcome.problems) - _SHOWN} more"
            yield f"  again: forbear torture {outcome.scenario} --seed {outcome.seed}"


def document(outcome: Outcome) -> dict[str, Any]:
    """One round as JSON."""
    account = outcome.account
    return {
        "scenario": outcome.scenario,
        "seed": outcome.seed,
        "seconds": round(outcome.seconds, 2),
        "acknowledged": account.acknowledged,
        "delivered": account.delivered,
        "dead": account.dead,
        "pending": account.pending,
        "lost": account.lost,
        "duplicated": account.duplicated,
        "unexplained": account.unexplained,
        "stuck": outcome.stuck,
        "in_flight": outcome.in_flight,
        "swept": outcome.swept,
        "void": outcome.void,
        "kept": outcome.kept,
        "problems": list(outcome.problems),
    }


def markdown(outcomes: Sequence[Outcome], seconds: float) -> str:
    """The summary to keep."""
    seeds = [outcome.seed for outcome in outcomes]
    lines = [
        "# forbear torture",
        "",
        f"{len(outcomes)} rounds, seeds {min(seeds)} to {max(seeds)}, {seconds / 60:.1f} minutes: {verdict(outcomes)}.",
        "",
        f"| {' | '.join(HEADS)} |",
        f"|{'---|' * len(HEADS)}",
        *(f"| {' | '.join(row)} |" for row in rows(outcomes)),
    ]
    wrong = list(troubles(outcomes))
    if wrong:
        lines += ["", "## What was wrong", "", "```", *wrong, "```"]
    return "\n".join(lines) + "\n"
