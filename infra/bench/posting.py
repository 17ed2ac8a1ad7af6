"""Producers: functions/ingest.py's handler in processes of its own, called with API Gateway's events.

One process is one execution environment, with a connection of its own and one request at a time, as in Lambda. As the
runtime does, it reads each event from JSON and writes each answer to JSON. Owns the processes and what they tell of
themselves. Knows no figure.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, Final

from infra.bench.filling import EVENT_TYPE, payload
from infra.local.http_event import event
from infra.local.http_request import HttpRequest

START_S: Final = 60.0
_TIME_MS: Final = 29_000


class PostingFailed(Exception):
    """A producer's process is gone, or an event was not accepted."""


@dataclass(frozen=True, slots=True)
class Job:
    """What one producer posts.

    Attributes:
        tenants: whose events, in turn.
        requests: how many.
        batch: events a request; 1: each by itself, at POST /v1/events.
        every_s: when requests are due, from the job's begin; 0: each as soon as the one before is answered.
    """

    tenants: Sequence[str]
    requests: int
    batch: int = 1
    every_s: float = 0.0

    @property
    def events(self) -> int:
        """How many events."""
        return self.requests * self.batch


@dataclass(frozen=True, slots=True)
class Posted:
    """What several producers did at once.

    Attributes:
        events: how many were acknowledged.
        began: when the first request was due, by `time.monotonic`.
        ended: when the last one was answered.
        cpu_s: the processes' CPU time.
        latencies_ms: from when each request was due to its answer.
    """

    events: int
    began: float
    ended: float
    cpu_s: float
    latencies_ms: tuple[float, ...]

    @property
    def per_s(self) -> float:
        """Events acknowledged a second."""
        return self.events / (self.ended - self.began)


class Producers:
    """The processes, as seen from outside."""

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes = pipes

    def begin(self, jobs: Iterable[Job]) -> None:
        """Have each producer do a job, one for each; `posted` waits for them."""
        for pipe, job in zip(self._pipes, jobs, strict=True):
            pipe.send((_requests(job), job))

    def posted(self) -> Posted:
        """Wait until all jobs are done.

        Raises:
            PostingFailed: a process is gone, or an event was not accepted.
        """
        done = [_received(pipe) for pipe in self._pipes]
        return Posted(
            sum(events for events, *_ in done),
            min(began for _, began, *_ in done),
            max(ended for _, _, ended, *_ in done),
            sum(cpu_s for *_, cpu_s, _ in done),
            tuple(latency for *_, latencies in done for latency in latencies),
        )

    def post(self, jobs: Iterable[Job]) -> Posted:
        """Have each producer do a job, and wait for them. Raises as `posted`."""
        self.begin(jobs)
        return self.posted()


@contextmanager
def producers(environment: Mapping[str, str], number: int) -> Iterator[Producers]:
    """Processes that have imported their handler and are connected, for as long as the block lasts.

    Each has posted one event that nobody subscribes to.

    Args:
        environment: their settings, as environment variables.
        number: how many.

    Raises:
        PostingFailed: one did not come up.
    """
    # Forked from one that has imported everything: dozens of processes would take longer to start than to measure.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", __name__, "ingest"])
    pipes, processes = [], []
    try:
        for _ in range(number):
            ours, theirs = context.Pipe()
            pipes.append(ours)
            processes.append(context.Process(target=_run, args=(dict(environment), theirs), daemon=True))
            processes[-1].start()
            theirs.close()
        together = Producers(pipes)
        together.post([Job(("nobody",), 1)] * number)
        yield together
    finally:
        for pipe in pipes:
            pipe.close()  # they end when they are asked for nothing more
        for process in processes:
            if process.pid is not None:
                process.join(5)
                process.kill()
                process.join()


def _received(pipe: Connection) -> tuple[int, float, float, float, list[float]]:
    try:
        answer = pipe.recv()
    except (EOFError, OSError) as error:
        raise PostingFailed("a producer's process is gone") from error
    if isinstance(answer, str):
        raise PostingFailed(answer)
    done: tuple[int, float, float, float, list[float]] = answer
    return done


def _requests(job: Job) -> list[str]:
    """The events of the requests that a job repeats, as JSON: together they have each tenant in each place."""
    number = len(job.tenants)
    if job.batch == 1:
        return [_request("/v1/events", _envelope(tenant)) for tenant in job.tenants]
    starts = range(0, number, max(1, min(job.batch, number)))
    batches = [[job.tenants[(start + place) % number] for place in range(job.batch)] for start in starts]
    return [_request("/v1/events/batch", f'{{"events":[{",".join(map(_envelope, batch))}]}}') for batch in batches]


def _envelope(tenant: str) -> str:
    return f'{{"tenant":"{tenant}","type":"{EVENT_TYPE}","payload":{payload().decode()}}}'


def _request(path: str, body: str) -> str:
    request = HttpRequest(
        "POST",
        path,
        "",
        (("host", "127.0.0.1"), ("content-type", "application/json"), ("user-agent", "forbear-bench")),
        body.encode(),
        "127.0.0.1",
        80,
        "HTTP/1.1",
    )
    made = event(
        request,
        api_id="bench",
        request_id="bench",
        trace_root="Root=1-00000000-000000000000000000000000",
        route_key=f"POST {path}",
        path=path,
        path_parameters={},
    )
    return json.dumps(made)


def _run(environment: dict[str, str], pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is the command's, which ends this process
    os.environ.update(environment)
    # What it logs belongs to nobody here; standard output is the bench's.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    import ingest  # noqa: PLC0415 - it reads its settings once, and only this process has them

    while True:
        try:
            requests, job = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(_do(ingest.handler, requests, job))
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            pipe.send(f"{type(error).__name__}: {error}")


def _do(handler: Any, requests: Sequence[str], job: Job) -> tuple[int, float, float, float, list[float]]:
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: _TIME_MS)
    latencies = []
    began, cpu_s = time.monotonic(), time.process_time()
    for place in range(job.requests):
        due = began + place * job.every_s if job.every_s else time.monotonic()
        if (early := due - time.monotonic()) > 0:
            time.sleep(early)
        answer = handler(json.loads(requests[place % len(requests)]), context)
        answered = json.dumps(answer)
        latencies.append((time.monotonic() - due) * 1000)
        if not _accepted(answer, job.batch):
            raise PostingFailed(f"an event was not accepted: {answered[:300]}")
    return job.events, began, time.monotonic(), time.process_time() - cpu_s, latencies


def _accepted(answer: Mapping[str, Any], batch: int) -> bool:
    if batch == 1:
        return bool(answer["statusCode"] == 202)
    return bool(answer["statusCode"] == 207 and answer["body"].count('"status":202') == batch)
