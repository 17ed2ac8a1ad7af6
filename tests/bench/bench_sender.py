"""How many requests a second the sender does, one process, plain HTTP over loopback; prints JSON lines.

    python tests/bench/bench_sender.py [--loop uvloop] [--receiver nginx] [--rounds 5]

The receiver runs in a process of its own: a small asyncio protocol, or nginx if it is installed. Each round sends
`--requests` POSTs with `--concurrency` in flight; a summary gives the median and the spread of the rounds. With
`--no-keep-alive` the receiver closes after each response, so that every request dials.
"""

import argparse
import asyncio
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import cast

import uvloop

from forbear.guard import Guard
from forbear.sender import Request
from forbear.sender.lean import LeanSender
from forbear.urls import parse

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
GUARD = Guard(allow=(ip_network("127.0.0.0/8"),), allow_http=True)
NGINX = """
daemon off;
pid {folder}/pid;
error_log {folder}/error.log;
worker_processes 1;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout {keep_alive}s;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port} backlog=4096; location / {{ return 200 "ok"; }} }}
}}
"""


class Receiver(asyncio.Protocol):
    """Answers 200 to each request; reads what our sender writes, nothing more general."""

    keep_alive = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.buffer = b""

    def data_received(self, data: bytes) -> None:
        buffer = self.buffer + data if self.buffer else data
        while (end := buffer.find(b"\r\n\r\n")) >= 0:
            length = int(buffer[buffer.index(b"Content-Length: ") + 16 : end].split(b"\r\n", 1)[0])
            if len(buffer) < end + 4 + length:
                break
            buffer = buffer[end + 4 + length :]
            if self.keep_alive:
                self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok")
            else:
                self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
                self.transport.close()
        self.buffer = buffer


async def serve(port: int, *, keep_alive: bool) -> None:
    """Receives until killed."""
    Receiver.keep_alive = keep_alive
    server = await asyncio.get_running_loop().create_server(Receiver, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def emit(line: dict[str, object]) -> None:
    """Prints a line of JSON."""
    print(json.dumps(line), flush=True)


def free_port() -> int:
    """A port of loopback that nobody listens on right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def receiver(kind: str, *, keep_alive: bool) -> Iterator[int]:
    """A receiver in another process; yields its port."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        if kind == "nginx":
            nginx = shutil.which("nginx")
            if nginx is None:
                raise SystemExit("nginx is not installed; use --receiver asyncio")
            config = Path(folder) / "nginx.conf"
            config.write_text(NGINX.format(folder=folder, port=port, keep_alive=3600 if keep_alive else 0))
            command = [nginx, "-p", folder, "-c", str(config)]
        else:
            command = [sys.executable, __file__, "--serve", str(port), *([] if keep_alive else ["--no-keep-alive"])]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            until = time.monotonic() + 10
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    if time.monotonic() > until or process.poll() is not None:
                        raise SystemExit(f"the receiver ({kind}) did not start") from None
                    time.sleep(0.05)
            yield port
        finally:
            process.terminate()
            process.wait(10)


async def one_round(sender: LeanSender, request: Request, requests: int, concurrency: int) -> dict[str, float]:
    """Sends that many; returns requests a second and percentiles of the latency."""
    latencies: list[float] = []
    left = iter(range(requests))

    async def worker() -> None:
        for _ in left:
            response = await sender.send(request)
            if response.status != 200:
                raise SystemExit(f"unexpected: {response}")
            latencies.append(response.latency_s)

    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(concurrency)))
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "requests_per_s": round(requests / took),
        "cpu_us_per_request": round(cpu / requests * 1e6, 1),
        "p50_ms": round(cuts[49] * 1e3, 2),
        "p99_ms": round(cuts[98] * 1e3, 2),
    }


async def measure(arguments: argparse.Namespace, loop: str, port: int) -> None:
    """All rounds on one loop; prints a line for each and one for all."""
    url = parse(f"http://127.0.0.1:{port}/hook?source=bench", allow_http=True)
    headers = tuple(
        (name, b"x" * length)
        for name, length in (
            (b"content-type", 16), (b"user-agent", 20), (b"webhook-id", 30), (b"webhook-timestamp", 10),
            (b"webhook-signature", 47), (b"idempotency-key", 30), (b"forbear-attempt", 1),
        )
    )  # fmt: skip
    request = Request(url, headers, b"x" * arguments.body_bytes, 15.0, 5.0)
    what = {"loop": loop, "receiver": arguments.receiver, "concurrency": arguments.concurrency}
    what |= {"body_bytes": arguments.body_bytes, "keep_alive": arguments.keep_alive}
    sender = LeanSender(GUARD)
    await one_round(sender, request, min(arguments.requests, 2000), arguments.concurrency)  # warm up
    rates = []
    for number in range(1, arguments.rounds + 1):
        result = await one_round(sender, request, arguments.requests, arguments.concurrency)
        rates.append(result["requests_per_s"])
        emit({"round": number, **what, **result})
    spread = {"median": statistics.median(rates), "least": min(rates), "most": max(rates)}
    emit({"summary": "requests_per_s", **what, "rounds": len(rates), **spread})
    await sender.aclose()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--loop", choices=[*LOOPS, "both"], default="both")
    parser.add_argument("--receiver", choices=["asyncio", "nginx"], default="asyncio")
    parser.add_argument("--concurrency", type=int, default=100, help="requests in flight")
    parser.add_argument("--requests", type=int, default=50_000, help="requests a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--no-keep-alive", dest="keep_alive", action="store_false")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(arguments.serve, keep_alive=arguments.keep_alive))
    for loop in LOOPS if arguments.loop == "both" else [arguments.loop]:
        with (
            receiver(arguments.receiver, keep_alive=arguments.keep_alive) as port,
            asyncio.Runner(loop_factory=LOOPS[loop]) as runner,
        ):
            runner.run(measure(arguments, loop, port))


if __name__ == "__main__":
    main()
