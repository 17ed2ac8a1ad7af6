"""The whole stack on one machine, in one event loop: functions, API, function URL, Scheduler and AWS endpoints.

Owns putting the parts together, and starting and stopping them in order. What is deployed (which functions, routes and
schedules) is the caller's to say.
"""

import logging
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass

from infra.local.aws_api import aws_api
from infra.local.function_url import FunctionUrl
from infra.local.functions import Functions
from infra.local.gateway import INTEGRATION_TIMEOUT_S, Gateway, Route
from infra.local.pool import FunctionSpec, LineSink
from infra.local.scheduler import Schedule, Scheduler
from infra.local.serving import Listener

# How long answers may still be on their way when all work has ended.
_LAST_ANSWERS_S = 1.0

output_logger = logging.getLogger("infra.local.output")


@dataclass(frozen=True, slots=True)
class Ports:
    """Where to listen; 0 is any free port.

    Attributes:
        api: The HTTP API.
        replay: The function URL.
        aws: The AWS endpoints.
    """

    api: int = 0
    replay: int = 0
    aws: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long things last, in seconds. The defaults are AWS's; tests shorten them.

    Attributes:
        minute_s: A minute of a schedule's rate.
        retry_delays_s: The delays before the retries of an asynchronous event.
        idle_s: After how long without work an environment is ended.
        integration_timeout_s: How long the API waits for a function.
        grace_s: How long running invocations may still take when the stack is stopped.
    """

    minute_s: float = 60.0
    retry_delays_s: tuple[float, ...] = (60.0, 120.0)
    idle_s: float = 600.0
    integration_timeout_s: float = INTEGRATION_TIMEOUT_S
    grace_s: float = 5.0


def log_line(function: str, line: str) -> None:
    """Log a line of a function's output; what is done with output if nobody asks for it.

    Args:
        function: The function's name.
        line: The line.
    """
    output_logger.info("%s: %s", function, line)


class LocalStack:
    """The stack. Loopback only; everything it starts ends with `stop`.

    Attributes:
        functions: To invoke directly, and for the process ids of environments (`functions.pids(name)`).
        scheduler: To read and change schedules directly.
        api_url: Where the HTTP API is, without a slash at the end.
        replay_url: Where the function URL is; None if no function has one.
        aws_url: Where the AWS endpoints are.
    """

    functions: Functions
    scheduler: Scheduler
    api_url: str
    replay_url: str | None
    aws_url: str

    def __init__(
        self,
        functions: Iterable[FunctionSpec],
        routes: Iterable[Route],
        *,
        replay_function: str | None = None,
        schedules: Iterable[Schedule] = (),
        environment: Mapping[str, str] | None = None,
        host: str = "127.0.0.1",
        ports: Ports = Ports(),
        timing: Timing = Timing(),
        on_line: LineSink = log_line,
    ) -> None:
        """Declare the stack; nothing is started.

        Args:
            functions: The functions.
            routes: The routes of the HTTP API.
            replay_function: The function that has a function URL.
            schedules: The schedules to begin with.
            environment: Variables that every function gets, beside the addresses of the AWS endpoints.
            host: A literal loopback address.
            ports: The ports.
            timing: Durations.
            on_line: Receives a function's name and a line of its output; must not block.
        """
        self._specs = tuple(functions)
        self._routes = tuple(routes)
        self._replay_function = replay_function
        self._schedules = tuple(schedules)
        self._environment = dict(environment or {})
        self._host = host
        self._ports = ports
        self._timing = timing
        self._on_line = on_line
        self._running = AsyncExitStack()
        self.replay_url = None

    async def start(self) -> None:
        """Start everything; no function runs until it is invoked or its schedule fires.

        Raises:
            PortTaken: If a port is taken; nothing is left running then.
            AwsError: If a schedule cannot be, or a route names no function; likewise.
        """
        timing = self._timing
        async with AsyncExitStack() as running:  # undone in reverse order: here on a failure, later by `stop`
            aws = self._listen(self._ports.aws, running)
            api = self._listen(self._ports.api, running)
            self.aws_url = f"http://{aws.authority}"
            self.api_url = f"http://{api.authority}"
            replay = None
            if self._replay_function is not None:
                replay = self._listen(self._ports.replay, running)
                self.replay_url = f"http://{replay.authority}"
            self.functions = Functions(
                self._specs,
                host=self._host,
                environment={
                    **self._environment,
                    "AWS_ENDPOINT_URL_LAMBDA": self.aws_url,
                    "AWS_ENDPOINT_URL_SCHEDULER": self.aws_url,
                },
                on_line=self._on_line,
                idle_s=timing.idle_s,
                retry_delays_s=timing.retry_delays_s,
            )
            self.scheduler = Scheduler(self.functions, minute_s=timing.minute_s)
            for route in self._routes:
                self.functions.spec(route.function)
            await aws.start(aws_api(self.functions, self.scheduler))
            gateway = Gateway(self._routes, self.functions, integration_timeout_s=timing.integration_timeout_s)
            await api.start(gateway)
            # While running invocations end, callers still get their answers and the functions still reach AWS.
            running.push_async_callback(self.functions.stop, timing.grace_s)
            running.callback(api.stop_accepting)
            if replay is not None and self._replay_function is not None:
                await replay.start(FunctionUrl(self._replay_function, self.functions))
                running.callback(replay.stop_accepting)
            running.callback(self.scheduler.stop)
            for schedule in self._schedules:
                self.scheduler.create(schedule)
            self._running = running.pop_all()

    async def stop(self) -> None:
        """Accept nothing more, let running invocations end within the grace time, end all processes; twice is fine."""
        await self._running.aclose()

    def _listen(self, port: int, running: AsyncExitStack) -> Listener:
        listener = Listener(self._host, port)
        running.push_async_callback(listener.stop, _LAST_ANSWERS_S)
        return listener
