"""A receiver for measurements, in a process of its own: nginx where it is installed, else a small one of our own.

Answers every POST with 200 and an empty body, and notes nothing.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder}; keepalive_requests 1000000000; client_max_body_size 8m;
    client_body_buffer_size 64k;
    server {{ listen 127.0.0.1:{port} reuseport backlog=4096; location / {{ return 200; }} }}
}}
"""


class ReceiverError(Exception):
    """The receiver could not be started."""


class Answer(asyncio.Protocol):
    """Answers each request as soon as it is whole; reads no more of it than its length."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin with nothing."""
        self.transport = transport
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        """Answer what is whole."""
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            start = head.index(b"content-length:") + 15
            whole = end + 4 + int(head[start:].split(b"\r\n", 1)[0])
            if len(self.buffer) < whole:
                return
            self.buffer = self.buffer[whole:]
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")  # type: ignore[attr-defined]


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Answer, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def _run(port: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the command's, which ends this process
    asyncio.run(_serve(port))


@contextmanager
def receiver() -> Iterator[tuple[str, str]]:
    """Run a receiver; gives its URL and its name.

    Raises:
        ReceiverError: it did not come up.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    nginx = shutil.which("nginx")
    with tempfile.TemporaryDirectory(prefix="forbear-bench-receiver-") as folder:
        if nginx:
            Path(folder).chmod(0o777)
            config = Path(folder, "nginx.conf")
            config.write_text(NGINX.format(folder=folder, port=port), encoding="utf-8")
            process = subprocess.Popen(
                [nginx, "-c", str(config), "-p", folder], stderr=subprocess.DEVNULL, start_new_session=True
            )
            try:
                _until_open(port)
                yield f"http://127.0.0.1:{port}", "nginx"
            finally:
                process.terminate()
                process.wait()
        else:
            own = multiprocessing.get_context("spawn").Process(target=_run, args=(port,), daemon=True)
            own.start()
            try:
                _until_open(port)
                yield f"http://127.0.0.1:{port}", "asyncio"
            finally:
                own.terminate()
                own.join()


def _until_open(port: int) -> None:
    for _ in range(200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise ReceiverError("the receiver did not come up")
