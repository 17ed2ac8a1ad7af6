"""What a function costs before it does any work: from the deployable bundle, under Lambda's own runtime client.

The bundle is that of a deployment, for this machine's architecture. Each start is a new process; the files are in the
page cache, which they are not on the first start of a machine in AWS.

- *import*: of the function's module with all that it imports, beyond the interpreter and the runtime client, which are
  *runtime*.
- *first invocation*: one that reaches the database, so the connection is opened in it. Ingest stores an event while a
  claimer is awake, the claimer sends a delivery, replay counts what it would replay, manage lists endpoints, and
  maintain and migrate find everything done.
- *ready*: from the process's begin to the moment when it asks for work.
- *modules*: imported by then, and by the first invocation, beyond those that the runtime client imports.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from infra.bench.cold_starts import (
    HERE,
    Start,
    StartFailed,
    bundle,
    runtime_client,
    start,
    unzipped_bytes,
    without_bytecode,
    zipped_bytes,
)
from infra.bench.figure import Figure, at_most
from infra.bench.filling import EVENT_TYPE, fill, make_endpoints, payload
from infra.bench.world import Scale, World
from infra.local.http_event import event
from infra.local.http_request import HttpRequest

NAME: Final = "cold-start"
FUNCTIONS: Final = ("ingest", "claimer", "replay", "manage", "maintain", "migrate")
QUICK: Final = ("ingest", "claimer")
_TIMES: Final = {
    "runtime, CPU": "client_cpu_s",
    "import, CPU": "import_cpu_s",
    "import": "import_s",
    "ready": "ready_s",
    "first invocation, CPU": "invocation_cpu_s",
    "first invocation": "invocation_s",
}
_AIMS: Final = {("ingest", "import, CPU"): at_most(250)}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where functions start: the world, a tenant with one endpoint, the bundle, and the runtime client's folder."""

    world: World
    tenant: str
    made: Path
    client: Path


def measure(world: World, scale: Scale) -> Iterator[Figure]:
    """Measure the group; see the module."""
    with TemporaryDirectory(prefix="forbear-bundle-") as name, world.connect() as connection:
        folder = Path(name)
        (tenant,) = make_endpoints(world, connection, 1)
        connection.execute("INSERT INTO forbear.claimers VALUES (gen_random_uuid(), 'infinity')")
        place = _Place(world, tenant, bundle(folder), runtime_client(folder))
        size = partial(Figure, NAME, unit="bytes", conditions={"architecture": HERE})
        yield size("bundle, unzipped", values=(float(unzipped_bytes(place.made)),))
        if not scale.quick:
            yield size("bundle, zipped", values=(float(zipped_bytes(place.made, folder)),))
        for function in QUICK if scale.quick else FUNCTIONS:
            yield from _figures(function, [_start(place, function) for _ in range(scale.repeats)])
        if not scale.quick:
            bare = replace(place, made=without_bytecode(place.made, folder))
            values = tuple(_start(bare, "ingest").import_cpu_s * 1e3 for _ in range(scale.repeats))
            yield Figure(NAME, "ingest: import without bytecode, CPU", "ms", values)


def _figures(function: str, starts: Sequence[Start]) -> Iterator[Figure]:
    for name, attribute in _TIMES.items():
        values = tuple(getattr(one, attribute) * 1e3 for one in starts)
        yield Figure(NAME, f"{function}: {name}", "ms", values, _AIMS.get((function, name)))
    for name, counts in {
        "modules imported": [len(one.imported) for one in starts],
        "modules after the first invocation": [one.modules for one in starts],
    }.items():
        yield Figure(NAME, f"{function}: {name}", "count", tuple(map(float, counts)), counted=True)


def _start(place: _Place, function: str) -> Start:
    world = place.world
    if function == "claimer":
        with world.connect() as connection:
            fill(connection, {place.tenant: [payload()]})
    variables = world.environment(function) | {"FORBEAR_LINGER_S": "0", "FORBEAR_MASTER_SECRET": "arn:unused"}
    started = start(function, place.made, place.client, variables, _event(function, place.tenant))
    status = started.answer.get("statusCode", 200)
    if status >= 400:
        raise StartFailed(f"{function} answers {status}: {started.answer['body']}")
    return started


def _event(function: str, tenant: str) -> Mapping[str, Any]:
    """What a function is first invoked with."""
    match function:
        case "ingest":
            body = {"tenant": tenant, "type": EVENT_TYPE, "payload": json.loads(payload())}
            return _http("POST", "/v1/events", body)
        case "replay":
            return _http("POST", "/v1/replays", {"filter": {"tenant": tenant, "status": "dead"}, "dry_run": True})
        case "manage":
            return _http("GET", "/v1/endpoints")
        case "claimer":
            return {"forbear": "wake"}
    return {}


def _http(method: str, path: str, body: object = None) -> Mapping[str, Any]:
    sent = b"" if body is None else json.dumps(body).encode()
    headers = (("host", "127.0.0.1"), ("content-type", "application/json"), ("user-agent", "forbear-bench"))
    return event(
        HttpRequest(method, path, "", headers, sent, "127.0.0.1", 80, "HTTP/1.1"),
        api_id="bench",
        request_id="bench",
        trace_root="Root=1-00000000-000000000000000000000000",
        route_key=f"{method} {path}",
        path=path,
        path_parameters={},
    )
