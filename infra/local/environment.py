"""One execution environment: a process that runs a runtime, and the Runtime API that it talks to.

Owns the process's life (start, initialise, time out, die, stop) and its output. Knows nothing of functions, concurrency
or reuse, and carries one invocation at a time.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

from infra.local.runtime_api import Invocation, Outcome, RuntimeApi, error_outcome

# A line of output longer than this is handed on in pieces, so that a process cannot fill our memory.
_MAX_LINE_BYTES = 64 * 1024


class Environment:
    """A process with module-level state of its own, as Lambda keeps it between invocations."""

    def __init__(
        self,
        *,
        host: str,
        command: Sequence[str],
        variables: Mapping[str, str],
        folder: Path,
        init_timeout_s: float,
        on_line: Callable[[str], None],
        on_exit: Callable[["Environment"], None],
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            host: The loopback address of the Runtime API.
            command: The runtime and its arguments.
            variables: The whole environment of the process, to which `AWS_LAMBDA_RUNTIME_API` is added.
            folder: Its working directory.
            init_timeout_s: How long it may take until it first asks for work, in seconds.
            on_line: Receives each line of standard output and error, without its line end.
            on_exit: Called once when the process has ended, for whatever reason.
        """
        self._command = command
        self._variables = variables
        self._folder = folder
        self._init_timeout_s = init_timeout_s
        self._on_line = on_line
        self._on_exit = on_exit
        self._api = RuntimeApi(host, self._start_clock)
        self._process: asyncio.SubprocessTransport | None = None
        self._starting = asyncio.Lock()
        self._stopped = False
        loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = loop.create_future()  # the process has ended
        self._closed: asyncio.Future[None] = loop.create_future()  # and its output, too
        self._clock: asyncio.TimerHandle | None = None
        self._reason: Outcome | None = None
        self._request_id = ""

    @property
    def ended(self) -> bool:
        """Whether the process has run and is gone."""
        return self._gone.done()

    @property
    def pid(self) -> int:
        """The process id; 0 before the process is started."""
        return 0 if self._process is None else self._process.get_pid()

    async def start(self) -> Outcome | None:
        """Start the process and wait until it has initialised.

        Returns:
            None if it is ready for work; otherwise why not, as the caller of the function should see it.
        """
        async with self._starting:
            if self._stopped:
                return self._exit_outcome()
            await self._api.start()
            # A session of its own: a Ctrl-C in the terminal must not reach it, the stack ends it in order.
            await asyncio.get_running_loop().subprocess_exec(
                lambda: _Output(self._on_line, self._started, self._exited, self._closed),
                *self._command,
                stdin=asyncio.subprocess.PIPE,  # ends when we do, and our runtime ends with it
                cwd=self._folder,
                env={**self._variables, "AWS_LAMBDA_RUNTIME_API": self._api.address},
                start_new_session=True,
            )
        with suppress(TimeoutError):
            async with asyncio.timeout(self._init_timeout_s):
                return await asyncio.shield(self._api.ready)
        return _timed_out("", self._init_timeout_s)

    async def run(self, invocation: Invocation) -> tuple[Outcome, bool]:
        """Have the runtime do one invocation.

        Args:
            invocation: What to do; its timeout is enforced by killing the process.

        Returns:
            How it ended, and whether the runtime had taken it at all: one that was never taken can safely be given to
            another environment.
        """
        self._request_id = invocation.request_id
        if self.ended:
            return self._exit_outcome(), False
        outcome = self._api.offer(invocation)
        try:
            return await outcome, self._clock is not None
        finally:
            if self._clock is not None:
                self._clock.cancel()
                self._clock = None

    async def stop(self, grace_s: float) -> None:
        """End the process, with SIGTERM and then SIGKILL, and close what belongs to it. Safe to call twice.

        Args:
            grace_s: Seconds between the two signals.
        """
        self._stopped = True
        async with self._starting:
            process = self._process
        if process is not None:
            self._signal(signal.SIGTERM)
            await asyncio.wait([self._gone], timeout=grace_s)
            self._signal(signal.SIGKILL)
            await self._gone
            # A process that it started may hold its output open: let the last lines come, but do not wait for that one.
            await asyncio.wait([self._closed], timeout=0.5)
            process.close()
        await self._api.stop()

    def _start_clock(self, invocation: Invocation) -> None:
        loop = asyncio.get_running_loop()
        self._clock = loop.call_later(invocation.timeout_s, self._time_out, invocation)

    def _time_out(self, invocation: Invocation) -> None:
        if not self._api.taken:
            return  # answered in the very moment in which its time ended
        # The caller's answer waits for the process to be gone: under a concurrency of one, no two may run at once.
        self._reason = _timed_out(invocation.request_id, invocation.timeout_s)
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and not self.ended:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    def _started(self, process: asyncio.SubprocessTransport) -> None:
        self._process = process

    def _exited(self) -> None:
        self._gone.set_result(None)
        outcome = self._reason or self._exit_outcome()
        if not self._api.ready.done():
            self._api.ready.set_result(outcome)
        self._api.settle(outcome)
        self._on_exit(self)

    def _exit_outcome(self) -> Outcome:
        code = None if self._process is None else self._process.get_returncode()
        if code:
            cause = f"exit status {code}" if code > 0 else f"signal: {signal.strsignal(-code) or -code}".lower()
            reason = f"Error: Runtime exited with error: {cause}"
        else:
            reason = "Error: Runtime exited without providing a reason"
        return error_outcome("Runtime.ExitError", f"RequestId: {self._request_id} {reason}")


def _timed_out(request_id: str, after_s: float) -> Outcome:
    message = f"RequestId: {request_id} Error: Task timed out after {after_s:.2f} seconds"
    return error_outcome("Sandbox.Timedout", message)


class _Output(asyncio.SubprocessProtocol):
    """Splits what a process writes into lines; reads always, so that the process never blocks on a full pipe."""

    def __init__(
        self,
        on_line: Callable[[str], None],
        on_start: Callable[[asyncio.SubprocessTransport], None],
        on_exit: Callable[[], None],
        closed: asyncio.Future[None],
    ) -> None:
        self._on_line = on_line
        self._on_start = on_start
        self._on_exit = on_exit
        self._closed = closed
        self._unfinished = {1: b"", 2: b""}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._on_start(cast("asyncio.SubprocessTransport", transport))

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        if isinstance(data, str):  # the base class allows for text; our pipes are opened as bytes
            data = data.encode()
        *lines, rest = (self._unfinished[fd] + data).split(b"\n")
        if len(rest) > _MAX_LINE_BYTES:
            lines.append(rest)
            rest = b""
        self._unfinished[fd] = rest
        for line in lines:
            self._on_line(line.decode(errors="replace").rstrip("\r"))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        del exc
        if rest := self._unfinished.get(fd):
            self._unfinished[fd] = b""
            self._on_line(rest.decode(errors="replace"))

    def process_exited(self) -> None:
        self._on_exit()

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if not self._closed.done():
            self._closed.set_result(None)
