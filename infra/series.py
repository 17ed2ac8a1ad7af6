"""Metrics as CloudWatch's: Forbear's own by the names that the functions write, and AWS's that have no method."""

from __future__ import annotations

from collections.abc import Iterator

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ec2 as ec2

from forbear.metrics import Metric
from infra.config import StackConfig
from infra.network import Network

MINUTE = cdk.Duration.minutes(1)
FIVE_MINUTES = cdk.Duration.minutes(5)


def namespace(config: StackConfig) -> str:
    """The CloudWatch namespace of a stack's own metrics."""
    return f"Forbear/{config.stack_name}"


def own(
    config: StackConfig,
    metric: Metric,
    statistic: str,
    *,
    value: str = "",
    label: str | None = None,
    period: cdk.Duration = FIVE_MINUTES,
) -> cloudwatch.Metric:
    """A metric that the functions write.

    Args:
        config: Of which stack.
        metric: Which.
        statistic: CloudWatch's name of it, such as Sum or p95.
        value: Which value of the metric's dimension, if it has one.
        label: What a graph calls it.
        period: How much time a point of it covers.
    """
    return cloudwatch.Metric(
        namespace=namespace(config),
        metric_name=metric.name,
        dimensions_map={metric.dimension: value} if metric.dimension else None,
        statistic=statistic,
        label=label,
        period=period,
    )


def aws(
    service: str,
    name: str,
    statistic: str,
    *,
    label: str | None = None,
    period: cdk.Duration = FIVE_MINUTES,
    **dimensions: str,
) -> cloudwatch.Metric:
    """A metric that AWS writes.

    Args:
        service: The namespace without `AWS/`.
        name: Its name.
        statistic: CloudWatch's name of it.
        label: What a graph calls it.
        period: How much time a point of it covers.
        dimensions: By name.
    """
    return cloudwatch.Metric(
        namespace=f"AWS/{service}",
        metric_name=name,
        dimensions_map=dimensions,
        statistic=statistic,
        label=label,
        period=period,
    )


def nat_gateway_ids(network: Network) -> Iterator[str]:
    """The NAT gateways' ids, if the way out is by gateways."""
    for node in network.vpc.node.find_all():
        if isinstance(node, ec2.CfnNatGateway):
            yield node.attr_nat_gateway_id
