"""`forbear up`: Forbear on this machine, from an embedded PostgreSQL to the schedule, until Ctrl-C.

Owns the order in which things start and stop, what is told about it, and the exit code.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from infra.cli.errors import CliError
from infra.cli.presets import File, read

if TYPE_CHECKING:
    from infra.local.demo.script import Demo, Promise
    from infra.local.postgres import EmbeddedPostgres
    from infra.local.stack import LocalStack

DATA = Path(".forbear")
KEY = "key"
API_PORT = 8400
REPLAY_PORT = 8401
STREAM_SHARE = 0.45
SETTLE_S = 6.0


WELCOME = """Forbear is up.

  API         {api_url}/v1
  replay URL  {replay_url}
  database    {database}
  log         {log}

Send a first event; in another terminal, `forbear listen` receives it:

  curl -s {api_url}/v1/endpoints -H 'content-type: application/json' \\
    -d '{{"tenant": "acme", "url": "http://127.0.0.1:8402/"}}'
  curl -s {api_url}/v1/events -H 'content-type: application/json' \\
    -d '{{"tenant": "acme", "type": "order.paid", "payload": {{"id": 1}}}}'
  curl -s '{api_url}/v1/deliveries?tenant=acme'

Ctrl-C stops it; the data stays.
"""


class CannotStart(Exception):
    """Something is in the way; the message says what, and what to do."""


def up(
    context: typer.Context,
    *,
    demo: Annotated[
        bool, typer.Option("--demo", help="Add receivers, endpoints and a stream of events, and show what happens.")
    ] = False,
    seconds: Annotated[
        float | None,
        typer.Option(min=20, help="End after so many seconds; with --demo, exit code 1 if a promise did not hold."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The API's port; 0: any free one.")] = API_PORT,
    replay_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The replay function URL's port; 0: any free one.")
    ] = REPLAY_PORT,
    data: Annotated[
        Path, typer.Option(help="Where the database lives between runs, and the key that its secrets are encrypted by.")
    ] = DATA,
    database_url: Annotated[
        str | None, typer.Option(help="Use this PostgreSQL (18 or later) and not the embedded one.")
    ] = None,
    presets: File = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, one document a line; errors too.")] = False,
) -> None:
    """Run Forbear on this machine: database, API, replay URL, claimer and schedule."""
    as_json |= context.obj.output.as_json
    try:
        code = asyncio.run(
            _up(
                demo=demo,
                seconds=seconds,
                ports=(port, replay_port),
                data=data,
                url=database_url,
                presets=_checked(presets),
                as_json=as_json,
            )
        )
    except CannotStart as error:
        problem = {"type": "about:blank", "title": "CannotStart", "detail": str(error)}
        print(json.dumps(problem) if as_json else f"forbear: {error}", file=sys.stderr)
        code = 2
    raise typer.Exit(code)


def _checked(presets: str | None) -> Path | None:
    """The file of own presets, found to be readable; the functions run elsewhere and need its absolute path."""
    if presets is None:
        return None
    try:
        read(presets)
    except CliError as error:
        raise CannotStart(str(error)) from error
    return Path(presets).absolute()


async def _up(
    *,
    demo: bool,
    seconds: float | None,
    ports: tuple[int, int],
    data: Path,
    url: str | None,
    presets: Path | None,
    as_json: bool,
) -> int:
    stop, database_died = asyncio.Event(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    deadline = None if seconds is None else time.monotonic() + seconds
    folder = _folder(data)
    async with (
        _database(folder, url, [database_died, stop]) as (database, shown),
        _log(folder) as log,
        _stack(database, folder / KEY, ports, presets, log, own_users=url is None) as stack,
    ):
        note = folder / "up.json"
        note.write_text(
            json.dumps({"api_url": stack.api_url, "replay_url": stack.replay_url, "pid": os.getpid()}, indent=2) + "\n"
        )
        try:
            where = {
                "api_url": stack.api_url,
                "replay_url": stack.replay_url,
                "database": shown,
                "log": str(folder / "functions.log"),
            }
            print(json.dumps(where) if as_json else WELCOME.format(**where), flush=True)
            if data != DATA and not as_json:
                print(f"  export FORBEAR_URL={stack.api_url} FORBEAR_REPLAY_URL={stack.replay_url}\n", flush=True)
            code = 0
            if demo:
                code = await _demonstrate(stack, stop, deadline, as_json=as_json)
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), None if deadline is None else deadline - time.monotonic())
            return 1 if database_died.is_set() else code
        finally:
            with contextlib.suppress(OSError, ValueError):
                if json.loads(note.read_text())["pid"] == os.getpid():
                    note.unlink()
            print("stopping", file=sys.stderr, flush=True)


def _folder(data: Path) -> Path:
    try:
        data.mkdir(parents=True, exist_ok=True)
        (data / "functions.log").touch()
    except OSError as error:
        raise CannotStart(
            f"cannot write {data.absolute()} ({error.strerror}): name another folder with --data"
        ) from error
    return data.absolute()


@contextlib.asynccontextmanager
async def _database(folder: Path, url: str | None, on_death: list[asyncio.Event]) -> AsyncIterator[tuple[str, str]]:
    """A migrated database: the embedded one, started, watched and stopped here, or the one that is given.

    Gives its URL, and how to call it to people. Sets the events should the embedded server die.
    """
    import psycopg  # noqa: PLC0415 - help must answer at once

    from forbear.migrations import MigrationError, migrate  # noqa: PLC0415
    from forbear.roles import RolesError  # noqa: PLC0415
    from forbear.vault import KeyUnavailable  # noqa: PLC0415
    from infra.local.deployment import bring_up, make_keys  # noqa: PLC0415
    from infra.local.postgres import EmbeddedPostgres, PostgresError  # noqa: PLC0415

    server = EmbeddedPostgres(folder / "postgres") if url is None else None
    watching = None
    try:
        if server is not None:
            await asyncio.to_thread(server.start)
            bring_up(server.url(), folder / KEY)
            watching = asyncio.create_task(_watch(server, on_death))
            yield server.url(), f"embedded PostgreSQL, {server.data}"
        elif url is not None:
            # Roles are the whole server's: on somebody else's we make none.
            with psycopg.connect(url, autocommit=True, connect_timeout=5) as connection:
                migrate(connection)
                make_keys(connection, folder / KEY)
            yield url, f"{url.rpartition('@')[2]}, where every function works as the one user given"
    except PostgresError as error:
        raise CannotStart(str(error)) from error
    except (MigrationError, RolesError, KeyUnavailable) as error:
        raise CannotStart(str(error)) from error
    except psycopg.Error as error:
        raise CannotStart(f"the database cannot be used: {' '.join(str(error).split())}") from error
    finally:
        if watching is not None:
            watching.cancel()
        if server is not None:
            await asyncio.to_thread(server.stop)


async def _watch(server: "EmbeddedPostgres", on_death: list[asyncio.Event]) -> None:
    while server.is_alive:  # noqa: ASYNC110 - nobody tells when a process ends that is not our child
        await asyncio.sleep(1)
    print("forbear: PostgreSQL has died; start `forbear up` again, the data is safe", file=sys.stderr, flush=True)
    for event in on_death:
        event.set()


@contextlib.asynccontextmanager
async def _log(folder: Path) -> AsyncIterator[IO[str]]:
    with (folder / "functions.log").open("a", encoding="utf-8", buffering=1) as file:
        yield file


@contextlib.asynccontextmanager
async def _stack(
    database: str, key: Path, ports: tuple[int, int], presets: Path | None, log: IO[str], *, own_users: bool
) -> AsyncIterator["LocalStack"]:
    """The local stack, running; its functions' output goes to the log, errors in a line each to the terminal."""
    from infra.local.deployment import CLAIMER, local_stack  # noqa: PLC0415 - help must answer at once
    from infra.local.serving import PortTaken  # noqa: PLC0415
    from infra.local.stack import Ports  # noqa: PLC0415

    told: set[tuple[str, str]] = set()

    def on_line(function: str, line: str) -> None:
        log.write(f"{function}: {line}\n")
        error = _error(line)
        if error is not None and (function, error) not in told:
            told.add((function, error))
            print(f"{function}: {error} (once; all of it is in {log.name})", file=sys.stderr, flush=True)

    environment = {} if presets is None else {"FORBEAR_PRESETS": str(presets)}
    stack = local_stack(
        database,
        key,
        own_users=own_users,
        ports=Ports(api=ports[0], replay=ports[1]),
        environment=environment,
        on_line=on_line,
    )
    try:
        await stack.start()
    except PortTaken as error:
        raise CannotStart(f"{error} (--port, --replay-port; 0 takes any)") from error
    try:
        yield stack
    finally:
        # The claimer works on until it is told: it settles what it has and leaves the rest for the next start.
        for pid in stack.functions.pids(CLAIMER):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        await stack.stop()


