"""The dashboard: everything that the functions measure, what AWS measures of them, and what drives the bill."""

from __future__ import annotations

from collections.abc import Sequence

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from forbear import metrics
from forbear.metrics import Metric
from infra.api import Api
from infra.config import StackConfig
from infra.database import Database
from infra.functions import Functions
from infra.network import Network
from infra.series import FIVE_MINUTES, MINUTE, aws, nat_gateway_ids, own

_HOUR = cdk.Duration.hours(1)


def dashboard(
    scope: Construct,
    construct_id: str,
    *,
    config: StackConfig,
    network: Network,
    database: Database,
    functions: Functions,
    api: Api,
    alarms: Sequence[cloudwatch.Alarm],
) -> cloudwatch.Dashboard:
    """Make the dashboard, in the order in which one looks: what alarms, what goes in and out, why, and what it costs.

    It has no name of ours: names of dashboards are the account's, not the region's.

    Args:
        scope: The construct that it belongs to.
        construct_id: Its name there.
        config: What was chosen.
        network: The way out.
        database: The database.
        functions: The functions.
        api: The API.
        alarms: What stands on top.
    """
    return cloudwatch.Dashboard(
        scope,
        construct_id,
        default_interval=cdk.Duration.hours(3),
        widgets=[
            [cloudwatch.AlarmStatusWidget(title=f"Forbear ({config.stack_name})", alarms=alarms, width=24, height=3)],
            _traffic(config),
            _waiting(config),
            _database(config, database),
            _functions(functions, api),
            _costs(config, network, database, functions),
        ],
    )


def _traffic(config: StackConfig) -> list[cloudwatch.IWidget]:
    return [
        _graph(
            "Events in",
            _sum(config, metrics.EVENTS, "events"),
            _sum(config, metrics.DUPLICATES, "of these, repeats"),
            _sum(config, metrics.DELIVERIES, "deliveries made"),
        ),
        _graph("Attempts by outcome", *_by_value(config, metrics.ATTEMPTS), stacked=True),
        _graph("Deliveries that ended", *_by_value(config, metrics.FINAL_STATUS)),
        _graph("Time to success (s; sampled)", *_percentiles(config, metrics.TIME_TO_SUCCESS, "p50", "p95", "p99")),
    ]


def _waiting(config: StackConfig) -> list[cloudwatch.IWidget]:
    return [
        _graph(
            "Backlog (estimate), breakers not closed",
            _most(config, metrics.BACKLOG, "unfinished deliveries"),
            right=[_most(config, metrics.BREAKERS_OPEN, "breakers not closed")],
        ),
        _graph(
            "Oldest (s)",
            _most(config, metrics.OLDEST_READY, "ready lane waits"),
            _most(config, metrics.OLDEST_LEASE, "lease"),
            _most(config, metrics.OLDEST_SNAPSHOT, "database snapshot"),
        ),
        _graph("Retry delay (s; sampled)", *_percentiles(config, metrics.RETRY_DELAY, "p50", "p95")),
        _graph(
            "Claimers and waking",
            _most(config, metrics.CLAIMERS_AWAKE, "claimers awake"),
            right=[
                _sum(config, metrics.WAKE_CALLS_FAILED, "wake calls failed"),
                _sum(config, metrics.SCHEDULE_OFF, "schedule off with work"),
            ],
        ),
    ]


def _database(config: StackConfig, database: Database) -> list[cloudwatch.IWidget]:
    cluster = database.cluster
    return [
        _graph("Claim (ms; sampled)", *_percentiles(config, metrics.CLAIM_LATENCY, "p50", "p99")),
        _graph("Settle (ms; sampled)", *_percentiles(config, metrics.SETTLE_LATENCY, "p50", "p99")),
        _graph(
            "Database capacity",
            cluster.metric_serverless_database_capacity(label="ACU", statistic="Average", period=MINUTE),
            right=[cluster.metric_acu_utilization(label="% of the most", statistic="Average", period=MINUTE)],
        ),
        _graph(
            "Database connections",
            cluster.metric_database_connections(label="connections", statistic="Maximum", period=MINUTE),
        ),
    ]


