"""Figures on the terminal and in files, as the commands that draw show them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from infra.cli.errors import UsageError

if TYPE_CHECKING:
    from infra.plotting.figure import Figure


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