def _error(line: str) -> str | None:
    """What a line of a function's output says has gone wrong; None if nothing."""
    if line.startswith("Traceback"):
        return "it failed in an unforeseen way"
    try:
        entry = json.loads(line) if line.startswith("{") else {}
    except ValueError:
        return None
    return str(entry.get("message")) if entry.get("level") == "ERROR" else None


async def _demonstrate(stack: "LocalStack", stop: asyncio.Event, deadline: float | None, *, as_json: bool) -> int:
    """Run the demo until its end or a signal. Gives the exit code."""
    from infra.cli.showing import Showing  # noqa: PLC0415 - help must answer at once
    from infra.local.demo.receivers import SLOW_S, Receivers  # noqa: PLC0415
    from infra.local.demo.script import Demo  # noqa: PLC0415
    from infra.local.serving import Listener  # noqa: PLC0415

    showing = Showing(as_json=as_json)
    receivers = Receivers(on_receipt=showing.receipt)
    listener = Listener("127.0.0.1")
    await listener.start(receivers)
    assert stack.replay_url is not None  # noqa: S101 - our stack has one
    demo = Demo(stack.api_url, stack.replay_url, f"http://{listener.authority}", receivers, showing.say)
    course = asyncio.create_task(_course(demo, deadline, showing.say))
    interrupted = asyncio.create_task(stop.wait())
    try:
        async with showing.live(demo):
            await asyncio.wait({course, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        if not course.done():
            return 0
        promises = await course
        for promise in promises:
            line = f"  {'ok  ' if promise.held else 'FAIL'} {promise.text} ({promise.detail})"
            print(json.dumps(dataclasses.asdict(promise)) if as_json else line, flush=True)
        held = all(promise.held for promise in promises)
        print("every promise held" if held else "a promise did not hold", file=sys.stderr, flush=True)
        return 0 if held else 1
    finally:
        course.cancel()
        interrupted.cancel()
        await asyncio.gather(course, interrupted, return_exceptions=True)
        await demo.aclose()
        listener.stop_accepting()
        await listener.stop(SLOW_S + 1)  # its slowest answer may be on its way


async def _course(demo: "Demo", deadline: float | None, say: Callable[[str], None]) -> list["Promise"]:
    """The demo from its endpoints to its promises."""
    await demo.prepare()
    if deadline is None:
        await demo.stream(None)
        return []
    seconds = deadline - time.monotonic()
    await demo.stream(seconds * STREAM_SHARE)
    say("no more events; waiting for what is under way")
    await demo.repair_and_replay(time.monotonic() + seconds * 0.25)
    while time.monotonic() < deadline - SETTLE_S / 2 and not await demo.finished():  # noqa: ASYNC110 - over HTTP
        await asyncio.sleep(0.5)
    return await demo.promises()
