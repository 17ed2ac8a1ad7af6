"""What a command can fail with: one line for people, a problem document for programs, and an exit code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class CliError(Exception):
    """A command cannot go on; the message is one line and says what to do.

    Attributes:
        exit_code: What the process ends with.
    """

    exit_code = 1

    def document(self) -> dict[str, Any]:
        """The error as a problem document (RFC 9457), for `--json`."""
        return {"type": "about:blank", "title": type(self).__name__, "detail": str(self)}


class UsageError(CliError):
    """The command line, or what it refers to on this machine, is not as it should be."""

    exit_code = 2


class Unreachable(CliError):
    """Nobody answers at the address."""


class ApiError(CliError):
    """The API answered with something other than success.

    Args:
        status: The HTTP status.
        problem: The problem document that came, or one made from what came instead.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        detail = str(problem.get("detail") or problem.get("title") or f"the API answered {status}")
        # The detail tells the first of several errors already.
        further = [f"{one['field']}: {one['message']}" for one in (problem.get("errors") or [])[1:]]
        super().__init__("; ".join([detail, *further]))

    def document(self) -> dict[str, Any]:
        """The problem document as the API gave it."""
        return self.problem
