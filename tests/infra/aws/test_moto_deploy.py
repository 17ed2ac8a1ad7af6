"""The stack's template, created and updated by moto's CloudFormation in process, and read back with boto3."""

from __future__ import annotations

import copy
import io
import json
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import boto3
import pytest
from aws_cdk.assertions import Template
from moto import mock_aws

from forbear.routes import ROUTES
from forbear.vault import KEY_BYTES, KeyUnavailable, KmsWrapping, Purpose
from tests.infra.aws.moto_shim import known_types
from tests.infra.aws.reading import FUNCTIONS

REGION = "us-east-1"  # the one whose zones moto's Fn::GetAZs gives, whatever the region
ACCOUNT = "123456789012"
STACK = "Forbear"
type Document = dict[str, Any]


@pytest.fixture(scope="class", params=["small", "production"])
def document(request: pytest.FixtureRequest, template: Callable[..., Template]) -> Document:
    """A profile's template."""
    return dict(template(request.param).to_json())


@pytest.fixture(scope="class")
def stack(document: Document) -> Iterator[dict[str, str]]:
    """The deployed stack's outputs. One deployment a profile; the tests only read."""
    with account():
        yield create(document)


@contextmanager
def account() -> Iterator[None]:
    """An account in this process, bootstrapped."""
    with (
        patch.dict(os.environ, AWS_DEFAULT_REGION=REGION),
        mock_aws(config={"lambda": {"use_docker": False}}),
        known_types(),
    ):
        boto3.client("ssm").put_parameter(Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String")
        boto3.client("s3").create_bucket(Bucket=f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}")
        yield


def create(document: Document) -> dict[str, str]:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as code:
        code.writestr("ingest.py", "")
    for key in {one["Properties"]["Code"]["S3Key"] for one in of(document, "AWS::Lambda::Function")}:
        boto3.client("s3").put_object(
            Bucket=f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}", Key=key, Body=archive.getvalue()
        )
    cloudformation = boto3.client("cloudformation")
    cloudformation.create_stack(
        StackName=STACK, TemplateBody=json.dumps(document), Capabilities=["CAPABILITY_NAMED_IAM"]
    )
    (stack,) = cloudformation.describe_stacks(StackName=STACK)["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def of(document: Document, resource_type: str) -> list[Document]:
    return [one for one in document["Resources"].values() if one["Type"] == resource_type]


def function(name: str) -> Document:
    functions = boto3.client("lambda").list_functions()["Functions"]
    return next(one for one in functions if one["Handler"] == f"{name}.handler")


@pytest.mark.usefixtures("stack")
class TestDeployed:
    def test_the_outputs_say_where_everything_is(self, stack: dict[str, str]) -> None:
        (api,) = boto3.client("apigatewayv2").get_apis()["Items"]
        assert stack["ApiUrl"] == api["ApiEndpoint"]
        assert stack["ApiUrl"] in stack["FirstEvent"]
        addresses = {one["PublicIp"] for one in boto3.client("ec2").describe_addresses()["Addresses"]}
        assert set(stack["EgressAddresses"].split(", ")) == addresses
        for policy in ("ProducerPolicy", "OperatorPolicy"):
            assert boto3.client("iam").get_policy(PolicyArn=stack[policy])

    def test_every_route_but_health_takes_iam_alone(self) -> None:
        client = boto3.client("apigatewayv2")
        (api,) = client.get_apis()["Items"]
        routes = {one["RouteKey"]: one["AuthorizationType"] for one in client.get_routes(ApiId=api["ApiId"])["Items"]}
        assert routes == {route.key: "AWS_IAM" for route in ROUTES} | {"GET /v1/health": "NONE"}

    def test_the_function_url_takes_iam_alone(self, stack: dict[str, str]) -> None:
        config = boto3.client("lambda").get_function_url_config(FunctionName=function("replay")["FunctionName"])
        assert (config["AuthType"], config["FunctionUrl"]) == ("AWS_IAM", stack["ReplayUrl"])

    def test_the_schedule_starts_the_claimer_each_minute_once(self) -> None:
        tick = boto3.client("scheduler").get_schedule(Name="tick", GroupName=STACK)
        assert (tick["State"], tick["ScheduleExpression"]) == ("ENABLED", "rate(1 minute)")
        target = tick["Target"]
        assert target["Arn"] == function("claimer")["FunctionArn"]
        assert json.loads(target["Input"]) == {"forbear": "tick"}
        assert target["RetryPolicy"] == {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0}
        assert target["DeadLetterConfig"]["Arn"] == failures()
        assert boto3.client("iam").get_role(RoleName=target["RoleArn"].rpartition("/")[2])

    def test_the_sweep_comes_a_few_times_a_day(self) -> None:
        sweep = boto3.client("scheduler").get_schedule(Name="sweep", GroupName=STACK)
        assert (sweep["State"], sweep["ScheduleExpression"]) == ("ENABLED", "rate(6 hours)")
        assert json.loads(sweep["Target"]["Input"]) == {"forbear": "sweep"}

    def test_the_functions_know_each_other_and_the_schedule_by_the_names_that_they_have(self) -> None:
        claimer = function("claimer")
        known = claimer["Environment"]["Variables"]
        assert known["FORBEAR_CLAIMER_FUNCTION"] == claimer["FunctionName"]
        assert known["FORBEAR_MAINTENANCE_FUNCTION"] == function("maintain")["FunctionName"]
        assert boto3.client("scheduler").get_schedule(
            Name=known["FORBEAR_SCHEDULE_NAME"], GroupName=known["FORBEAR_SCHEDULE_GROUP"]
        )
        for name in ("ingest", "manage", "replay"):
            assert function(name)["Environment"]["Variables"]["FORBEAR_CLAIMER_FUNCTION"] == claimer["FunctionName"]

    def test_a_call_that_nobody_waits_for_is_repeated_twice_and_then_kept(self) -> None:
        client = boto3.client("lambda")
        for name in ("claimer", "maintain", "migrate"):
            config = client.get_function_event_invoke_config(FunctionName=function(name)["FunctionName"])
            assert config["MaximumRetryAttempts"] == 2
            assert config["DestinationConfig"]["OnFailure"]["Destination"] == failures()

    def test_the_queue_keeps_what_failed_for_two_weeks_and_is_read_over_tls_only(self) -> None:
        (queue,) = boto3.client("sqs").list_queues()["QueueUrls"]
        kept = boto3.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["All"])["Attributes"]
        assert int(kept["MessageRetentionPeriod"]) == 14 * 24 * 3600
        denied = [one for one in json.loads(kept["Policy"])["Statement"] if one["Effect"] == "Deny"]
        assert denied[0]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}

    def test_the_database_is_encrypted_backed_up_and_takes_tokens(self) -> None:
        (cluster,) = boto3.client("rds").describe_db_clusters()["DBClusters"]
        assert cluster["StorageEncrypted"]
        assert cluster["IAMDatabaseAuthenticationEnabled"]
        assert cluster["BackupRetentionPeriod"] >= 7
        url = function("ingest")["Environment"]["Variables"]["FORBEAR_DATABASE_URL"]
        assert url.startswith(f"postgresql://forbear_ingest@{cluster['Endpoint']}:5432/forbear?sslmode=verify-full")

    def test_data_keys_are_made_and_opened_by_the_key_of_the_stack(self, stack: dict[str, str]) -> None:
        """And by none of its other keys, and for nothing else than they were made for."""
        told = {name: function(name)["Environment"]["Variables"].get("FORBEAR_KEY") for name in FUNCTIONS}
        arn = stack["SecretsKey"]
        assert told == {name: arn if name in {"manage", "claimer", "migrate"} else None for name in FUNCTIONS}
        client = boto3.client("kms")
        assert client.describe_key(KeyId=arn)["KeyMetadata"]["KeyState"] == "Enabled"
        assert client.get_key_rotation_status(KeyId=arn)["KeyRotationEnabled"]
        wrapped = KmsWrapping(arn).new_key(Purpose.SECRETS)
        assert len(KmsWrapping(arn).unwrap(wrapped, Purpose.SECRETS)) == KEY_BYTES
        with pytest.raises(KeyUnavailable):
            KmsWrapping(arn).unwrap(wrapped, Purpose.API_KEYS)


