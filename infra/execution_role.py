"""What every function may do: write its log, join the network, read its settings. Whatever else is added by its owner.

Owns the least that a role of a function needs. Uses no policy of AWS's own: those allow the same on everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from constructs import Construct

# What Lambda does under a function's role to join it to the VPC: AWSLambdaVPCAccessExecutionRole, without its logs.
_NETWORKING: Final = (
    "ec2:AssignPrivateIpAddresses",
    "ec2:CreateNetworkInterface",
    "ec2:DeleteNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:UnassignPrivateIpAddresses",
)


def execution_role(
    scope: Construct, construct_id: str, *, about: str, log: logs.ILogGroup, key: kms.IKey | None
) -> iam.Role:
    """Make the role of a function in the VPC.

    Args:
        scope: The construct that it belongs to.
        construct_id: Its name there.
        about: What it is for.
        log: The function's log group.
        key: What encrypts the function's settings, if not Lambda's own key.
    """
    role = iam.Role(
        scope, construct_id, assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=f"Forbear: {about}"
    )
    # CloudFormation makes the group, with its retention; nobody may make another.
    allow(role, ("logs:CreateLogStream", "logs:PutLogEvents"), log.log_group_arn)
    # The calls name no interface, for it does not exist yet. Lambda makes them before the code runs; what the code
    # calls carries the function's ARN, by which it is denied to it (AWS Lambda developer guide, "Giving Lambda
    # functions access to resources in an Amazon VPC").
    allow(role, _NETWORKING, "*")
    role.add_to_policy(
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=["ec2:*"],
            resources=["*"],
            conditions={"Null": {"lambda:SourceFunctionArn": "false"}},
        )
    )
    cdk.Validations.of(role).acknowledge(
        cdk.Acknowledgment(
            id="AwsSolutions-IAM5[Resource::*]",
            reason="Joining a function to the VPC names no resource, nor does writing to X-Ray; the function's code is "
            "denied the former.",
        )
    )
    if key:
        key.grant_decrypt(role)
    return role


def allow(
    grantee: iam.IGrantable,
    actions: str | Sequence[str],
    resource: str,
    *,
    conditions: Mapping[str, Any] | None = None,
) -> None:
    """Let a function or a role do something, to exactly one resource.

    Args:
        grantee: The function or the role.
        actions: The action, or several.
        resource: The resource's ARN.
        conditions: Under which it may, as IAM writes them.
    """
    statement = iam.PolicyStatement(
        actions=[actions] if isinstance(actions, str) else list(actions), resources=[resource], conditions=conditions
    )
    grantee.grant_principal.add_to_principal_policy(statement)
