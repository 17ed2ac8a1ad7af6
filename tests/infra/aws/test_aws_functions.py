from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from forbear.roles import ROLE_OF
from forbear.settings import Settings
from infra.bundling import PRESETS
from tests.infra.aws.conftest import Synthesize
from tests.infra.aws.reading import FUNCTIONS, functions, resources, rights, settings, statements, written

ARN = "arn:<AWS::Partition>:{}:<AWS::Region>:<AWS::AccountId>:{}"
CLAIMER = ARN.format("lambda", "function:Forbear-claimer")
NETWORKING = {
    f"ec2:{action}"
    for action in (
        "AssignPrivateIpAddresses",
        "CreateNetworkInterface",
        "DeleteNetworkInterface",
        "DescribeNetworkInterfaces",
        "DescribeSubnets",
        "UnassignPrivateIpAddresses",
    )
}

PROFILES = pytest.mark.parametrize("profile", ["small", "production"])


@PROFILES
def test_all_functions_run_on_one_bundle_where_the_database_is(template: Synthesize, profile: str) -> None:
    found = functions(template(profile))
    assert len({json.dumps(function["Code"]) for function in found.values()}) == 1
    for function in found.values():
        assert function["Runtime"] == "python3.13"
        assert function["Architectures"] == ["arm64"]
        assert len(function["VpcConfig"]["SubnetIds"]) == 2
        assert len(function["VpcConfig"]["SecurityGroupIds"]) == 1
        assert not function.get("ReservedConcurrentExecutions")


@PROFILES
def test_every_function_logs_json_to_a_group_of_its_own_that_forgets(template: Synthesize, profile: str) -> None:
    made = template(profile)
    groups = resources(made, "Logs::LogGroup")
    names = [function["LoggingConfig"]["LogGroup"]["Ref"] for function in functions(made).values()]
    assert len(set(names)) == len(FUNCTIONS)
    for function in functions(made).values():
        assert function["LoggingConfig"]["LogFormat"] == "JSON"
        assert function["LoggingConfig"]["SystemLogLevel"] == "WARN"
        assert groups[function["LoggingConfig"]["LogGroup"]["Ref"]]["RetentionInDays"] in (30, 90)


def test_who_waits_for_an_answer_gets_one_before_the_api_gives_up(template: Synthesize) -> None:
    found = functions(template())
    assert [found[name]["Timeout"] for name in FUNCTIONS] == [29, 29, 60, 900, 900, 900]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_understands_its_settings_and_connects_as_its_own_role(template: Synthesize, function: str) -> None:
    """What the stack writes is what the settings read, so that neither can change alone."""
    given = settings(template("production"), function)
    read = Settings.read({f"FORBEAR_{name}": value for name, value in given.items()})
    assert read.database_url.startswith(f"postgresql://{ROLE_OF[function]}@")
    assert read.database_iam
    assert read.metrics_namespace == "Forbear/Forbear"
    assert {name.lower() for name in given} <= {one.name for one in fields(Settings)}


def test_functions_that_make_work_know_the_claimer_and_the_claimer_knows_its_schedule(template: Synthesize) -> None:
    made = template(stack_name="Hooks")
    for name in ("ingest", "manage", "replay", "claimer"):
        assert settings(made, name)["CLAIMER_FUNCTION"] == "Hooks-claimer"
    assert functions(made)["claimer"]["FunctionName"] == "Hooks-claimer"
    own = settings(made, "claimer")
    (tick,) = (one for one in resources(made, "Scheduler::Schedule").values() if one["Name"] == "tick")
    (group,) = resources(made, "Scheduler::ScheduleGroup").values()
    assert (own["SCHEDULE_NAME"], own["SCHEDULE_GROUP"]) == (tick["Name"], group["Name"])
    maintain = own["MAINTENANCE_FUNCTION"].strip("<>")
    assert resources(made, "Lambda::Function")[maintain]["Handler"] == "maintain.handler"


def test_only_the_claimers_name_is_known_beforehand(template: Synthesize) -> None:
    """Two stacks in one account and region do not collide: CloudFormation names what need not be known."""
    named = [name for name, function in functions(template()).items() if "FunctionName" in function]
    assert named == ["claimer"]


