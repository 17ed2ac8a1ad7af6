from __future__ import annotations

import json
from typing import Any

from aws_cdk.assertions import Template

from forbear.waking import RATE
from tests.infra.aws.conftest import Synthesize
from tests.infra.aws.reading import resources, rights, written


def schedules(template: Template) -> dict[str, dict[str, Any]]:
    return {one["Name"]: one for one in resources(template, "Scheduler::Schedule").values()}


def claimer(template: Template) -> str:
    (name,) = (name for name, one in resources(template, "Lambda::Function").items() if "claimer" in one["Handler"])
    return f"<{name}.Arn>"


def test_the_tick_is_what_the_claimer_switches_back_to(template: Synthesize) -> None:
    """The claimer's own idea of the rate and the stack's must agree, or the first switch would change it."""
    tick = schedules(template())["tick"]
    assert (tick["ScheduleExpression"], tick["State"]) == (RATE, "ENABLED")
    assert json.loads(tick["Target"]["Input"]) == {"forbear": "tick"}


def test_the_sweep_goes_on_whatever_the_tick_does(template: Synthesize) -> None:
    sweep = schedules(template())["sweep"]
    assert (sweep["ScheduleExpression"], sweep["State"]) == ("rate(6 hours)", "ENABLED")
    assert json.loads(sweep["Target"]["Input"]) == {"forbear": "sweep"}
    assert schedules(template(**{"schedule.sweep_hours": "1"}))["sweep"]["ScheduleExpression"] == "rate(1 hour)"
    assert schedules(template(**{"schedule.sweep_hours": "24"}))["sweep"]["ScheduleExpression"] == "rate(1 day)"


def test_a_schedule_starts_the_claimer_once_or_not_at_all_and_says_so(template: Synthesize) -> None:
    """Another tick follows within the minute; a repeated one would only be in its way."""
    made = template()
    (queue,) = resources(made, "SQS::Queue")
    for schedule in schedules(made).values():
        target = schedule["Target"]
        assert written(target["Arn"]) == claimer(made)
        assert target["RetryPolicy"] == {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}
        assert written(target["DeadLetterConfig"]["Arn"]) == f"<{queue}.Arn>"
        assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}


def test_schedules_of_two_stacks_do_not_meet(template: Synthesize) -> None:
    made = template(stack_name="Hooks")
    (group,) = resources(made, "Scheduler::ScheduleGroup").values()
    assert group["Name"] == "Hooks"
    assert {one["GroupName"] for one in schedules(made).values()} == {"Hooks"}


def test_a_schedule_fires_when_its_group_is_there_and_its_role_may_act(template: Synthesize) -> None:
    made = template()
    (group,) = resources(made, "Scheduler::ScheduleGroup")
    needed = {group} | {name for name in resources(made, "IAM::Policy") if name.startswith("SchedulesRole")}
    for schedule in made.find_resources("AWS::Scheduler::Schedule").values():
        assert needed <= set(schedule["DependsOn"])


def test_the_schedules_may_start_the_claimer_and_report_a_failure(template: Synthesize) -> None:
    made = template()
    (queue,) = resources(made, "SQS::Queue")
    assert rights(made, "SchedulesRole") == [
        ("lambda:InvokeFunction", claimer(made)),
        ("sqs:SendMessage", f"<{queue}.Arn>"),
    ]


def test_nobody_elses_schedule_may_use_the_role(template: Synthesize) -> None:
    made = template()
    (group,) = resources(made, "Scheduler::ScheduleGroup")
    (role,) = (one for name, one in resources(made, "IAM::Role").items() if name.startswith("SchedulesRole"))
    (trust,) = role["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "scheduler.amazonaws.com"}
    assert trust["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}},
        "ArnEquals": {"aws:SourceArn": {"Fn::GetAtt": [group, "Arn"]}},
    }


def test_no_schedule_is_there_before_the_schema(template: Synthesize) -> None:
    """They start a claimer, and that waits for the migration before it."""
    made = template()
    (function,) = made.find_resources("AWS::Lambda::Function", {"Properties": {"Handler": "claimer.handler"}}).values()
    migrations = made.find_resources("Custom::ForbearMigrations", {"Properties": {"Phase": "pre"}})
    assert set(migrations) <= set(function["DependsOn"])