def failures() -> str:
    """The ARN of the queue of failed calls."""
    (queue,) = boto3.client("sqs").list_queues()["QueueUrls"]
    attributes = boto3.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    return str(attributes["QueueArn"])


def test_an_update_changes_what_it_names_in_place(template: Callable[..., Template]) -> None:
    document = dict(template("small").to_json())
    changed = copy.deepcopy(document)
    for one in of(changed, "AWS::Lambda::Function"):
        if one["Properties"]["Handler"] == "ingest.handler":
            one["Properties"]["MemorySize"] = 1024
    for one in of(changed, "AWS::Scheduler::Schedule"):
        if one["Properties"]["Name"] == "sweep":
            one["Properties"]["ScheduleExpression"] = "rate(3 hours)"
    with account():
        create(document)
        before = function("ingest")["FunctionArn"]
        boto3.client("cloudformation").update_stack(
            StackName=STACK, TemplateBody=json.dumps(changed), Capabilities=["CAPABILITY_NAMED_IAM"]
        )
        assert (function("ingest")["MemorySize"], function("ingest")["FunctionArn"]) == (1024, before)
        sweep = boto3.client("scheduler").get_schedule(Name="sweep", GroupName=STACK)
        assert sweep["ScheduleExpression"] == "rate(3 hours)"
