"""The stack: one construct a capability, wired; and the migrations between them.

Owns the order of a deployment: the schema's additions before new code runs, its removals after everything else. Knows
no resource of a construct's inside.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Literal

import aws_cdk as cdk
from constructs import Construct

from infra.api import Api
from infra.config import StackConfig
from infra.database import Database
from infra.functions import Functions
from infra.network import Network
from infra.observability import Observability
from infra.schedule import Schedules
from infra.secrets_key import SecretsKey

FORBEAR = Path(__file__).parent.parent / "functions" / "forbear"
MIGRATIONS = "sql/migrations"
RIGHTS = ("sql/grants.sql", "sql/revoke_grants.sql", "sql/hand_over.sql", "roles.py")


class ForbearStack(cdk.Stack):
    """Forbear in one account and region."""

    def __init__(self, scope: Construct, *, config: StackConfig, **options: Any) -> None:
        """Build it.

        Args:
            scope: The app.
            config: What was chosen; its name is the stack's.
            options: What else `cdk.Stack` takes, such as a synthesizer.
        """
        super().__init__(
            scope,
            config.stack_name,
            description=f"Forbear, a webhook delivery gateway ({config.profile})",
            termination_protection=config.database.deletion_protection,
            tags={"application": "forbear", "forbear-stack": config.stack_name},
            **options,
        )
        self._snapshot = config.database.snapshot
        self.network = Network(self, "Network", config=config)
        self.database = Database(self, "Database", config=config, network=self.network)
        self.secrets_key = SecretsKey(self, "Secrets", config=config)
        self.functions = Functions(
            self,
            "Functions",
            config=config,
            network=self.network,
            database=self.database,
            secrets_key=self.secrets_key,
        )
        self.api = Api(self, "Api", config=config, functions=self.functions)
        self.schedules = Schedules(self, "Schedules", config=config, functions=self.functions)
        self.observability = Observability(
            self,
            "Observability",
            config=config,
            network=self.network,
            database=self.database,
            functions=self.functions,
            api=self.api,
            schedules=self.schedules,
        )
        self._migrate_in_between()
        self._tell()

    def _migrate_in_between(self) -> None:
        """Let the old code and the new meet a schema that both can use: the steps before the functions, and after.

        The second one comes last of all: what it takes away the old code still needs, which comes back if anything
        fails.
        """
        functions = self.functions
        before = self._migration("pre")
        before.node.add_dependency(self.network, self.database, functions.migrate)
        for function in functions.all.values():
            if function is not functions.migrate:
                function.node.add_dependency(before)
        self._migration("post").node.add_dependency(
            self.network, self.database, functions, self.api, self.schedules, self.observability
        )

    def _migration(self, phase: Literal["pre", "post"]) -> cdk.CustomResource:
        """A step that runs for a new database, or when a migration or a right has changed. If it fails, all does."""
        return cdk.CustomResource(
            self,
            f"Migrations{phase.capitalize()}",
            resource_type="Custom::ForbearMigrations",
            service_token=self.functions.migrate.function_arn,
            # The function answers within its 15 minutes; if it cannot even answer, nobody should wait for an hour.
            service_timeout=cdk.Duration.minutes(20),
            properties={
                "Phase": phase,
                "Migrations": migrations_digest(),
                # A database that comes from a snapshot may be older than this code.
                "Database": self.database.cluster.cluster_resource_identifier,
                # Such a database comes up paused: what was pending in it may have gone out long ago.
                **({"Restored": self._snapshot} if self._snapshot else {}),
            },
        )

    def _tell(self) -> None:
        """The outputs: what people need next."""
        api, functions = self.api, self.functions
        replay_url = functions.replay_url.url
        first_event = (
            f"forbear --url {api.url} send --tenant acme --type order.paid '{{\"id\": 1}}'"
            if api.producer_policy
            else f'curl {api.url}/v1/events -H "authorization: Bearer $TOKEN" -H "content-type: application/json" '
            """-d '{"tenant": "acme", "type": "order.paid", "payload": {"id": 1}}'"""
        )
        told: dict[str, tuple[str | None, str]] = {
            "ApiUrl": (api.url, "Where events are posted and endpoints managed"),
            "KeysApiUrl": (api.keys_api.api_endpoint if api.keys_api else None, "Where API keys are taken"),
            "ApiDomainTarget": (api.domain_target, "What the DNS record (CNAME, or an alias) of the domain points to"),
            "ReplayUrl": (replay_url, "Where dead deliveries are given another life; requests are signed (SigV4)"),
            "EgressAddresses": (
                cdk.Fn.join(", ", self.network.egress_addresses),
                "IPv4 addresses that deliveries come from, for receivers that allow by address",
            ),
            "ProducerPolicy": (
                api.producer_policy.managed_policy_arn if api.producer_policy else None,
                "Attach it to the roles that post events",
            ),
            "OperatorPolicy": (
                api.operator_policy.managed_policy_arn,
                "Attach it to the roles that manage endpoints and replay",
            ),
            "SecretsKey": (
                self.secrets_key.arn,
                "KMS key of the secrets in the database; a snapshot that is restored elsewhere needs it",
            ),
            "AlarmTopic": (self.observability.topic.topic_arn, "Where alarms go: subscribe to it"),
            "Dashboard": (self.observability.dashboard_url, "How it does"),
            "FirstEvent": (
                first_event,
                "Posts an event, as somebody who may; `endpoints add` makes an endpoint for it",
            ),
        }
        for name, (value, about) in told.items():
            if value is not None:
                cdk.CfnOutput(self, name, value=value, description=about)


def migrations_digest(folder: Path = FORBEAR) -> str:
    """A SHA-256, in hex, of the migrations and what makes roles and rights: it changes when they have to be applied.

    Args:
        folder: Where `MIGRATIONS` and `RIGHTS` lie.
    """
    digest = hashlib.sha256()
    for path in (*sorted((folder / MIGRATIONS).glob("*.sql")), *(folder / name for name in RIGHTS)):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()
