"""The CDK's command line, as people run it, with the Node of the wheel and against the emulator."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import infra.node  # noqa: F401 - chooses the Node of the CDK app

CDK = "aws-cdk@2.1148.1"
ROOT = Path(__file__).parents[3]
APP = ROOT / "tests" / "e2e" / "aws" / "emulated_app.py"
ARCHITECTURE = {"x86_64": "x86_64", "aarch64": "arm64", "arm64": "arm64"}[platform.machine()]


class CdkFailed(Exception):
    """The command did not succeed; the message is its output."""


class Cdk:
    """Runs commands with one app, folder and environment.

    Raises:
        CdkFailed: by each of its methods, if the command fails.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        node = Path(os.environ["JSII_NODE"])
        npx = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npx-cli.js"
        self._folder = folder
        self._assembly = folder / "cdk.out"
        # From the cache if it is there: the version is given, so nothing newer can be it.
        self._command = [str(node), str(npx), "--yes", "--prefer-offline", CDK]
        self._environment = {
            **os.environ,
            **environment,
            "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}",
            "CDK_HOME": str(folder),  # it remembers whose account number belongs to which keys
            "CDK_VALIDATION": "false",  # its seconds are the gate's
            "CDK_DISABLE_CLI_TELEMETRY": "true",
        }

    async def bootstrap(self, account: str, region: str) -> None:
        """Prepare an account for the CDK."""
        await self._run("bootstrap", f"aws://{account}/{region}", cwd=self._folder)  # where there is no app

    async def deploy(self, context: Mapping[str, str]) -> dict[str, str]:
        """Synthesize the app with a context, and deploy it. Gives the stack's outputs."""
        outputs = self._folder / "outputs.json"
        chosen = [part for key, value in context.items() for part in ("--context", f"{key}={value}")]
        await self._run(
            *("deploy", "--require-approval", "never", "--outputs-file", str(outputs)),
            *("--app", f"{sys.executable} {APP}", "--output", str(self._assembly), *chosen),
            cwd=ROOT,
        )
        (found,) = json.loads(outputs.read_text(encoding="utf-8")).values()
        return dict(found)

    async def destroy(self) -> None:
        """Destroy what was deployed last."""
        await self._run("destroy", "--force", "--app", str(self._assembly), cwd=ROOT)

    async def _run(self, *arguments: str, cwd: Path) -> None:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            "--no-notices",
            "--ci",  # everything on standard output
            cwd=cwd,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output = (await process.communicate())[0].decode(errors="replace")
        finally:
            if process.returncode is None:  # cancelled: npx's children, too
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode:
            raise CdkFailed(output)
