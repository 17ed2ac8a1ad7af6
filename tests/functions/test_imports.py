"""What each function's module brings in: what a function does not use costs each of its cold starts."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

FUNCTIONS = Path(__file__).parents[2] / "functions"

# Nobody needs these to start: boto3 is for calls that are rare or late (a wake-up, KMS), the others are for the command
# line and the local stack. Each of them is a quarter of a second, about.
NOBODY = {
    *("boto3", "botocore.session", "botocore.client", "urllib3"),
    *("httpx", "requests", "starlette", "rich", "typer", "forbear.openapi"),
}
MODELS = {"pydantic", "pydantic_core", "forbear.models", "forbear.policy"}
SENDING = {"forbear.sender", "httptools", "uvloop"}
SEALING = {"cryptography", "cffi"}
MUST_NOT = {
    "ingest": MODELS | SENDING | SEALING | {"forbear.manage", "forbear.store", "forbear.replays", "idna"},
    "claimer": {"forbear.manage", "forbear.models", "forbear.api", "forbear.replays", "forbear.envelope"},
    "replay": SENDING | SEALING | {"forbear.manage", "forbear.store", "forbear.envelope"},
    "manage": SENDING | {"forbear.store", "forbear.envelope", "forbear.loop"},
    "maintain": MODELS | SENDING | SEALING | {"forbear.manage", "forbear.store", "forbear.api", "forbear.metrics"},
    "migrate": MODELS | SENDING | SEALING | {"forbear.manage", "forbear.store", "forbear.api", "forbear.metrics"},
}


@cache
def imported(function: str) -> frozenset[str]:
    """The modules that a process has once it has imported a function's."""
    done = subprocess.run(  # noqa: S603 - a fixed argument list
        [sys.executable, "-c", f"import sys, {function}; print(*sys.modules)"],
        env={"PYTHONPATH": str(FUNCTIONS), "FORBEAR_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"},
        capture_output=True,
        text=True,
        check=True,
    )
    return frozenset(done.stdout.split())


@pytest.mark.parametrize("function", MUST_NOT)
def test_a_function_imports_nothing_that_it_does_not_use(function: str) -> None:
    unwanted = tuple(f"{name}." for name in NOBODY | MUST_NOT[function])
    assert {name for name in imported(function) if f"{name}.".startswith(unwanted)} == set()


def test_every_function_has_its_list() -> None:
    assert set(MUST_NOT) == {path.stem for path in FUNCTIONS.glob("*.py")}