def test_what_an_operator_chose_reaches_the_function_that_needs_it(template: Synthesize, tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    own.write_text("")
    made = template(
        **{
            "network.receiver_ports": "443,8443",
            "delivery.allow_networks": "10.1.0.0/16",
            "delivery.retention_days": "9",
            "delivery.max_claimers": "7",
            "delivery.presets": str(own),
            "functions.reserved_concurrency.ingest": "50",
        }
    )
    manage = settings(made, "manage")
    assert manage["PORTS"] == "443,8443"
    assert manage["ALLOW_NETWORKS"] == settings(made, "claimer")["ALLOW_NETWORKS"] == "10.1.0.0/16"
    assert manage["PRESETS"] == PRESETS
    assert settings(made, "maintain")["RETENTION_DAYS"] == "9"
    assert settings(made, "claimer")["MAX_CLAIMERS"] == "7"
    assert functions(made)["ingest"]["ReservedConcurrentExecutions"] == 50


def test_a_call_that_nobody_waits_for_is_repeated_twice_and_then_kept(template: Synthesize) -> None:
    made = template()
    (queue,) = resources(made, "SQS::Queue")
    handlers = resources(made, "Lambda::Function")
    ages = {}
    for calls in resources(made, "Lambda::EventInvokeConfig").values():
        assert calls["MaximumRetryAttempts"] == 2
        assert calls["DestinationConfig"]["OnFailure"]["Destination"] == {"Fn::GetAtt": [queue, "Arn"]}
        ages[handlers[calls["FunctionName"]["Ref"]]["Handler"]] = calls["MaximumEventAgeInSeconds"]
    assert ages == {"claimer.handler": 21_600, "maintain.handler": 3600, "migrate.handler": 1200}


@PROFILES
def test_failed_calls_are_kept_encrypted_for_two_weeks_and_told_over_tls_only(
    template: Synthesize, profile: str
) -> None:
    (queue,) = resources(template(profile), "SQS::Queue").values()
    assert queue["MessageRetentionPeriod"] == 14 * 86_400
    assert queue.get("SqsManagedSseEnabled") or queue["KmsMasterKeyId"]
    (policy,) = resources(template(profile), "SQS::QueuePolicy").values()
    (denied,) = policy["PolicyDocument"]["Statement"]
    assert (denied["Effect"], denied["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})


def test_a_claimer_may_call_its_successor_for_as_long_as_there_is_work(template: Synthesize) -> None:
    """Lambda would end the chain after some 16 calls, four hours."""
    loops = {name: function["RecursiveLoop"] for name, function in functions(template()).items()}
    assert loops.pop("claimer") == "Allow"
    assert set(loops.values()) == {"Terminate"}


def extra(template: Any, function: str) -> set[tuple[str, str]]:
    """What a function may do besides what every function may: log, join the network, connect to the database."""
    made = rights(template, f"Functions{function.capitalize()}Role")
    assert {action for action, resource in made if resource == "*"} == NETWORKING
    logged = {(action, resource) for action, resource in made if action.startswith("logs:")}
    assert {action for action, _ in logged} == {"logs:CreateLogStream", "logs:PutLogEvents"}
    (group,) = {resource for _, resource in logged}
    assert group.startswith(f"<Functions{function.capitalize()}Log")
    return {one for one in made if one not in logged and one[1] != "*" and one[0] != "rds-db:connect"}


def test_a_function_may_do_what_it_does_and_nothing_else(template: Synthesize) -> None:
    made = template()
    (queue,) = resources(made, "SQS::Queue")
    (role,) = (name for name in resources(made, "IAM::Role") if name.startswith("SchedulesRole"))
    (maintain,) = (name for name, one in resources(made, "Lambda::Function").items() if "maintain" in one["Handler"])
    invoke, report = ("lambda:InvokeFunction", CLAIMER), ("sqs:SendMessage", f"<{queue}.Arn>")
    group = ARN.format("scheduler", "schedule/Forbear/*")
    may = {name: extra(made, name) for name in FUNCTIONS}
    key = settings(made, "migrate")["KEY"]
    assert may["ingest"] == may["replay"] == {invoke}
    assert may["manage"] == {invoke, ("kms:Decrypt", key)}
    assert may["maintain"] == {report}
    assert may["claimer"] == {
        ("kms:Decrypt", key),
        ("scheduler:GetSchedule", group),
        ("scheduler:UpdateSchedule", group),
        invoke,
        report,
        ("lambda:InvokeFunction", f"<{maintain}.Arn>"),
        ("iam:PassRole", f"<{role}.Arn>"),
    }
    secret = {one for one in may["migrate"] if one[0].startswith("secretsmanager:")}
    assert {action for action, _ in secret} == {"secretsmanager:GetSecretValue", "secretsmanager:DescribeSecret"}
    assert {resource for _, resource in secret} == {settings(made, "migrate")["MASTER_SECRET"]}
    assert may["migrate"] - secret == {report, ("kms:GenerateDataKeyWithoutPlaintext", key)}


@PROFILES
def test_no_role_of_a_function_has_a_managed_policy_and_each_function_has_its_own(
    template: Synthesize, profile: str
) -> None:
    made = template(profile)
    roles = {written(function["Role"]) for function in functions(made).values()}
    assert len(roles) == len(FUNCTIONS)
    for name, role in resources(made, "IAM::Role").items():
        if name.startswith("Functions"):
            assert "ManagedPolicyArns" not in role
            assert "Policies" not in role


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_code_of_a_function_cannot_touch_the_network_it_runs_in(template: Synthesize, function: str) -> None:
    """Lambda joins it under the same role; only the code's own calls carry the function's ARN."""
    (denied,) = (
        one for one in statements(template(), f"Functions{function.capitalize()}Role") if one["Effect"] == "Deny"
    )
    assert (denied["Action"], denied["Resource"]) == ("ec2:*", "*")
    assert denied["Condition"] == {"Null": {"lambda:SourceFunctionArn": "false"}}


def test_the_claimer_passes_the_schedules_role_to_the_scheduler_only(template: Synthesize) -> None:
    (passing,) = (one for one in statements(template(), "FunctionsClaimerRole") if one["Action"] == "iam:PassRole")
    assert passing["Condition"] == {"StringEquals": {"iam:PassedToService": "scheduler.amazonaws.com"}}


def test_the_replay_url_takes_signed_requests_and_no_browsers(template: Synthesize) -> None:
    made = template()
    (url,) = resources(made, "Lambda::Url").values()
    assert (url["AuthType"], url["InvokeMode"]) == ("AWS_IAM", "BUFFERED")
    assert "Cors" not in url
    target = written(url["TargetFunctionArn"]).strip("<>").removesuffix(".Arn")
    assert resources(made, "Lambda::Function")[target]["Handler"] == "replay.handler"


@PROFILES
def test_nobody_but_the_api_may_call_a_function_by_its_own_policy(template: Synthesize, profile: str) -> None:
    for permission in resources(template(profile), "Lambda::Permission").values():
        assert permission["Principal"] == "apigateway.amazonaws.com"
        assert ":execute-api:" in written(permission["SourceArn"])


def test_with_a_key_of_its_own_the_stack_encrypts_settings_logs_and_failed_calls(template: Synthesize) -> None:
    made = template("production")
    (key,) = (name for name in resources(made, "KMS::Key") if name.startswith("Functions"))
    arn = f"<{key}.Arn>"
    for name, function in functions(made).items():
        assert written(function["KmsKeyArn"]) == arn
        group = resources(made, "Logs::LogGroup")[function["LoggingConfig"]["LogGroup"]["Ref"]]
        assert written(group["KmsKeyId"]) == arn
        assert ("kms:Decrypt", arn) in rights(made, f"Functions{name.capitalize()}Role")
    (queue,) = resources(made, "SQS::Queue").values()
    assert written(queue["KmsMasterKeyId"]) == arn
    assert ("kms:GenerateDataKey", arn) in rights(made, "FunctionsClaimerRole")
    assert ("kms:GenerateDataKey", arn) not in rights(made, "FunctionsIngestRole")
    policy = resources(made, "KMS::Key")[key]
    assert policy["EnableKeyRotation"]
    (logs,) = (
        one for one in policy["KeyPolicy"]["Statement"] if "logs." in written(one["Principal"].get("Service", ""))
    )
    assert written(logs["Condition"]["ArnLike"]["kms:EncryptionContext:aws:logs:arn"]) == ARN.format(
        "logs", "log-group:*"
    )


def test_what_was_written_under_a_key_can_be_read_when_the_stack_has_none_any_more(template: Synthesize) -> None:
    (key,) = (
        one for name, one in template("production").find_resources("AWS::KMS::Key").items() if "Functions" in name
    )
    assert (key["DeletionPolicy"], key["UpdateReplacePolicy"]) == ("Retain", "Retain")


def test_tracing_is_a_knob(template: Synthesize) -> None:
    assert all("TracingConfig" not in function for function in functions(template()).values())
    made = template("production")
    assert {function["TracingConfig"]["Mode"] for function in functions(made).values()} == {"Active"}
    assert ("xray:PutTraceSegments", "*") in rights(made, "FunctionsIngestRole")


def test_with_snapshots_whoever_waits_is_served_by_the_newest_version(template: Synthesize) -> None:
    """Snapshots are of versions: API and replay URL must lead to them, and the claimer needs none."""
    made = template(**{"functions.snap_start": "true"})
    snapped = {name for name, function in functions(made).items() if "SnapStart" in function}
    assert snapped == {"ingest", "manage", "replay"}
    aliases = resources(made, "Lambda::Alias")
    assert [alias["Name"] for alias in aliases.values()] == ["live"] * 3
    (url,) = resources(made, "Lambda::Url").values()
    assert url["Qualifier"] == "live"
    for permission in resources(made, "Lambda::Permission").values():
        assert written(permission["FunctionName"]).strip("<>") in aliases
    for integration in resources(made, "ApiGatewayV2::Integration").values():
        assert written(integration["IntegrationUri"]).strip("<>") in aliases
