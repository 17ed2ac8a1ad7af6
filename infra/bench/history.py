"""The results that are kept: a line a run in `docs/benchmarks/history.jsonl`, the page and the pictures made of it.

Owns the files' names and the line's form; what the page and the pictures look like is `page`'s.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from infra.bench.figure import Figure
from infra.bench.machine import ROOT, About
from infra.bench.showing import document, figure_of

FOLDER: Final = ROOT / "docs" / "benchmarks"
LINES: Final = "history.jsonl"


@dataclass(frozen=True, slots=True)
class Run:
    """A run: what it was, and what it measured."""

    about: About
    figures: tuple[Figure, ...]


def record(folder: Path, run: Run) -> None:
    """Add a run, and draw the page (beside the folder, with its name) and the pictures (in it) again.

    Args:
        folder: where the history is; made if it is not there, in a folder that is.
        run: the run.
    """
    folder.mkdir(exist_ok=True)
    line = {"run": asdict(run.about), "figures": [document(figure) for figure in run.figures]}
    with (folder / LINES).open("a", encoding="utf-8") as lines:
        print(json.dumps(line, separators=(",", ":")), file=lines)
    redraw(folder, read(folder))


def read(folder: Path) -> list[Run]:
    """The runs that were recorded, the earliest first."""
    path = folder / LINES
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    documents = [json.loads(line) for line in lines]
    return [Run(About(**one["run"]), tuple(map(figure_of, one["figures"]))) for one in documents]


def redraw(folder: Path, runs: Sequence[Run]) -> None:
    """Make the page and the pictures of runs, in place of those that are there."""
    from infra.bench import page  # noqa: PLC0415 - it knows runs
    from infra.plotting import files  # noqa: PLC0415 - matplotlib takes seconds

    pictures = page.pictures(runs)
    for old in folder.glob("*.svg"):
        old.unlink()
    for name, figure in pictures.items():
        files.write(figure, folder / f"{name}.svg")
    folder.with_suffix(".md").write_text(page.markdown(runs, folder.name, pictures), encoding="utf-8")
