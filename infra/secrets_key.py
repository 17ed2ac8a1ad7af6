"""The KMS key that wraps the data keys in the database: the stack's own, or one that a snapshot brought along.

Owns how long the key lives, and that a function gets no more of it than its purposes. What is sealed with the data
keys, and how, is `forbear.vault`'s affair.
"""

from __future__ import annotations

from typing import Final

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from forbear.vault import Purpose
from infra.config import StackConfig
from infra.execution_role import allow

PURPOSE: Final = "kms:EncryptionContext:forbear"
"""The condition key that holds what a data key is for. KMS binds a wrapped key to its context, and asks for the same
to unwrap it (AWS KMS developer guide, "Encryption context" and "kms:EncryptionContext:context-key")."""


class SecretsKey(Construct):
    """The key, and who may do what with it.

    Attributes:
        arn: The key's ARN.
    """

    def __init__(self, scope: Construct, construct_id: str, *, config: StackConfig) -> None:
        """Make the key, unless one is named.

        Args:
            scope: The stack.
            construct_id: The construct's name in it.
            config: What was chosen.
        """
        super().__init__(scope, construct_id)
        self.arn = config.database.secrets_key or self._made(config).key_arn

    def let_unwrap(self, grantee: iam.IGrantable, *purposes: Purpose) -> None:
        """Let a function use the data keys of these purposes."""
        self._allow(grantee, "kms:Decrypt", purposes)

    def let_make(self, grantee: iam.IGrantable, *purposes: Purpose) -> None:
        """Let a function have data keys made for these purposes, which it never sees."""
        self._allow(grantee, "kms:GenerateDataKeyWithoutPlaintext", purposes)

    def _allow(self, grantee: iam.IGrantable, action: str, purposes: tuple[Purpose, ...]) -> None:
        # A request without the context has no such key, and StringEquals does not hold then.
        values = [purpose.value for purpose in purposes]
        allow(grantee, action, self.arn, conditions={"StringEquals": {PURPOSE: values}})

    def _made(self, config: StackConfig) -> kms.Key:
        return kms.Key(
            self,
            "Key",
            description=f"{config.stack_name}: signing secrets, headers and API keys in the database",
            enable_key_rotation=True,
            # It lives as long as the last copy of what it protects: a snapshot without it has no secret that can be
            # used. Where none is left behind, the time in which a deletion can be taken back is as long as it can be.
            removal_policy=(cdk.RemovalPolicy.RETAIN if config.database.final_snapshot else cdk.RemovalPolicy.DESTROY),
            pending_window=cdk.Duration.days(30),
        )
