"""What tells people how Forbear does: a dashboard, alarms, and the topic that the alarms go to.

Owns the topic and who is told. Which metrics there are stands in `forbear.metrics`; what is shown of them in
`infra.dashboard`, and what alarms in `infra.alarms`.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from constructs import Construct

from infra.alarms import Alarms
from infra.api import Api
from infra.config import StackConfig
from infra.dashboard import dashboard
from infra.database import Database
from infra.functions import Functions
from infra.network import Network
from infra.schedule import Schedules


class Observability(Construct):
    """Dashboard, alarms and their topic.

    Attributes:
        topic: Where alarms go.
        alarms: All of them.
        dashboard: The dashboard, if there is one.
        dashboard_url: Its address.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: StackConfig,
        network: Network,
        database: Database,
        functions: Functions,
        api: Api,
        schedules: Schedules,
    ) -> None:
        """Build them.

        Args:
            scope: The stack.
            construct_id: The construct's name in it.
            config: What was chosen.
            network: Whose way out is watched.
            database: Whose capacity is watched.
            functions: Whose metrics are shown, and whose failed calls alarm.
            api: Whose answers are counted.
            schedules: Whose ticks must arrive.
        """
        super().__init__(scope, construct_id)
        self.topic = self._topic(config, functions.key)
        self.alarms: list[cloudwatch.Alarm] = Alarms(
            self,
            "Alarms",
            config=config,
            network=network,
            database=database,
            functions=functions,
            api=api,
            schedules=schedules,
            topic=self.topic,
        ).all
        self.dashboard: cloudwatch.Dashboard | None = None
        self.dashboard_url: str | None = None
        if config.observability.dashboard:
            self.dashboard = dashboard(
                self,
                "Dashboard",
                config=config,
                network=network,
                database=database,
                functions=functions,
                api=api,
                alarms=self.alarms,
            )
            region = cdk.Stack.of(self).region
            self.dashboard_url = (
                f"https://{region}.console.aws.amazon.com/cloudwatch/home?region={region}"
                f"#dashboards/dashboard/{self.dashboard.dashboard_name}"
            )

    def _topic(self, config: StackConfig, key: kms.Key | None) -> sns.Topic:
        """The topic, which CloudWatch may publish this account's alarms to, and nobody else.

        It is encrypted by the stack's own key, where it has one. Without one it is not encrypted at rest by KMS: alarms
        cannot publish to a topic under the AWS-managed key, whose policy admits no CloudWatch and cannot be changed
        (AWS re:Post, "Why didn't I receive an SNS notification for my CloudWatch alarm trigger?"), and an alarm's text
        holds numbers and names of resources only.
        """
        stack = cdk.Stack.of(self)
        topic = sns.Topic(
            self, "Topic", display_name=f"Forbear ({config.stack_name})", master_key=key, enforce_ssl=True
        )
        alarms = stack.format_arn(
            service="cloudwatch", resource="alarm", resource_name="*", arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
        )
        here = {"StringEquals": {"aws:SourceAccount": stack.account}, "ArnLike": {"aws:SourceArn": alarms}}
        by_cloudwatch = [iam.ServicePrincipal("cloudwatch.amazonaws.com")]
        # A policy of its own takes the place of the default one, which lets the account's alarms in.
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                actions=["sns:Publish"], resources=[topic.topic_arn], principals=by_cloudwatch, conditions=here
            )
        )
        if key is not None:
            key.add_to_resource_policy(
                iam.PolicyStatement(
                    actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                    resources=["*"],  # this key: the policy is its own
                    principals=by_cloudwatch,
                    conditions=here,
                )
            )
        if config.observability.alarm_email is not None:
            email = topic.add_subscription(subscriptions.EmailSubscription(config.observability.alarm_email))
            cdk.Validations.of(email).acknowledge(
                cdk.Acknowledgment(
                    id="Serverless-SNSRedrivePolicy",
                    reason="SNS repeats an e-mail for hours; the alarm's state and history stay in CloudWatch.",
                )
            )
        return topic
