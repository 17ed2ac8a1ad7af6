"""A function's execution environments: started on demand, kept warm, used again, bounded in number.

Owns the function's configuration, its concurrency and what an environment is given; one environment's life is
`environment`'s. Knows nothing of payloads, retries or who invokes.
"""

import asyncio
import os
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from infra.local.environment import Environment
from infra.local.errors import FunctionUnavailable, TooManyRequests
from infra.local.runtime_api import Invocation, Outcome, error_outcome

ACCOUNT_ID = "000000000000"
REGION = "us-east-1"

# Lambda gives the initialisation 10 s, and when that was not enough starts it over within the function's own timeout.
_INIT_S = 10.0
# Between SIGTERM and SIGKILL, when an environment is ended in order.
_TERMINATE_S = 2.0

_REPOSITORY = Path(__file__).parents[2]
# What an environment takes over from this process: without these a program does not even start on some systems.
_INHERITED = ("PATH", "TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH")

type LineSink = Callable[[str, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec:
    """How a function is configured.

    Attributes:
        name: Its name, unique within the stack.
        handler: `module.function`, importable from `folder`.
        timeout_s: How long one invocation may take, in seconds.
        memory_mb: What the function is told about its memory, in MB; not enforced.
        max_environments: Reserved concurrency: how many environments, and so invocations, there are at once.
        queue_s: How long a synchronous invocation waits for a free environment before it is refused, in seconds. 0 is
            what Lambda does at its limit; more stands in for the environments that Lambda would add where this machine
            has no room for them.
        environment: Environment variables of its own, over those of the stack.
        async_retries: How often an asynchronous invocation is tried again after an error of the function (0 to 2).
        max_event_age_s: After how long an asynchronous event is dropped, in seconds.
        folder: The code: working directory and first entry of the module path, as Lambda's task root.
        runtime: The module that is run with `-m` and speaks the Runtime API.
    """

    name: str
    handler: str
    timeout_s: float = 3.0
    memory_mb: int = 128
    max_environments: int = 10
    queue_s: float = 0.0
    environment: Mapping[str, str] = field(default_factory=dict)
    async_retries: int = 2
    max_event_age_s: float = 6 * 3_600.0
    folder: Path = _REPOSITORY / "functions"
    runtime: str = "infra.local.bootstrap"

    @property
    def arn(self) -> str:
        """The function's unqualified ARN."""
        return f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:function:{self.name}"


class Pool:
    """The environments of one function. An invocation occupies one of them, from its start to its outcome."""

    def __init__(
        self, spec: FunctionSpec, *, host: str, environment: Mapping[str, str], on_line: LineSink, idle_s: float
    ) -> None:
        """Start empty.

        Args:
            spec: The function.
            host: The loopback address of the environments' Runtime APIs.
            environment: Variables that every function of the stack gets.
            on_line: Receives the function's name and one line of its output.
            idle_s: After how long without work an environment is ended, in seconds.
        """
        self.spec = spec
        self.stopping = False
        self._host = host
        self._variables = {**environment, **spec.environment, **_reserved_variables(spec)}
        self._on_line = on_line
        self._idle_s = idle_s
        self._environments: dict[Environment, asyncio.TimerHandle | None] = {}  # with its reaper while it is idle
        self._idle: list[Environment] = []
        self._active = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._endings: set[asyncio.Task[None]] = set()

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the environments that are alive, the longest running first."""
        return tuple(environment.pid for environment in self._environments if environment.pid)

    async def run(self, invocation: Invocation, *, wait_until: float) -> Outcome:
        """Run an invocation in a warm environment, the one used last if there are several, or in a new one.

        Args:
            invocation: What to run.
            wait_until: Until when to wait for room, on the event loop's clock; now or earlier to be refused at once.

        Returns:
            The outcome; an environment that cannot initialise, dies or takes too long makes it an error.

        Raises:
            TooManyRequests: If all environments are and stay busy.
            FunctionUnavailable: If the stack is stopping.
        """
        await self._enter(wait_until)
        # As the function is configured now: a retry may have waited while that was changed.
        invocation = replace(invocation, timeout_s=self.spec.timeout_s)
        try:
            while self._idle:
                environment = self._idle.pop()
                self._disarm(environment)
                outcome, taken = await environment.run(invocation)
                self._release(environment)
                if taken:
                    return outcome
                # It died idle and had not been noticed: the function has seen nothing, another environment may.
            return await self._run_cold(invocation)
        finally:
            self._leave()

    async def stop(self, grace_s: float) -> None:
        """Refuse new work, let what runs end, and end all environments.

        Args:
            grace_s: How long running invocations may still take, in seconds.
        """
        self.stopping = True
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(FunctionUnavailable(self.spec.name))
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._quiet.wait()
        for environment in list(self._environments):
            self._end(environment)
        await asyncio.gather(*self._endings)

    async def _enter(self, wait_until: float) -> None:
        if self.stopping:
            raise FunctionUnavailable(self.spec.name)
        if self._active < self.spec.max_environments:
            self._active += 1
            self._quiet.clear()
            return
        loop = asyncio.get_running_loop()
        if wait_until <= loop.time():
            raise TooManyRequests
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout_at(wait_until):
                await turn
        except TimeoutError:
            if turn.cancelled() or turn.exception() is not None:
                raise TooManyRequests from None
            # The place came in the very moment in which the waiting ended: it is ours.

    def _leave(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)  # the place goes straight to the one who waited longest
                return
        self._active -= 1
        if not self._active:
            self._quiet.set()

    async def _run_cold(self, invocation: Invocation) -> Outcome:
        if self.stopping:
            raise FunctionUnavailable(self.spec.name)
        try:
            environment = self._create()
        except OSError as error:
            return error_outcome("ServiceException", f"No environment can be made: {error}")
        try:
            failure = await environment.start()
        except OSError as error:
            failure = error_outcome("ServiceException", f"The environment cannot be started: {error}")
        if failure is not None:
            self._end(environment)
            return failure
        outcome, _ = await environment.run(invocation)
        self._release(environment)
        return outcome

    def _create(self) -> Environment:
        environment = Environment(
            host=self._host,
            command=(sys.executable, "-m", self.spec.runtime, self.spec.handler),
            variables=self._variables,
            folder=self.spec.folder,
            init_timeout_s=_INIT_S + self.spec.timeout_s,
            on_line=lambda line: self._on_line(self.spec.name, line),
            on_exit=self._end,
        )
        self._environments[environment] = None
        return environment

    def _release(self, environment: Environment) -> None:
        if not environment.ended and environment in self._environments:
            reaper = asyncio.get_running_loop().call_later(self._idle_s, self._end, environment)
            self._environments[environment] = reaper
            self._idle.append(environment)

    def _disarm(self, environment: Environment) -> None:
        reaper = self._environments.get(environment)
        if reaper is not None:
            reaper.cancel()
            self._environments[environment] = None

    def _end(self, environment: Environment) -> None:
        """Take an environment out of use; it ends in the background if it has not ended yet."""
        if environment not in self._environments:
            return
        self._disarm(environment)
        del self._environments[environment]
        if environment in self._idle:
            self._idle.remove(environment)
        ending = asyncio.create_task(environment.stop(_TERMINATE_S))
        self._endings.add(ending)
        ending.add_done_callback(self._endings.discard)


def _reserved_variables(spec: FunctionSpec) -> dict[str, str]:
    """What Lambda sets ("Defined runtime environment variables", AWS Lambda Developer Guide), bar the Runtime API."""
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    return {
        **inherited,
        "_HANDLER": spec.handler,
        "AWS_ACCESS_KEY_ID": "ASIALOCAL00000000000",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_SESSION_TOKEN": "local",
        # Whatever AWS configuration the user of this machine has must not reach the functions.
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EXECUTION_ENV": f"AWS_Lambda_python{sys.version_info.major}.{sys.version_info.minor}",
        "AWS_LAMBDA_FUNCTION_NAME": spec.name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(spec.memory_mb),
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{spec.name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": "local/[$LATEST]",
        "LAMBDA_TASK_ROOT": str(spec.folder),
        "LANG": "en_US.UTF-8",
        "PYTHONPATH": os.pathsep.join((str(spec.folder), str(_REPOSITORY))),
        "TZ": ":UTC",
    }
