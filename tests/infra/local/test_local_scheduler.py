"""Schedules: when they fire, and how they are changed, from Python and through boto3."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from infra.local.errors import FunctionNotFound, InvalidSchedule, ScheduleExists, ScheduleNotFound
from infra.local.scheduler import Schedule
from infra.local.stack import LocalStack, Timing
from tests.infra.local.support import PATIENCE_S, Launch, Output, call, plain

QUICK = Timing(minute_s=0.04, grace_s=0.2)
EVERY_MINUTE = Schedule(name="tick", expression="rate(1 minute)", function="plain", input='{"tick": 1}')

type Boto = Callable[..., Awaitable[Any]]


def ticks(lines: list[str]) -> list[Any]:
    return [json.loads(line.removeprefix("plain: tick ")) for line in lines if line.startswith("plain: tick ")]


def is_armed(stack: LocalStack) -> bool:
    return stack.scheduler._entries["tick"].timer is not None


def timer_of(stack: LocalStack) -> asyncio.TimerHandle:
    timer = stack.scheduler._entries["tick"].timer
    assert timer is not None
    return timer


def boto(stack: LocalStack, operation: str) -> Boto:
    client = boto3.client(
        "scheduler",
        endpoint_url=stack.aws_url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
    )

    async def run(**arguments: Any) -> Any:
        try:
            return await asyncio.to_thread(getattr(client, operation), **arguments)
        finally:
            client.close()

    return run


async def test_a_rate_fires_at_once_and_then_once_a_period(launch: Launch, output: Output) -> None:
    stack = await launch(plain(), schedules=[EVERY_MINUTE], timing=QUICK)
    await output.until(lambda lines: len(ticks(lines)) >= 4)
    assert ticks(output.lines)[0] == {"tick": 1}
    assert stack.scheduler.get("tick")[0] == EVERY_MINUTE


@pytest.mark.parametrize(
    ("expression", "minutes"), [("rate(2 minutes)", 2), ("rate(1 hour)", 60), ("rate(2 days)", 2_880)]
)
async def test_a_rate_counts_minutes_hours_and_days(
    launch: Launch, output: Output, expression: str, minutes: int
) -> None:
    every = Schedule(name="tick", expression=expression, function="plain", input="{}")
    stack = await launch(plain(), schedules=[every])
    await output.until(lambda lines: len(ticks(lines)) == 1)
    due_in_s = timer_of(stack).when() - asyncio.get_running_loop().time()
    assert minutes * 60 - PATIENCE_S < due_in_s <= minutes * 60


async def test_a_disabled_schedule_does_not_fire_until_it_is_enabled(launch: Launch, output: Output) -> None:
    off = Schedule(name="tick", expression="rate(1 minute)", function="plain", input="{}", enabled=False)
    stack = await launch(plain(), schedules=[off], timing=QUICK)
    assert not is_armed(stack)
    stack.scheduler.update(EVERY_MINUTE)
    await output.until(lambda lines: len(ticks(lines)) >= 2)


async def test_an_update_that_changes_no_time_keeps_the_beat(launch: Launch, output: Output) -> None:
    stack = await launch(plain(), schedules=[EVERY_MINUTE])
    await output.until(lambda lines: len(ticks(lines)) == 1)
    timer = timer_of(stack)
    stack.scheduler.update(replace(EVERY_MINUTE, input="{}"))
    assert timer_of(stack) is timer


async def test_a_one_time_schedule_fires_once_at_its_time(launch: Launch, output: Output) -> None:
    stack = await launch(plain(), timing=QUICK)
    await call(stack, {"return": "warm"})
    time = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    expression = f"at({time:%Y-%m-%dT%H:%M:%S})"
    stack.scheduler.create(Schedule(name="once", expression=expression, function="plain", input='{"once": 1}'))
    await output.until(lambda lines: ticks(lines) == [{"once": 1}])
    assert datetime.now(UTC) >= time
    assert stack.scheduler.get("once")[0].enabled


async def test_a_one_time_schedule_whose_time_has_passed_fires_at_once(launch: Launch, output: Output) -> None:
    past = Schedule(name="once", expression="at(2020-02-29T00:00:00)", function="plain")
    await launch(plain(), schedules=[past])
    (event,) = ticks(await output.until(lambda lines: bool(ticks(lines))))
    assert event["source"] == "aws.scheduler"
    assert event["resources"] == ["arn:aws:scheduler:us-east-1:000000000000:schedule/default/once"]


@pytest.mark.parametrize(
    "change",
    [
        {"expression": "rate(0 minutes)"},
        {"expression": "rate(5 seconds)"},
        {"expression": "cron(* * * * ? *)"},
        {"expression": "at(2026-02-30T00:00:00)"},
        {"name": "no spaces"},
        {"input": "{"},
    ],
)
async def test_a_schedule_that_cannot_be_is_refused(launch: Launch, change: dict[str, str]) -> None:
    stack = await launch(plain())
    fields = {"name": "tick", "expression": "rate(1 minute)", "function": "plain", "input": "{}", **change}
    with pytest.raises(InvalidSchedule):
        stack.scheduler.create(Schedule(**fields))  # type: ignore[arg-type]  # all of the fields given are text
    with pytest.raises(FunctionNotFound):
        stack.scheduler.create(Schedule(name="tick", expression="rate(1 minute)", function="other"))
    with pytest.raises(ScheduleNotFound):
        stack.scheduler.update(EVERY_MINUTE)


async def test_boto3_reads_a_schedule(launch: Launch) -> None:
    stack = await launch(plain(), schedules=[EVERY_MINUTE])
    answer = await boto(stack, "get_schedule")(Name="tick")
    assert answer["State"] == "ENABLED"
    assert answer["ScheduleExpression"] == "rate(1 minute)"
    assert answer["Target"]["Arn"] == "arn:aws:lambda:us-east-1:000000000000:function:plain"
    assert answer["Target"]["Input"] == '{"tick": 1}'
    assert answer["FlexibleTimeWindow"] == {"Mode": "OFF"}
    assert datetime.now(UTC) - answer["CreationDate"] < timedelta(minutes=1)


async def test_boto3_disables_and_enables_a_schedule(launch: Launch, output: Output) -> None:
    stack = await launch(plain(), schedules=[EVERY_MINUTE], timing=QUICK)
    await output.until(lambda lines: len(ticks(lines)) >= 2)
    current = await boto(stack, "get_schedule")(Name="tick")
    kept = {name: current[name] for name in ("Name", "ScheduleExpression", "Target", "FlexibleTimeWindow")}
    await boto(stack, "update_schedule")(**kept, State="DISABLED")
    assert not stack.scheduler.get("tick")[0].enabled
    assert not is_armed(stack)
    so_far = len(ticks(output.lines))
    await boto(stack, "update_schedule")(**kept, State="ENABLED")
    await output.until(lambda lines: len(ticks(lines)) >= so_far + 2)


async def test_an_update_through_boto3_replaces_the_schedule_as_a_whole(launch: Launch) -> None:
    before = Schedule(
        name="tick",
        expression="rate(1 minute)",
        function="plain",
        input="{}",
        enabled=False,
        description="for people",
    )
    stack = await launch(plain(), plain("other"), schedules=[before])
    target = {
        "Arn": "arn:aws:lambda:us-east-1:000000000000:function:other",
        "RoleArn": "arn:aws:iam::000000000000:role/r",
    }
    await boto(stack, "update_schedule")(
        Name="tick", ScheduleExpression="rate(2 hours)", Target=target, FlexibleTimeWindow={"Mode": "OFF"}
    )
    after, created_at, changed_at = stack.scheduler.get("tick")
    assert after == Schedule(name="tick", expression="rate(2 hours)", function=target["Arn"])
    assert changed_at > created_at


async def test_boto3_creates_a_schedule_once(launch: Launch, output: Output) -> None:
    stack = await launch(plain())
    target = {
        "Arn": "arn:aws:lambda:us-east-1:000000000000:function:plain",
        "RoleArn": "arn:aws:iam::000000000000:role/r",
        "Input": '{"made": true}',
    }
    wanted = {"Name": "new", "ScheduleExpression": "rate(5 minutes)", "Target": target}
    answer = await boto(stack, "create_schedule")(**wanted, FlexibleTimeWindow={"Mode": "OFF"})
    assert answer["ScheduleArn"].endswith("schedule/default/new")
    await output.until(lambda lines: ticks(lines) == [{"made": True}])
    with pytest.raises(ClientError, match="ConflictException"):
        await boto(stack, "create_schedule")(**wanted, FlexibleTimeWindow={"Mode": "OFF"})
    with pytest.raises(ScheduleExists):
        stack.scheduler.create(stack.scheduler.get("new")[0])


async def test_boto3_is_told_what_is_wrong(launch: Launch) -> None:
    stack = await launch(plain(), schedules=[EVERY_MINUTE])
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        await boto(stack, "get_schedule")(Name="other")
    target = {"Arn": "plain", "RoleArn": "arn:aws:iam::000000000000:role/r"}
    wanted = {"Name": "tick", "Target": target, "FlexibleTimeWindow": {"Mode": "OFF"}}
    with pytest.raises(ClientError, match="ValidationException"):
        await boto(stack, "update_schedule")(**wanted, ScheduleExpression="rate(1 fortnight)")
    with pytest.raises(ClientError, match="Only UTC"):
        await boto(stack, "update_schedule")(
            **wanted, ScheduleExpression="rate(1 minute)", ScheduleExpressionTimezone="Europe/Berlin"
        )
