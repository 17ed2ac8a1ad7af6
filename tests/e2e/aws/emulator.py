"""MiniStack, an emulator of AWS, as a process of the tests: its environment, its life, and how it is reached.

Owns installing the pinned version apart from ours (it pins another botocore), and ending whatever it started. It checks
signatures and policies (AUTH), for its own services and for the functions' roles, and speaks TLS, which the policies of
the CDK's bucket and of the stack's queue ask for.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import boto3
import httpx
import trustme

MINISTACK = "1.5.33"
# What Lambda's runtime brings along and the bundle therefore leaves out; the emulator wants this very botocore.
BOTO3 = "1.43.106"
ACCOUNT, REGION = "424242424242", "eu-central-1"
# With TLS it would also take port 443, for Cognito.
START = "import ministack.app as app; app._port_is_bindable = lambda *_: False; app.main()"
READY_S, GRACE_S = 30.0, 5.0


class MiniStack:
    """One emulator, on a free port of 127.0.0.1.

    Attributes:
        url: where its API is.
        folder: of its environment, certificates, log and workers.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1", "localhost")
        self.ca = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca))
        certificate.private_key_and_cert_chain_pem.write_to_path(str(folder / "server.pem"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.url = f"https://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What AWS tools need to use it, as the account's root user."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_CA_BUNDLE": str(self.ca),
            "AWS_ACCESS_KEY_ID": ACCOUNT,
            "AWS_SECRET_ACCESS_KEY": "root",
            "AWS_REGION": REGION,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def client(self, service: str) -> Any:
        """A boto3 client, as the account's root user."""
        return boto3.client(
            service,
            endpoint_url=self.url,
            verify=str(self.ca),
            region_name=REGION,
            aws_access_key_id=ACCOUNT,
            aws_secret_access_key="root",
        )

    def http(self, **options: Any) -> httpx.AsyncClient:
        """A client for the deployed API and function URL."""
        context = ssl.create_default_context(cafile=str(self.ca))
        return httpx.AsyncClient(verify=context, timeout=30, trust_env=False, **options)

    def install(self) -> None:
        """Make its environment, with this Python's version: that runs the functions, too."""
        uv = os.environ.get("UV") or shutil.which("uv")
        assert uv, "uv is missing: run the tests by `python3 -m uv run pytest`"
        python = self._python()
        base = getattr(sys, "_base_executable", sys.executable)
        packages = (f"ministack=={MINISTACK}", f"boto3=={BOTO3}")
        for arguments in (
            ("venv", "--python", base, str(python.parents[1])),
            ("pip", "install", "--python", str(python), *packages),
        ):
            # Elsewhere, because the versions that this project pins would hold for it, too.
            subprocess.run([uv, *arguments, "--quiet"], check=True, cwd=self.folder)

    def start(self) -> None:
        """Start it and wait until it answers."""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "AUTH": "true",
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "MINISTACK_ACCOUNT_ID": ACCOUNT,
            "MINISTACK_REGION": REGION,
            "USE_SSL": "1",
            "MINISTACK_SSL_CERT": str(self.folder / "server.pem"),
            "MINISTACK_SSL_KEY": str(self.folder / "server.pem"),
            # The functions inherit these: CloudFormation's addresses for answers, and AWS's services, are its own.
            "AWS_CA_BUNDLE": str(self.ca),
            "SSL_CERT_FILE": str(self.ca),
        }
        with (self.folder / "ministack.log").open("wb") as log:
            # A session of its own: its workers end with it, and a Ctrl-C is ours to handle.
            self._process = subprocess.Popen(
                [str(self._python()), "-c", START],
                env=environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        end = time.monotonic() + READY_S
        while not self._answers():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < end, f"no answer in {READY_S} s: {self.log()}"
            time.sleep(0.1)

    def stop(self) -> None:
        """End it and the workers that it left, and remove its folder. Safe to call twice."""
        process, self._process = self._process, None
        if process is not None:
            self._end(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def log(self, lines: int = 40) -> str:
        """The end of its log."""
        return "\n".join((self.folder / "ministack.log").read_text(errors="replace").splitlines()[-lines:])

    def function_logs(self) -> str:
        """What the functions logged."""
        logs = self.client("logs")
        return "\n".join(
            f"{group['logGroupName']}: {event['message'].rstrip()}"
            for group in logs.describe_log_groups()["logGroups"]
            for event in logs.filter_log_events(logGroupName=group["logGroupName"])["events"]
        )

    def _answers(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            context = ssl.create_default_context(cafile=str(self.ca))
            return httpx.get(f"{self.url}/_ministack/health", verify=context, trust_env=False).is_success
        return False

    def _python(self) -> Path:
        return self.folder / "environment" / "bin" / "python"
