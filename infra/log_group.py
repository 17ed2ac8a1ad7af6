"""Log groups that end: every log has a retention and goes with its stack."""

from __future__ import annotations

from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct


def log_group(
    scope: Construct, construct_id: str, *, retention_days: int, name: str | None = None, key: kms.IKey | None = None
) -> logs.LogGroup:
    """Make a log group.

    Args:
        scope: The construct that it belongs to.
        construct_id: Its name there.
        retention_days: How long lines are kept, one of CloudWatch's numbers of days.
        name: Its name, where a service writes to a name of its own choice; otherwise CloudFormation's.
        key: The key that encrypts it, if not CloudWatch's own.
    """
    group = logs.LogGroup(
        scope, construct_id, log_group_name=name, encryption_key=key, removal_policy=cdk.RemovalPolicy.DESTROY
    )
    cast("logs.CfnLogGroup", group.node.default_child).retention_in_days = retention_days
    return group
