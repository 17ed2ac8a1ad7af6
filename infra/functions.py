"""The Lambda functions: what each runs with, may do, and what becomes of a call that fails.

Owns their roles, settings, logs, the replay function's URL and the queue of failed calls. Knows no route and no
schedule: the API and the schedules say themselves what they may call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IConstruct

from forbear.roles import ROLE_OF
from forbear.vault import Purpose
from infra.bundling import PRESETS, Bundle
from infra.code_asset import code
from infra.config import StackConfig
from infra.database import MASTER, Database
from infra.execution_role import allow, execution_role
from infra.log_group import log_group
from infra.network import FUNCTION_SUBNETS, Network
from infra.own_key import own_key
from infra.secrets_key import SecretsKey
from infra.series import namespace

TICK: Final = "tick"
"""Name of the schedule, in a group that is named after the stack: known before it exists, so that the claimer, which
the schedule calls, can be told it."""

# The API ends a request at 30 s; a function that ends first can say why.
_API_TIMEOUT_S: Final = 29
_MOST_S: Final = 900

# Who opens what is sealed: manage shows secrets and makes them, the claimer signs with them.
_OPEN_SECRETS: Final = ("manage", "claimer")
# Who compares API keys; manage makes them, too. Only where there is an API that takes them.
_CHECK_API_KEYS: Final = ("ingest", "manage", "replay")


class Functions(Construct):
    """The six functions, on one bundle.

    Attributes:
        ingest, manage, replay, claimer, maintain, migrate: the functions.
        all: the same, by name.
        by_name: what is to be called, by name: the function, or the alias `live` of its newest version where snapshots
            are on.
        replay_url: the replay function's URL, for callers that sign.
        failures: where the calls end that nobody waits for and that failed for good.
        key: the stack's own key, if it has one.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        config: StackConfig,
        network: Network,
        database: Database,
        secrets_key: SecretsKey,
    ) -> None:
        """Build them.

        Args:
            scope: The stack.
            construct_id: The construct's name in it.
            config: What was chosen.
            network: Where they run.
            database: What they connect to.
            secrets_key: What wraps the data keys in it.
        """
        super().__init__(scope, construct_id)
        self._config, self._network, self._database, self._secrets_key = config, network, database, secrets_key
        self.key = (
            own_key(self, "Key", about=f"{config.stack_name}: settings, logs and failed calls of the functions")
            if config.functions.own_key
            else None
        )
        self.failures = self._queue()
        self.all: dict[str, lambda_.Function] = {}
        self._code = code(
            Bundle(
                architecture=config.functions.architecture,
                presets=config.delivery.presets,
                ca_file=config.database.ca_file,
            )
        )
        delivery = config.delivery
        # The claimer calls its successor, so it has to know its own name, which a resource cannot be told of itself.
        claimer = f"{config.stack_name}-claimer"
        # Asked when an endpoint's URL is set, and again when something is sent to it.
        reach = {
            "ALLOW_HTTP": str(delivery.allow_http).lower(),
            "ALLOW_NETWORKS": ",".join(map(str, delivery.allow_networks)),
            "PORTS": ",".join(map(str, config.network.receiver_ports)),
        }

        # Mostly waiting for the database; a third of a CPU parses a megabyte and starts in about a second.
        self.ingest = self._function("ingest", _API_TIMEOUT_S, {"CLAIMER_FUNCTION": claimer})
        self.manage = self._function(
            "manage",
            _API_TIMEOUT_S,
            {
                "CLAIMER_FUNCTION": claimer,
                **reach,
                **({"PRESETS": PRESETS} if delivery.presets else {}),
            },
        )
        # A URL has no limit of its own, so a paused database may take longer to wake than behind the API. No statement
        # takes more than 15 s then, and counting the matches of a wide filter ends after 5.
        self.replay = self._function("replay", 60, {"CLAIMER_FUNCTION": claimer})
        # Once an hour of work: makes and drops partitions, which is quick; deleting a large backlog of old rows is not.
        self.maintain = self._function(
            "maintain",
            _MOST_S,
            {"RETENTION_DAYS": str(delivery.retention_days)},
            kept_s=3600,  # the claimer asks again within the hour
        )
        # As long as Lambda lets it: starting anew costs a claimer its connections. 1,769 MB are one CPU, which is what
        # its one event loop can use.
        self.claimer = self._function(
            "claimer",
            _MOST_S,
            {
                "CLAIMER_FUNCTION": claimer,
                "MAINTENANCE_FUNCTION": self.maintain.function_name,
                "SCHEDULE_NAME": TICK,
                "SCHEDULE_GROUP": config.stack_name,
                **reach,
                "MAX_CLAIMERS": str(delivery.max_claimers),
            },
            named=claimer,
            kept_s=21_600,  # until the next sweep: while the schedule rests, a wake-up call is all that tells of work
        )
        # Waits while the database wakes, and for whatever a migration has to do with a large table.
        self.migrate = self._function(
            "migrate",
            _MOST_S,
            {"MASTER_SECRET": database.secret.secret_arn, "KEY": secrets_key.arn},
            kept_s=1200,  # as long as CloudFormation waits for the answer
        )
        secrets_key.let_make(self.migrate, *Purpose)
        database.secret.grant_read(self.migrate)
        # Who makes a role is a member of it (PostgreSQL 16), so a master that has made members of rds_iam is one of
        # them, and RDS may let it in by token only.
        database.grant_connect(self.migrate, MASTER)

        claimer_arn = cdk.Stack.of(self).format_arn(
            service="lambda", resource="function", resource_name=claimer, arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME
        )
        for caller in (self.ingest, self.manage, self.replay, self.claimer):
            allow(caller, "lambda:InvokeFunction", claimer_arn)
        allow(self.claimer, "lambda:InvokeFunction", self.maintain.function_arn)
        self.by_name: Mapping[str, lambda_.IFunction] = self._called()
        self.replay_url = self.by_name["replay"].add_function_url(
            auth_type=lambda_.FunctionUrlAuthType.AWS_IAM, invoke_mode=lambda_.InvokeMode.BUFFERED
        )

    def _function(
        self,
        name: str,
        timeout_s: int,
        settings: Mapping[str, str],
        *,
        named: str | None = None,
        kept_s: int | None = None,
    ) -> lambda_.Function:
        """One function with its role and its log.

        Args:
            name: Its name, that of its file, and of its knobs.
            timeout_s: How long a call may take.
            settings: Its own settings, by their names without the prefix.
            named: Its name in AWS, where that has to be known.
            kept_s: How long a call that nobody waits for is kept and tried, with two repeats; None: there are none.
        """
        chosen, user = self._config.functions, ROLE_OF[name]
        construct = name.capitalize()
        log = log_group(self, f"{construct}Log", retention_days=chosen.log_retention_days, key=self.key)
        role = execution_role(self, f"{construct}Role", about=f"what {name} may do", log=log, key=self.key)
        self._database.grant_connect(role, user)
        if purposes := self._purposes(name):
            settings = {**settings, "KEY": self._secrets_key.arn}
            self._secrets_key.let_unwrap(role, *purposes)
        function = lambda_.Function(
            self,
            construct,
            function_name=named,
            description=f"Forbear: {name}",
            code=self._code,
            handler=f"{name}.handler",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64 if chosen.architecture == "arm64" else lambda_.Architecture.X86_64,
            memory_size=getattr(chosen.memory_mb, name),
            timeout=cdk.Duration.seconds(timeout_s),
            environment={
                f"FORBEAR_{key}": value
                for key, value in {
                    "DATABASE_URL": self._database.url(user),
                    "DATABASE_IAM": "true",
                    "METRICS_NAMESPACE": namespace(self._config),
                    **settings,
                }.items()
            }
            # The resolver waits ten seconds for an answer by default, longer than most receivers' timeouts.
            | {"RES_OPTIONS": "timeout:2 attempts:2"},
            environment_encryption=self.key,
            role=role,
            vpc=self._network.vpc,
            vpc_subnets=FUNCTION_SUBNETS,
            security_groups=[self._network.functions_group],
            log_group=log,
            logging_format=lambda_.LoggingFormat.JSON,
            # Not three lines of the platform's to each call: how long calls take and how many fail are metrics anyway.
            system_log_level_v2=lambda_.SystemLogLevel.WARN,
            application_log_level_v2=lambda_.ApplicationLogLevel.INFO,
            # Samples what Lambda sees of a call. The SDK that would add more costs half a second of every cold start.
            tracing=lambda_.Tracing.ACTIVE if chosen.tracing else lambda_.Tracing.DISABLED,
            reserved_concurrent_executions=chosen.reserved_concurrency.get(name),  # type: ignore[call-overload]  # any name
            snap_start=lambda_.SnapStartConf.ON_PUBLISHED_VERSIONS if self._snapshots(name) else None,
            # Lambda stops a chain of calls after some 16, also of a function that calls itself (AWS Lambda developer
            # guide, "Use Lambda recursive loop detection to prevent infinite loops"). A claimer calls its successor
            # each quarter of an hour: a busy stack would stand still after four hours. The chain ends by itself, when
            # nothing is due.
            recursive_loop=lambda_.RecursiveLoop.ALLOW if name == "claimer" else lambda_.RecursiveLoop.TERMINATE,
        )
        if kept_s is not None:
            self._keep_failures(name, function, kept_s)
        self._accept_findings(function, called_and_left=kept_s is not None)
        self.all[name] = function
        return function

    def _purposes(self, name: str) -> tuple[Purpose, ...]:
        """What a function uses data keys for."""
        secrets = (Purpose.SECRETS,) if name in _OPEN_SECRETS else ()
        api_keys = (Purpose.API_KEYS,) if self._config.api.keys and name in _CHECK_API_KEYS else ()
        return secrets + api_keys

    def let_report_failures(self, role: iam.IRole) -> None:
        """Allow a role to put a call that failed into `failures`, and nothing else with it."""
        allow(role, "sqs:SendMessage", self.failures.queue_arn)
        if self.key:
            # What SQS asks of whoever sends to a queue that a KMS key encrypts.
            allow(role, ("kms:Decrypt", "kms:GenerateDataKey"), self.key.key_arn)

    def _keep_failures(self, name: str, function: lambda_.Function, kept_s: int) -> None:
        """What becomes of calls that nobody waits for: two repeats, a minute and two after, then the queue."""
        self.let_report_failures(cast("iam.IRole", function.role))
        lambda_.CfnEventInvokeConfig(
            self,
            f"{name.capitalize()}Calls",
            function_name=function.function_name,
            qualifier="$LATEST",
            maximum_retry_attempts=2,
            maximum_event_age_in_seconds=kept_s,
            destination_config=lambda_.CfnEventInvokeConfig.DestinationConfigProperty(
                on_failure=lambda_.CfnEventInvokeConfig.OnFailureProperty(destination=self.failures.queue_arn)
            ),
        )

    def _snapshots(self, name: str) -> bool:
        # Only where somebody waits for the answer: a snapshot is paid for while it is kept.
        return self._config.functions.snap_start and name in {"ingest", "manage", "replay"}

    def _called(self) -> dict[str, lambda_.IFunction]:
        return {
            name: function.add_alias("live") if self._snapshots(name) else function
            for name, function in self.all.items()
        }

    def _queue(self) -> sqs.Queue:
        queue = sqs.Queue(
            self,
            "Failures",
            encryption=sqs.QueueEncryption.KMS if self.key else sqs.QueueEncryption.SQS_MANAGED,
            encryption_master_key=self.key,
            enforce_ssl=True,
            retention_period=cdk.Duration.days(14),  # the most there is: somebody has to look
        )
        for rule in ("AwsSolutions-SQS3", "Serverless-SQSRedrivePolicy"):
            _accept(queue, rule, "This is where failed calls end: evidence, which people read.")
        return queue

    def _accept_findings(self, function: lambda_.Function, *, called_and_left: bool) -> None:
        for rule in ("AwsSolutions-L1", "Serverless-LambdaLatestVersion"):
            _accept(function, rule, "3.13 is what the tests run on, and what the bytecode is compiled for.")
        _accept(
            function,
            "Serverless-LambdaDLQ",
            "Failed calls go to the queue by a failure destination, which says more of them than a dead-letter queue's "
            "message."
            if called_and_left
            else "Whoever calls this function waits for its answer, and gets the error.",
        )
        if self._snapshots(function.node.id.lower()):
            cdk.Annotations.of(function).acknowledge_warning(
                "@aws-cdk/aws-lambda:snapStartRequirePublish", "The alias `live` publishes a version."
            )
        if not self._config.functions.tracing:
            _accept(function, "Serverless-LambdaTracing", "Tracing is a knob (functions.tracing).")


def _accept(construct: IConstruct, rule: str, reason: str) -> None:
    cdk.Validations.of(construct).acknowledge(cdk.Acknowledgment(id=rule, reason=reason))
