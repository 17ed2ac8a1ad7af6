"""Figures that are counted rather than timed, as they were accepted: whoever makes one worse is told.

Owns the file `counted.json` beside this module: by group and name, the accepted value.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from infra.bench.figure import Figure
from infra.bench.showing import number, rounded

FILE: Final = Path(__file__).with_name("counted.json")
# So much worse is still the same: pages split here and there, depending on random ids.
TOLERANCE: Final = 0.05
_HOW: Final = "`forbear bench --quick --accept` accepts it"


def problems(figures: Sequence[Figure], groups: Collection[str], file: Path) -> list[str]:
    """What is wrong with counted figures, a line each; what is better is no problem.

    Args:
        figures: what was measured; the counted ones are compared.
        groups: which groups were measured to their end, and have all their figures.
        file: the accepted values.
    """
    accepted = _read(file)
    found = []
    counted = [figure for figure in figures if figure.counted]
    for figure in counted:
        known = accepted.get(figure.group, {}).get(figure.name)
        what = f"{figure.group}: {figure.name}"
        if known is None:
            found.append(f"{what}: {number(figure.median)} {figure.unit} is not in {file.name}: {_HOW}")
        elif figure.median > known * (1 + TOLERANCE):
            worse = f"{(figure.median / known - 1) * 100:.1f} % " if known else ""
            found.append(
                f"{what}: {number(figure.median)} {figure.unit} is {worse}more than the accepted {number(known)}: "
                f"mend it, or, if it must be, {_HOW}"
            )
    measured = {(figure.group, figure.name) for figure in counted}
    found += [
        f"{group}: {name} is in {file.name} and was not counted: {_HOW}"
        for group in groups
        for name in accepted.get(group, {})
        if (group, name) not in measured
    ]
    return found


def accept(figures: Sequence[Figure], groups: Collection[str], file: Path) -> None:
    """Take what was counted of these groups in the place of what was accepted of them."""
    accepted = {group: known for group, known in _read(file).items() if group not in groups}
    for figure in figures:
        if figure.counted and figure.group in groups:
            accepted.setdefault(figure.group, {})[figure.name] = rounded(figure.median)
    file.write_text(f"{json.dumps(accepted, indent=2, sort_keys=True)}\n", encoding="utf-8")


def _read(file: Path) -> dict[str, dict[str, float]]:
    if not file.exists():
        return {}
    known: dict[str, dict[str, float]] = json.loads(file.read_text(encoding="utf-8"))
    return known
