"""What holds for every resource of a type, whichever construct made it; and the strictest rule packs there are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Template

from forbear.routes import ROUTES
from tests.infra.aws.conftest import ROOT, Synthesize
from tests.infra.aws.reading import resources, written
from tests.infra.aws.snapshot import FOLDER, snapshots

type Properties = dict[str, Any]

# Every choice that adds a resource or a property, so that what nobody takes by default is looked at, too.
EVERYTHING: dict[str, Any] = {
    "profile": "production",
    "database.own_key": True,
    "database.snapshot": "arn:aws:rds:us-east-1:123456789012:cluster-snapshot:forbear-0929",
    "database.io_optimized": True,
    "database.insights": True,
    "functions.architecture": "x86_64",
    "functions.snap_start": True,
    "functions.reserved_concurrency.claimer": 20,
    "network.receiver_ports": "443,80,8443",
    "network.nat": "instance",
    "api.auth.issuer": "https://issuer.example.com",
    "api.auth.audiences": "forbear",
    "api.auth.event_scopes": "events",
    "api.auth.manage_scopes": "manage",
    "api.keys": True,
    "api.domain_name": "hooks.example.com",
    "api.certificate_arn": "arn:aws:acm:us-east-1:123456789012:certificate/0a1b-2c3d",
    "observability.alarm_email": "oncall@example.com",
    "delivery.allow_http": True,
    "delivery.allow_networks": "10.1.0.0/16",
}
STACKS: dict[str, dict[str, Any]] = {
    "small": {"profile": "small"},
    "production": {"profile": "production"},
    "everything": EVERYTHING,
}
KEYS_API = "<ApiKeysHttp"
EACH = pytest.mark.parametrize("stack", STACKS)


def documents(policy: Any) -> Iterator[dict[str, Any]]:
    """The statements of a policy document."""
    statements = policy["Statement"]
    yield from statements if isinstance(statements, list) else [statements]


def several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def open_to_all(statement: dict[str, Any]) -> bool:
    principal = statement.get("Principal", {})
    anybody = principal == "*" or (isinstance(principal, dict) and "*" in several(principal.get("AWS", [])))
    return statement["Effect"] == "Allow" and anybody


def kept_to_itself(statement: dict[str, Any]) -> bool:
    """A grant that is neither everything of a service nor made to everybody."""
    actions = several(statement.get("Action", []))
    return statement["Effect"] == "Deny" or not any(action == "*" or action.endswith(":*") for action in actions)


def wants_tls(of: Properties) -> bool:
    return any(
        each["Effect"] == "Deny" and each["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        for each in documents(of["PolicyDocument"])
    )


def rules_of(group: Properties, way: str) -> list[dict[str, Any]]:
    return [rule for rule in group.get(f"SecurityGroup{way}", []) if rule["IpProtocol"] != "icmp"]


# What is promised of each resource of a type: encrypted, private, authorised, retried, bounded.
PROMISES: dict[str, dict[str, Callable[[Properties], Any]]] = {
    "ApiGatewayV2::Api": {"is HTTP": lambda of: of["ProtocolType"] == "HTTP"},
    "ApiGatewayV2::Route": {
        "is authorised, unless it is health, or for API keys": lambda of: (
            of["AuthorizationType"] in ("AWS_IAM", "JWT")
            or of["RouteKey"] == "GET /v1/health"
            or written(of["ApiId"]).startswith(KEYS_API)
        ),
    },
    "ApiGatewayV2::Integration": {"carries payload format 2.0": lambda of: of["PayloadFormatVersion"] == "2.0"},
    "ApiGatewayV2::Stage": {
        "logs access": lambda of: of["AccessLogSettings"]["DestinationArn"],
        "throttles every route": lambda of: (
            of["DefaultRouteSettings"]["ThrottlingRateLimit"] > 0
            and all(each["ThrottlingRateLimit"] > 0 for each in of["RouteSettings"].values())
        ),
    },
    "ApiGatewayV2::DomainName": {
        "speaks TLS 1.2 or later": lambda of: all(
            each["SecurityPolicy"] == "TLS_1_2" for each in of["DomainNameConfigurations"]
        ),
    },
    "ApiGatewayV2::Authorizer": {"checks for whom a token is": lambda of: of["JwtConfiguration"]["Audience"]},
    "CloudWatch::Alarm": {
        "tells somebody": lambda of: of["AlarmActions"],
        "says what to do": lambda of: len(of["AlarmDescription"]) > 40,
    },
    "EC2::Instance": {
        "has an encrypted disk": lambda of: all(each["Ebs"]["Encrypted"] for each in of["BlockDeviceMappings"]),
        "wants IMDSv2": lambda of: of["MetadataOptions"]["HttpTokens"] == "required",
        "names its group": lambda of: all(each["GroupSet"] for each in of["NetworkInterfaces"]),
        "has no key pair": lambda of: "KeyName" not in of,
    },
    "EC2::SecurityGroup": {
        "lets nobody in from outside": lambda of: all(
            rule["CidrIp"] != "0.0.0.0/0" for rule in rules_of(of, "Ingress")
        ),
        "opens single TCP ports": lambda of: all(
            rule["IpProtocol"] == "tcp" and rule["FromPort"] == rule["ToPort"]
            for way in ("Ingress", "Egress")
            for rule in rules_of(of, way)
        ),
        "says why": lambda of: len(of["GroupDescription"]) > 5,
    },
    "EC2::SecurityGroupEgress": {"opens one port": lambda of: of["FromPort"] == of["ToPort"]},
    "EC2::SecurityGroupIngress": {
        "opens one port": lambda of: of["FromPort"] == of["ToPort"],
        "to a group": lambda of: "SourceSecurityGroupId" in of,
    },
    "EC2::Subnet": {"gives no public addresses": lambda of: not of.get("MapPublicIpOnLaunch")},
    "IAM::ManagedPolicy": {"is narrow": lambda of: all(map(kept_to_itself, documents(of["PolicyDocument"])))},
    "IAM::Policy": {"is narrow": lambda of: all(map(kept_to_itself, documents(of["PolicyDocument"])))},
    "IAM::Role": {
        "is taken by one service": lambda of: (
            [
                service.endswith(".amazonaws.com")
                for each in documents(of["AssumeRolePolicyDocument"])
                for service in several(each["Principal"]["Service"])
            ]
            == [True]
        ),
        "has no policy of somebody else's": lambda of: not of.get("ManagedPolicyArns"),
    },
    "KMS::Key": {
        "rotates": lambda of: of["EnableKeyRotation"],
        "is nobody else's": lambda of: not any(map(open_to_all, documents(of["KeyPolicy"]))),
    },
    "Lambda::EventInvokeConfig": {
        "tries again": lambda of: of["MaximumRetryAttempts"] == 2,
        "gives up": lambda of: of["MaximumEventAgeInSeconds"] <= 21_600,
        "keeps what failed": lambda of: of["DestinationConfig"]["OnFailure"]["Destination"],
    },
    "Lambda::Function": {
        "runs in the VPC": lambda of: of["VpcConfig"]["SubnetIds"] and of["VpcConfig"]["SecurityGroupIds"],
        "ends": lambda of: of["Timeout"] <= 900,
        "has memory argued for": lambda of: of["MemorySize"] >= 256,
        "logs to a group of the stack's": lambda of: of["LoggingConfig"]["LogGroup"],
        "keeps no secret in its environment": lambda of: (
            not any(word in name for name in of["Environment"]["Variables"] for word in ("PASSWORD", "TOKEN"))
        ),
    },
    "Lambda::Permission": {
        "is for one service and one caller": lambda of: (
            of["Principal"].endswith(".amazonaws.com") and ("SourceArn" in of or "SourceAccount" in of)
        ),
    },
    "Lambda::Url": {
        "takes signed requests only": lambda of: of["AuthType"] == "AWS_IAM",
        "answers no browser": lambda of: "Cors" not in of,
    },
    "Logs::LogGroup": {"forgets": lambda of: of["RetentionInDays"]},
    "RDS::DBCluster": {
        "is encrypted": lambda of: of["StorageEncrypted"],
        "authenticates by IAM": lambda of: of["EnableIAMDatabaseAuthentication"],
        "is backed up": lambda of: of["BackupRetentionPeriod"] >= 7,
        "is bounded": lambda of: of["ServerlessV2ScalingConfiguration"]["MaxCapacity"],
        "logs": lambda of: of["EnableCloudwatchLogsExports"],
        "names its group": lambda of: of["VpcSecurityGroupIds"],
    },
    "RDS::DBClusterParameterGroup": {"forces TLS": lambda of: of["Parameters"]["rds.force_ssl"] == "1"},
    "RDS::DBInstance": {
        "is private": lambda of: of["PubliclyAccessible"] is False,
        "is upgraded": lambda of: of["AutoMinorVersionUpgrade"],
    },
    "SNS::TopicPolicy": {
        "is for nobody else": lambda of: not any(map(open_to_all, documents(of["PolicyDocument"]))),
        "wants TLS": wants_tls,
    },
    "SQS::Queue": {
        "is encrypted": lambda of: of.get("SqsManagedSseEnabled") or of.get("KmsMasterKeyId"),
        "keeps messages as long as it can": lambda of: of["MessageRetentionPeriod"] == 1_209_600,
    },
    "SQS::QueuePolicy": {
        "is for nobody else": lambda of: not any(map(open_to_all, documents(of["PolicyDocument"]))),
        "wants TLS": wants_tls,
    },
    "Scheduler::Schedule": {
        "is not tried again": lambda of: of["Target"]["RetryPolicy"]["MaximumRetryAttempts"] == 0,
        "is given up soon": lambda of: of["Target"]["RetryPolicy"]["MaximumEventAgeInSeconds"] == 60,
        "keeps what failed": lambda of: of["Target"]["DeadLetterConfig"]["Arn"],
        "is on time": lambda of: of["FlexibleTimeWindow"] == {"Mode": "OFF"},
    },
}
# Of these there is nothing to promise: they hold nothing, run nothing, and let nobody in. (A topic is encrypted where
# the stack has a key of its own: alarms cannot publish to one under the AWS-managed key.)
INERT = {
    *("ApiGatewayV2::ApiMapping", "CloudWatch::Dashboard", "IAM::InstanceProfile", "Lambda::Alias", "Lambda::Version"),
    *("EC2::EIP", "EC2::EIPAssociation", "EC2::FlowLog", "EC2::InternetGateway", "EC2::NatGateway", "EC2::Route"),
    *(
        "EC2::RouteTable",
        "EC2::SubnetRouteTableAssociation",
        "EC2::VPC",
        "EC2::VPCEndpoint",
        "EC2::VPCGatewayAttachment",
    ),
    *("RDS::DBSubnetGroup", "SNS::Subscription", "SNS::Topic", "Scheduler::ScheduleGroup"),
}


@pytest.fixture(scope="session")
def made(template: Synthesize) -> Callable[[str], Template]:
    """The template of one of STACKS."""
    kept: dict[str, Template] = {}

    def make(stack: str) -> Template:
        if stack not in kept:
            kept[stack] = template(**STACKS[stack])
        return kept[stack]

    return make


@EACH
def test_every_resource_keeps_what_is_promised_of_its_type(made: Callable[[str], Template], stack: str) -> None:
    broken = [
        f"{name} ({of_type}): {promise}"
        for of_type, promises in PROMISES.items()
        for name, properties in resources(made(stack), of_type).items()
        for promise, kept in promises.items()
        if not kept(properties)
    ]
    assert not broken


@EACH
def test_there_is_no_type_that_nobody_thought_about(made: Callable[[str], Template], stack: str) -> None:
    types = {each["Type"].removeprefix("AWS::") for each in made(stack).to_json()["Resources"].values()}
    assert types <= PROMISES.keys() | INERT | {"Custom::ForbearMigrations"}


def test_every_promise_is_about_something(made: Callable[[str], Template]) -> None:
    types = {each["Type"].removeprefix("AWS::") for s in STACKS for each in made(s).to_json()["Resources"].values()}
    assert not (PROMISES.keys() | INERT) - types


@EACH
def test_only_the_api_and_the_replay_url_are_public_and_only_health_is_open(
    made: Callable[[str], Template], stack: str
) -> None:
    template = made(stack)
    routes = [
        each
        for each in resources(template, "ApiGatewayV2::Route").values()
        if not written(each["ApiId"]).startswith(KEYS_API)
    ]
    assert {each["RouteKey"] for each in routes} == {route.key for route in ROUTES}
    assert [each["RouteKey"] for each in routes if each["AuthorizationType"] == "NONE"] == ["GET /v1/health"]
    assert len(resources(template, "ApiGatewayV2::Api")) == (2 if STACKS[stack].get("api.keys") else 1)
    ((_, url),) = resources(template, "Lambda::Url").items()
    assert "FunctionsReplay" in written(url["TargetFunctionArn"])
    assert not [name for name, each in resources(template, "Lambda::Permission").items() if each["Principal"] == "*"]
    into = {written(each["GatewayId"]) for each in resources(template, "EC2::Route").values() if "GatewayId" in each}
    assert into == {f"<{name}>" for name in resources(template, "EC2::InternetGateway")}


@EACH
def test_nothing_joins_the_default_security_group(made: Callable[[str], Template], stack: str) -> None:
    text = json.dumps(made(stack).to_json())
    assert "DefaultSecurityGroup" not in text


@pytest.mark.parametrize("file", ["small.txt", "production.txt"])
def test_what_is_deployed_is_what_was_reviewed(file: str) -> None:
    """After a change on purpose: python -m tests.infra.aws.snapshot, and read the difference."""
    assert snapshots()[file] == (FOLDER / file).read_text(encoding="utf-8")


@pytest.mark.timeout(300)
@EACH
def test_cdks_own_rules_both_packs_and_cfn_lint_find_nothing(tmp_path: Path, stack: str) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "CDK_VALIDATION"}
    chosen = {"aws:cdk:bundling-stacks": []} | STACKS[stack]
    script = (
        "import json, sys; from pathlib import Path; from infra.synth import check;"
        " check(json.loads(sys.argv[1]), Path(sys.argv[2]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, json.dumps(chosen), str(tmp_path)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "resources" in done.stdout
