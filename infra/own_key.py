"""The stack's own key for what the functions leave behind: their settings, logs and failed calls.

Owns that key's policy. What it encrypts is chosen where that is made.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct


def own_key(scope: Construct, construct_id: str, *, about: str) -> kms.Key:
    """Make a key that CloudWatch may use for the log groups of this account and region.

    Args:
        scope: The construct that it belongs to.
        construct_id: Its name there.
        about: What it is for.
    """
    key = kms.Key(
        scope,
        construct_id,
        description=about,
        enable_key_rotation=True,
        # Lines of log and failed calls from before can be read by it only, also when the stack has no key any more.
        removal_policy=cdk.RemovalPolicy.RETAIN,
    )
    stack = cdk.Stack.of(scope)
    groups = stack.format_arn(
        service="logs", resource="log-group", resource_name="*", arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
    )
    key.add_to_resource_policy(
        iam.PolicyStatement(
            principals=[iam.ServicePrincipal(f"logs.{stack.region}.amazonaws.com")],
            actions=["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey*", "kms:ReEncrypt*"],
            resources=["*"],  # this key: the policy is its own
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        )
    )
    return key
