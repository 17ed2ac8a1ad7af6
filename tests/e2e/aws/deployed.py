"""A deployed stack as its users see it: its outputs, their credentials, signed requests, and what an account holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from botocore.credentials import Credentials

from infra.cli.sigv4 import SigV4
from tests.e2e.aws.emulator import REGION, MiniStack

TICK = {"Name": "tick", "GroupName": "Forbear"}


@dataclass
class Deployed:
    """The stack in the emulator.

    Attributes:
        outputs: the stack's outputs.
    """

    emulator: MiniStack
    outputs: dict[str, str]

    def user(self, name: str, policy: str) -> Credentials:
        """Credentials of a new user that has one of the stack's policies and nothing else."""
        iam = self.emulator.client("iam")
        iam.create_user(UserName=name)
        iam.attach_user_policy(UserName=name, PolicyArn=self.outputs[policy])
        key = iam.create_access_key(UserName=name)["AccessKey"]
        return Credentials(key["AccessKeyId"], key["SecretAccessKey"])

    def dismiss(self, *names: str) -> None:
        """Delete users; a policy that is attached to one cannot be deleted."""
        iam = self.emulator.client("iam")
        for name in names:
            for policy in iam.list_attached_user_policies(UserName=name)["AttachedPolicies"]:
                iam.detach_user_policy(UserName=name, PolicyArn=policy["PolicyArn"])
            for key in iam.list_access_keys(UserName=name)["AccessKeyMetadata"]:
                iam.delete_access_key(UserName=name, AccessKeyId=key["AccessKeyId"])
            iam.delete_user(UserName=name)

    def api(self, path: str, output: str = "ApiUrl") -> str:
        """The address of a path of an API. The emulator serves names under its own address, too."""
        return f"{self.emulator.url}/_aws/execute-api/{self._name(output)}{path}"

    @property
    def replay_url(self) -> str:
        """The address of the function URL."""
        return f"{self.emulator.url}/_aws/lambda-url/{self._name('ReplayUrl')}/"

    def function(self, name: str) -> dict[str, Any]:
        """A function's configuration, found by its handler."""
        functions = self.emulator.client("lambda").list_functions()["Functions"]
        return next(dict(one) for one in functions if one["Handler"] == f"{name}.handler")

    def tick(self) -> dict[str, Any]:
        """The schedule."""
        return dict(self.emulator.client("scheduler").get_schedule(**TICK))

    def switch_on(self) -> None:
        """Have the schedule tick, as a claimer does that has work."""
        kept = {name: value for name, value in self.tick().items() if name in {"FlexibleTimeWindow", "Target"}}
        self.emulator.client("scheduler").update_schedule(
            **TICK, **kept, State="ENABLED", ScheduleExpression="rate(1 minute)"
        )

    def _name(self, output: str) -> str:
        return str(urlsplit(self.outputs[output]).hostname).partition(".")[0]


@dataclass
class Caller:
    """Somebody with credentials (or without) who calls a deployed stack."""

    stack: Deployed
    http: httpx.AsyncClient
    credentials: Credentials | None = None

    async def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Call the API."""
        return await self.http.request(method, self.stack.api(path), json=body, auth=self._auth("execute-api"))

    async def replay(self, method: str, body: Any = None, **query: str) -> httpx.Response:
        """Call the function URL."""
        return await self.http.request(
            method, self.stack.replay_url, json=body, params=query, auth=self._auth("lambda")
        )

    def _auth(self, service: str) -> httpx.Auth | None:
        return SigV4(service, REGION, self.credentials) if self.credentials else None


HOLDINGS: dict[str, tuple[str, Callable[[Any], list[str]]]] = {
    "functions": ("lambda", lambda it: [one["FunctionName"] for one in it.list_functions()["Functions"]]),
    "logs": ("logs", lambda it: [one["logGroupName"] for one in it.describe_log_groups()["logGroups"]]),
    "schedules": ("scheduler", lambda it: [one["Name"] for one in it.list_schedules()["Schedules"]]),
    "schedule groups": (
        "scheduler",
        lambda it: [one["Name"] for one in it.list_schedule_groups()["ScheduleGroups"] if one["Name"] != "default"],
    ),
    "queues": ("sqs", lambda it: it.list_queues().get("QueueUrls", [])),
    "topics": ("sns", lambda it: [one["TopicArn"] for one in it.list_topics()["Topics"]]),
    "alarms": ("cloudwatch", lambda it: [one["AlarmName"] for one in it.describe_alarms()["MetricAlarms"]]),
    "dashboards": (
        "cloudwatch",
        lambda it: [one["DashboardName"] for one in it.list_dashboards()["DashboardEntries"]],
    ),
    "APIs": ("apigatewayv2", lambda it: [one["Name"] for one in it.get_apis()["Items"]]),
    "clusters": ("rds", lambda it: [one["DBClusterIdentifier"] for one in it.describe_db_clusters()["DBClusters"]]),
    "instances": (
        "rds",
        lambda it: [one["DBInstanceIdentifier"] for one in it.describe_db_instances()["DBInstances"]],
    ),
    "snapshots": (
        "rds",
        lambda it: [
            one["DBClusterSnapshotIdentifier"] for one in it.describe_db_cluster_snapshots()["DBClusterSnapshots"]
        ],
    ),
    "secrets": ("secretsmanager", lambda it: [one["Name"] for one in it.list_secrets()["SecretList"]]),
    "keys": ("kms", lambda it: [one["KeyId"] for one in it.list_keys()["Keys"]]),
    "networks": ("ec2", lambda it: [one["VpcId"] for one in it.describe_vpcs()["Vpcs"] if not one.get("IsDefault")]),
    "roles": ("iam", lambda it: [one["RoleName"] for one in it.list_roles()["Roles"]]),
    "policies": ("iam", lambda it: [one["PolicyName"] for one in it.list_policies(Scope="Local")["Policies"]]),
}


def holdings(emulator: MiniStack) -> set[str]:
    """Everything in the account that a stack of ours may have made, as `kind name`."""
    return {f"{kind} {name}" for kind, (service, names) in HOLDINGS.items() for name in names(emulator.client(service))}
