"""Figures on the terminal and in files, as the commands that draw show them."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from infra.cli.errors import UsageError

if TYPE_CHECKING:
    from infra.plotting.figure import Figure


def check(plot: str) -> None:
    """See whether a file can be drawn into, before anything is computed for it.

    Raises:
        UsageError: It is neither .svg nor .png, or nothing can be written there.
    """
    if Path(plot).suffix.lower() not in {".svg", ".png"}:
        raise UsageError(f"--plot: {plot!r} ends neither in .svg nor in .png: choose one of the two")
    if not os.access(Path(plot).absolute().parent, os.W_OK):
        raise UsageError(f"--plot: {plot!r}: nothing can be written there: name a folder that is there and yours")


def write(figure: Figure, plot: str) -> None:
    """Draw into a file, .svg or .png.

    Raises:
        UsageError: It cannot be written.
    """
    from infra.plotting import files  # noqa: PLC0415 - matplotlib takes seconds

    try:
        files.write(figure, Path(plot))
    except (OSError, ValueError) as error:
        raise UsageError(f"--plot: {error}") from error


def draw(figure: Figure) -> None:
    """Draw on the terminal, as wide as it is."""
    from infra.plotting import terminal  # noqa: PLC0415

    width = max(shutil.get_terminal_size().columns, terminal.NARROWEST)
    print(terminal.drawn(figure, width, coloured=sys.stdout.isatty()), flush=True)
