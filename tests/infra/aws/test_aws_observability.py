"""What a reviewer of dashboard and alarms would check: nothing unknown, nothing missing, no noise when idle."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from aws_cdk.assertions import Match, Template

from forbear import metrics
from tests.infra.aws.conftest import ROOT, Synthesize
from tests.infra.aws.reading import written

PROFILES = ("small", "production")
OWN = "Forbear/Forbear"
KNOWN = {
    (metric.name, *((metric.dimension, value) if value else ()))
    for metric in metrics.METRICS
    for value in metric.values or ("",)
}


def alarms(template: Template) -> dict[str, dict[str, Any]]:
    """The alarms' properties, by the names of their constructs."""
    found = {}
    for logical_id, resource in template.find_resources("AWS::CloudWatch::Alarm").items():
        name = re.fullmatch(r"ObservabilityAlarms(\w+?)[0-9A-F]{8}", logical_id)
        assert name, logical_id
        found[name.group(1)] = resource["Properties"]
    return found


def watched(alarm: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The metrics in an alarm; each is paid for."""
    if "MetricName" in alarm:
        return [dict(alarm)]
    return [one["MetricStat"]["Metric"] for one in alarm["Metrics"] if "MetricStat" in one]


def own_in_alarm(metric: Mapping[str, Any]) -> tuple[str, ...]:
    """A metric's name, and the name and value of its dimension, if it has one."""
    dimensions = [part for each in metric.get("Dimensions", ()) for part in (each["Name"], each["Value"])]
    return (metric["MetricName"], *dimensions)


def body(template: Template) -> dict[str, Any]:
    """The dashboard, with what is only known once it is deployed as `?`."""
    (resource,) = template.find_resources("AWS::CloudWatch::Dashboard").values()
    parts = resource["Properties"]["DashboardBody"]["Fn::Join"][1]
    dashboard: dict[str, Any] = json.loads("".join(part if isinstance(part, str) else "?" for part in parts))
    return dashboard


def shown(dashboard: Mapping[str, Any]) -> Iterator[list[Any]]:
    """The metrics of all graphs: namespace, name, names and values of dimensions."""
    for widget in dashboard["widgets"]:
        for metric in widget["properties"].get("metrics", ()):
            if isinstance(metric[0], str):
                yield [part for part in metric if isinstance(part, str)]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_dashboard_shows_each_metric_that_the_functions_write_and_no_other(
    template: Synthesize, profile: str
) -> None:
    assert {tuple(parts[1:]) for parts in shown(body(template(profile))) if parts[0] == OWN} == KNOWN


@pytest.mark.parametrize("profile", PROFILES)
def test_alarms_watch_only_metrics_of_ours_that_the_functions_write(template: Synthesize, profile: str) -> None:
    ours = [
        own_in_alarm(metric)
        for alarm in alarms(template(profile)).values()
        for metric in watched(alarm)
        if metric["Namespace"] == OWN
    ]
    assert len(ours) >= 6
    assert set(ours) <= KNOWN


def test_the_functions_write_into_the_namespace_that_is_watched(template: Synthesize) -> None:
    functions = template("small", stack_name="Other").find_resources("AWS::Lambda::Function").values()
    told = {function["Properties"]["Environment"]["Variables"]["FORBEAR_METRICS_NAMESPACE"] for function in functions}
    assert told == {"Forbear/Other"}
    namespaces = {
        metric["Namespace"]
        for alarm in alarms(template("small", stack_name="Other")).values()
        for metric in watched(alarm)
    }
    assert {name for name in namespaces if name.startswith("Forbear/")} == told


def test_everything_that_should_alarm_does(template: Synthesize) -> None:
    """Whichever profile: that is a set of defaults, and each alarm is about something that both have."""
    always = {
        *("DeadLetters", "TimeToSuccess", "OldestReady", "OldestLease", "OldestSnapshot", "ScheduleOffWithWork"),
        *("WakeCallsFailed", "FailedCalls", "ClaimerThrottled", "ScheduleDropped", "ApiErrors", "CapacityAtCeiling"),
    }
    assert alarms(template("small")).keys() == always | {"NatInstance1"}
    assert alarms(template("production")).keys() == always | {"NatGateway1", "NatGateway2"}
    assert alarms(template(**{"api.keys": True})).keys() == always | {"NatInstance1", "KeysApiErrors"}


@pytest.mark.parametrize(("profile", "count", "dollars"), [("small", 13, "0.30"), ("production", 16, "0.60")])
def test_the_bill_says_what_the_alarms_cost(template: Synthesize, profile: str, count: int, dollars: str) -> None:
    """Each metric in an alarm is paid for, but for the first ten of an account."""
    assert sum(len(watched(alarm)) for alarm in alarms(template(profile)).values()) == count
    page = (ROOT / "docs" / "aws.md").read_text(encoding="utf-8")
    (line,) = (line for line in page.splitlines() if line.startswith("| alarms, at $0.10"))
    assert f" {count}: {dollars} |" in line
    assert f"{0.10 * (count - 10):.2f}" == dollars


@pytest.mark.parametrize("profile", PROFILES)
def test_an_idle_stack_has_no_data_and_rings_nobody(template: Synthesize, profile: str) -> None:
    """But a NAT instance always reports, and one that does not is gone."""
    for name, alarm in alarms(template(profile)).items():
        assert alarm["TreatMissingData"] == ("breaching" if name == "NatInstance1" else "notBreaching"), name


@pytest.mark.parametrize("profile", PROFILES)
def test_each_alarm_says_what_it_means_and_what_to_do_first_and_tells_the_topic(
    template: Synthesize, profile: str
) -> None:
    (topic,) = template(profile).find_resources("AWS::SNS::Topic")
    for name, alarm in alarms(template(profile)).items():
        before, _, after = alarm["AlarmDescription"].partition(" First: ")
        assert before.endswith("."), name
        assert len(after) > 40, name
        assert len(alarm["AlarmDescription"]) <= 1024, name
        assert {"Ref": topic} in alarm["AlarmActions"], name
        assert alarm["OKActions"] == [{"Ref": topic}], name


@pytest.mark.parametrize("profile", PROFILES)
def test_an_alarm_tells_people_and_does_nothing_itself(template: Synthesize, profile: str) -> None:
    """EC2 recovers an instance from a failure of its hardware by itself; on missing data nothing should act."""
    for name, alarm in alarms(template(profile)).items():
        assert len(alarm["AlarmActions"]) == 1, name


@pytest.mark.parametrize("profile", PROFILES)
def test_throttled_claimers_are_told_although_they_cannot_measure(template: Synthesize, profile: str) -> None:
    alarm = alarms(template(profile))["ClaimerThrottled"]
    (claimer,) = (
        name
        for name, one in template(profile).find_resources("AWS::Lambda::Function").items()
        if one["Properties"]["Handler"] == "claimer.handler"
    )
    (dimension,) = alarm["Dimensions"]
    assert (alarm["Namespace"], alarm["MetricName"], alarm["Statistic"]) == ("AWS/Lambda", "Throttles", "Sum")
    assert written(dimension["Value"]) == f"<{claimer}>"
    assert (alarm["DatapointsToAlarm"], alarm["EvaluationPeriods"], alarm["Threshold"]) == (2, 3, 0)


def test_thresholds_come_from_the_knobs(template: Synthesize) -> None:
    knobs = {
        "observability.dead_letters": 7,
        "observability.time_to_success_s": 42,
        "observability.oldest_ready_s": 99,
    }
    found = alarms(template("small", **knobs))
    assert [found[name]["Threshold"] for name in ("DeadLetters", "TimeToSuccess", "OldestReady")] == [7, 42, 99]


@pytest.mark.parametrize("profile", PROFILES)
def test_only_the_alarms_of_this_account_may_publish_and_only_over_tls(template: Synthesize, profile: str) -> None:
    (policy,) = template(profile).find_resources("AWS::SNS::TopicPolicy").values()
    deny, allow = policy["Properties"]["PolicyDocument"]["Statement"]
    assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert (allow["Effect"], allow["Principal"]) == ("Allow", {"Service": "cloudwatch.amazonaws.com"})
    assert allow["Condition"].keys() == {"StringEquals", "ArnLike"}


def test_under_a_key_of_its_own_the_topic_is_encrypted_and_cloudwatch_may_use_the_key(template: Synthesize) -> None:
    own_key = template("small", **{"functions.own_key": True})
    own_key.has_resource_properties("AWS::SNS::Topic", {"KmsMasterKeyId": Match.any_value()})
    own_key.has_resource_properties(
        "AWS::KMS::Key",
        {
            "KeyPolicy": {
                "Statement": Match.array_with(
                    [
                        Match.object_like(
                            {
                                "Action": ["kms:Decrypt", "kms:GenerateDataKey*"],
                                "Principal": {"Service": "cloudwatch.amazonaws.com"},
                            }
                        )
                    ]
                )
            }
        },
    )
    # The AWS-managed key would keep alarms out.
    template("small").has_resource_properties("AWS::SNS::Topic", {"KmsMasterKeyId": Match.absent()})


def test_whoever_is_to_get_the_alarms_is_subscribed(template: Synthesize) -> None:
    template("small").resource_count_is("AWS::SNS::Subscription", 0)
    told = template("small", **{"observability.alarm_email": "ops@example.com"})
    told.has_resource_properties("AWS::SNS::Subscription", {"Protocol": "email", "Endpoint": "ops@example.com"})


def test_there_need_be_no_dashboard(template: Synthesize) -> None:
    without = template("small", **{"observability.dashboard": False})
    without.resource_count_is("AWS::CloudWatch::Dashboard", 0)
    assert "Dashboard" not in without.find_outputs("*")
    assert "Dashboard" in template("small").find_outputs("*")


@pytest.mark.parametrize("profile", PROFILES)
def test_the_dashboard_shows_aws_metrics_of_this_stack_only(template: Synthesize, profile: str) -> None:
    """Each has a dimension that names one resource; without one it would sum up the account."""
    foreign = [parts for parts in shown(body(template(profile))) if parts[0].startswith("AWS/")]
    assert {"AWS/Lambda", "AWS/RDS", "AWS/ApiGateway", "AWS/Logs"} <= {parts[0] for parts in foreign}
    assert all(len(parts) >= 4 for parts in foreign)
