"""Execution environments that start from the deployable bundle, under Lambda's own runtime client.

Owns the bundle, the runtime client beside it, and one start with its first invocation. Knows no figure.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import shutil
import sys
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from infra.bundling import Architecture, Bundle
from infra.local.environment import Environment
from infra.local.runtime_api import Invocation

HERE: Final[Architecture] = "arm64" if platform.machine() in {"aarch64", "arm64"} else "x86_64"
"""The architecture of this machine."""

_CLIENT: Final = ("awslambdaric", "runtime_client", "simplejson", "snapshot_restore_py")
_PROBE: Final = Path(__file__).with_name("probe.py")
_PATIENCE_S: Final = 60.0


class StartFailed(Exception):
    """A function did not start, or its first invocation failed; the message has what it wrote."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start of a function and its first invocation.

    Attributes:
        ready_s: from the process's begin to the moment when it asks for work.
        client_cpu_s: CPU time of interpreter and runtime client, before the function's module is imported.
        import_cpu_s: CPU time of that import.
        import_s: how long it took.
        invocation_cpu_s: CPU time of the first invocation.
        invocation_s: how long it took.
        imported: the modules that were imported with the function's, beyond those that the runtime client has.
        modules: how many it were after the first invocation.
        answer: the handler's.
    """

    ready_s: float
    client_cpu_s: float
    import_cpu_s: float
    import_s: float
    invocation_cpu_s: float
    invocation_s: float
    imported: list[str]
    modules: int
    answer: Any


def bundle(folder: Path) -> Path:
    """Make the bundle for this machine's architecture, in a folder of its own. Gives that."""
    made = folder / "bundle"
    made.mkdir()
    Bundle(architecture=HERE).build(made)
    return made


def without_bytecode(made: Path, folder: Path) -> Path:
    """The same bundle without bytecode, sharing its files."""
    return shutil.copytree(
        made, folder / "without-bytecode", copy_function=os.link, ignore=shutil.ignore_patterns("__pycache__")
    )


def unzipped_bytes(made: Path) -> int:
    """The size of a bundle's files."""
    return sum(path.stat().st_size for path in made.rglob("*") if path.is_file())


def zipped_bytes(made: Path, folder: Path) -> int:
    """The size of a bundle as an archive, which is made and deleted again."""
    archive = folder / "bundle.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for path in sorted(made.rglob("*")):
            if path.is_file():
                opened.write(path, path.relative_to(made))
    size = archive.stat().st_size
    archive.unlink()
    return size


def runtime_client(folder: Path) -> Path:
    """A folder with Lambda's runtime client, and nothing else of this environment's packages.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    beside = folder / "runtime"
    beside.mkdir()
    for module in _CLIENT:
        spec = find_spec(module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"{module} is missing: install awslambdaric")
        path = Path(spec.origin)
        path = path.parent if path.name == "__init__.py" else path
        (beside / path.name).symlink_to(path)
    return beside


def start(function: str, made: Path, client: Path, variables: Mapping[str, str], event: Mapping[str, Any]) -> Start:
    """Start a function, invoke it once, and end it.

    Args:
        function: the name of its module.
        made: the bundle.
        client: the runtime client's folder; the probe is put there.
        variables: the function's environment variables.
        event: what to invoke it with.

    Raises:
        StartFailed: it did not start, or failed.
    """
    shutil.copyfile(_PROBE, client / _PROBE.name)
    return asyncio.run(_start(function, made, client, variables, event))


async def _start(
    function: str, made: Path, client: Path, variables: Mapping[str, str], event: Mapping[str, Any]
) -> Start:
    lines: list[str] = []
    environment = Environment(
        host="127.0.0.1",
        # Without this environment's packages, and as in /var/task without a place to write bytecode to.
        command=[sys.executable, "-S", "-B", "-m", "awslambdaric", "probe.handler"],
        variables={
            "PYTHONPATH": f"{made}:{client}",
            "AWS_LAMBDA_FUNCTION_NAME": function,
            "AWS_LAMBDA_LOG_FORMAT": "JSON",
            "AWS_REGION": "eu-central-1",
            "BENCH_FUNCTION": function,
            **variables,
        },
        folder=made,
        init_timeout_s=_PATIENCE_S,
        on_line=lines.append,
        on_exit=lambda _: None,
    )
    began_s = time.perf_counter()
    try:
        refused = await environment.start()
        ready_s = time.perf_counter() - began_s
        if refused is not None:
            raise StartFailed(f"{function} does not start: {refused.payload.decode()} {' '.join(lines)}")
        payload = json.dumps(event).encode()
        outcome, _ = await environment.run(Invocation("bench", f"arn:{function}", "Root=1", _PATIENCE_S, payload))
    finally:
        await environment.stop(grace_s=2)
    if outcome.error is not None:
        raise StartFailed(f"{function} fails: {outcome.payload.decode()} {' '.join(lines)}")
    return Start(ready_s, **json.loads(outcome.payload))