def _functions(functions: Functions, api: Api) -> list[cloudwatch.IWidget]:
    named = _named(functions)
    return [
        _graph(
            "Function errors and throttles",
            *[each.metric_errors(label=name, period=FIVE_MINUTES) for name, each in named.items()],
            right=[
                each.metric_throttles(label=f"{name} throttled", period=FIVE_MINUTES) for name, each in named.items()
            ],
        ),
        _graph(
            "Function duration, p95 (ms), and concurrency",
            *[each.metric_duration(label=name, statistic="p95", period=FIVE_MINUTES) for name, each in named.items()],
            right=[
                aws(
                    "Lambda",
                    "ConcurrentExecutions",
                    "Maximum",
                    label=f"{name} at once",
                    FunctionName=each.function_name,
                )
                for name, each in named.items()
                if name in {"ingest", "claimer"}
            ],
        ),
        _graph(
            "API answers",
            *[
                metric
                for name, each in api.all.items()
                for metric in (
                    each.metric_count(label=f"{name} requests".strip(), statistic="Sum", period=FIVE_MINUTES),
                    each.metric_client_error(label=f"{name} 4xx".strip(), statistic="Sum", period=FIVE_MINUTES),
                    each.metric_server_error(label=f"{name} 5xx".strip(), statistic="Sum", period=FIVE_MINUTES),
                )
            ],
        ),
        _graph(
            "API latency (ms)",
            *[
                each.metric_latency(label=f"{name} {statistic}".strip(), statistic=statistic, period=FIVE_MINUTES)
                for name, each in api.all.items()
                for statistic in ("p50", "p99")
            ],
        ),
    ]


def _costs(config: StackConfig, network: Network, database: Database, functions: Functions) -> list[cloudwatch.IWidget]:
    named = _named(functions)
    memory = config.functions.memory_mb
    through = [
        *(
            aws("EC2", "NetworkOut", "Sum", label="NAT instance", period=_HOUR, InstanceId=each)
            for each in network.nat_instance_ids
        ),
        *(
            aws("NATGateway", name, "Sum", label=f"NAT gateway {number}, {way}", period=_HOUR, NatGatewayId=each)
            for number, each in enumerate(nat_gateway_ids(network), 1)
            for name, way in (("BytesOutToDestination", "out"), ("BytesInFromDestination", "in"))
        ),
    ]
    return [
        _graph(
            "Cost: functions, about (GB-s an hour, without start-up)",
            *[
                cloudwatch.MathExpression(
                    expression=f"{name} / 1000 * {getattr(memory, name) / 1024:g}",
                    label=name,
                    using_metrics={name: each.metric_duration(statistic="Sum", period=_HOUR)},
                    period=_HOUR,
                )
                for name, each in named.items()
            ],
            stacked=True,
        ),
        _graph(
            "Cost: database (ACU, an hour's average)",
            database.cluster.metric_serverless_database_capacity(label="ACU", statistic="Average", period=_HOUR),
        ),
        _graph("Cost: NAT (bytes an hour)", *through, stacked=True),
        _graph(
            "Cost: logs (bytes an hour)",
            *[
                aws(
                    "Logs",
                    "IncomingBytes",
                    "Sum",
                    label=name,
                    period=_HOUR,
                    LogGroupName=each.log_group.log_group_name,
                )
                for name, each in named.items()
            ],
            stacked=True,
        ),
    ]


def _named(functions: Functions) -> dict[str, lambda_.Function]:
    return {
        "ingest": functions.ingest,
        "manage": functions.manage,
        "replay": functions.replay,
        "claimer": functions.claimer,
        "maintain": functions.maintain,
        "migrate": functions.migrate,
    }


def _sum(config: StackConfig, metric: Metric, label: str) -> cloudwatch.IMetric:
    return own(config, metric, "Sum", label=label, period=MINUTE)


def _most(config: StackConfig, metric: Metric, label: str) -> cloudwatch.IMetric:
    return own(config, metric, "Maximum", label=label, period=MINUTE)


def _by_value(config: StackConfig, metric: Metric) -> list[cloudwatch.IMetric]:
    return [own(config, metric, "Sum", value=value, label=value, period=MINUTE) for value in metric.values]


def _percentiles(config: StackConfig, metric: Metric, *statistics: str) -> list[cloudwatch.IMetric]:
    return [own(config, metric, statistic, label=statistic) for statistic in statistics]


def _graph(
    title: str, *left: cloudwatch.IMetric, right: Sequence[cloudwatch.IMetric] = (), stacked: bool = False
) -> cloudwatch.GraphWidget:
    axis = cloudwatch.YAxisProps(min=0, show_units=False)
    return cloudwatch.GraphWidget(
        title=title,
        left=list(left),
        right=list(right) or None,
        left_y_axis=axis,
        right_y_axis=axis if right else None,
        stacked=stacked,
        width=6,
        height=6,
    )
