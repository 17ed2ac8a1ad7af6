"""Forbear itself on one machine: which functions, routes and schedules the local stack has.

Owns what the CDK stack says for AWS: names, limits and settings of the functions.
"""

from forbear.routes import ROUTES
from infra.local.gateway import Route
from infra.local.pool import FunctionSpec, LineSink
from infra.local.scheduler import Schedule
from infra.local.stack import LocalStack, Ports, Timing, log_line

CLAIMER = "claimer"
TICK = "forbear-tick"

# Environments a function may have here; a call that finds all of them busy waits, as more of them would need cores.
FUNCTIONS = (
    FunctionSpec(name="ingest", handler="ingest.handler", timeout_s=29, memory_mb=512, max_environments=4, queue_s=29),
    FunctionSpec(name="manage", handler="manage.handler", timeout_s=29, memory_mb=512, max_environments=2, queue_s=29),
    FunctionSpec(name="replay", handler="replay.handler", timeout_s=60, memory_mb=512, max_environments=1, queue_s=60),
    FunctionSpec(name=CLAIMER, handler="claimer.handler", timeout_s=900, memory_mb=1769, max_environments=4),
)
SCHEDULES = (
    Schedule(name=TICK, expression="rate(1 minute)", function=CLAIMER, input='{"forbear": "tick"}'),
    Schedule(name="forbear-sweep", expression="rate(6 hours)", function=CLAIMER, input='{"forbear": "tick"}'),
)


def local_stack(
    database_url: str,
    *,
    ports: Ports | None = None,
    timing: Timing | None = None,
    environment: dict[str, str] | None = None,
    on_line: LineSink = log_line,
) -> LocalStack:
    """Forbear's local stack on a migrated database; plain http and loopback receivers are allowed.

    Args:
        database_url: PostgreSQL connection URL.
        ports: where to listen.
        timing: how long things last.
        environment: settings that differ from these, as environment variables.
        on_line: receives the functions' output.
    """
    return LocalStack(
        FUNCTIONS,
        [Route(route.method, route.path, route.function) for route in ROUTES],
        replay_function="replay",
        schedules=SCHEDULES,
        environment={
            "FORBEAR_DATABASE_URL": database_url,
            "FORBEAR_ALLOW_HTTP": "true",
            "FORBEAR_ALLOW_NETWORKS": "127.0.0.0/8,::1/128",
            "FORBEAR_CLAIMER_FUNCTION": CLAIMER,
            "FORBEAR_SCHEDULE_NAME": TICK,
            **(environment or {}),
        },
        ports=ports or Ports(),
        timing=timing or Timing(),
        on_line=on_line,
    )
