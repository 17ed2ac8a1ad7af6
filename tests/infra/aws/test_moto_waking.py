"""The claimer's schedule and its wake-up call, through boto3 against moto's Scheduler and Lambda, in process."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import boto3
import psycopg
import pytest
from moto import mock_aws
from moto.awslambda_simple.models import LambdaSimpleBackend

import claimer
import ingest
from forbear import waking
from forbear.db import Database
from forbear.settings import Settings
from forbear.waking import RATE, AwsWaking, invoke_claimer, wake
from tests.functions.builders import key_file, make_endpoint, one, post, run
from tests.functions.conftest import forget
from tests.functions.events import http_event

type Connection = psycopg.Connection[tuple[Any, ...]]

REGION = "eu-central-1"
ACCOUNT = "arn:aws:iam::123456789012"
CLAIMER, TICK, GROUP = "forbear-claimer", "tick", "Forbear"
FUNCTION = f"arn:aws:lambda:{REGION}:123456789012:function:{CLAIMER}"
SCHEDULE: dict[str, Any] = {
    "Description": "wakes the claimer",
    "FlexibleTimeWindow": {"Mode": "FLEXIBLE", "MaximumWindowInMinutes": 1},
    "KmsKeyArn": f"arn:aws:kms:{REGION}:123456789012:key/one",
    "ScheduleExpressionTimezone": "UTC",
    "Target": {
        "Arn": FUNCTION,
        "RoleArn": f"{ACCOUNT}:role/scheduler",
        "Input": '{"forbear": "tick"}',
        "RetryPolicy": {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60},
        "DeadLetterConfig": {"Arn": f"arn:aws:sqs:{REGION}:123456789012:failures"},
    },
}
SETTINGS = Settings(
    database_url="postgresql://nobody@127.0.0.1/none",
    claimer_function=CLAIMER,
    schedule_name=TICK,
    schedule_group=GROUP,
)
# Nothing listens there: an attempt fails at once, and is due again long after the next tick, or never.
AGAIN_IN_TEN_MINUTES = {"schedule": {"kind": "ladder", "gaps_s": [600], "jitter": {"kind": "none"}}}


@dataclass(frozen=True)
class Call:
    """An invocation that Lambda took."""

    function: str
    how: str | None
    event: Any


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An AWS account in this process, with the claimer's function, its schedule, and another one of the same name."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    waking._client.cache_clear()
    with mock_aws(config={"lambda": {"use_docker": False}}):
        scheduler = boto3.client("scheduler")
        scheduler.create_schedule_group(Name=GROUP)
        for group in (GROUP, "default"):
            scheduler.create_schedule(Name=TICK, GroupName=group, State="DISABLED", ScheduleExpression=RATE, **SCHEDULE)
        create_claimer()
        yield
    waking._client.cache_clear()


@pytest.fixture
def calls(account: None, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """What Lambda was asked to invoke. moto's stand-in without Docker neither looks for the function nor runs it."""
    taken: list[Call] = []

    def invoke(backend: Any, function: str, qualifier: str | None, body: str, headers: Any, _answer: Any) -> bytes:
        backend.get_function(function, qualifier)  # raises what becomes a ResourceNotFoundException
        taken.append(Call(function, headers.get("X-Amz-Invocation-Type"), json.loads(body)))
        return b"null"

    monkeypatch.setattr(LambdaSimpleBackend, "invoke", invoke)
    return taken


@pytest.fixture
def environment(account: None, database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The functions' environment as the stack sets it, on this test's database."""
    for name, value in (
        ("DATABASE_URL", database_url),
        ("KEY", str(key_file())),
        ("CLAIMER_FUNCTION", CLAIMER),
        ("SCHEDULE_NAME", TICK),
        ("SCHEDULE_GROUP", GROUP),
        ("ALLOW_NETWORKS", "127.0.0.0/8"),
        ("ALLOW_HTTP", "true"),
        ("LINGER_S", "0"),
    ):
        monkeypatch.setenv(f"FORBEAR_{name}", value)
    forget()
    yield monkeypatch
    forget()


@pytest.fixture
def claim(environment: pytest.MonkeyPatch, calls: list[Call]) -> Iterator[Callable[[str], dict[str, Any]]]:
    """Runs the claimer function as its environment would."""
    context = SimpleNamespace(
        function_name=CLAIMER,
        function_version="$LATEST",
        memory_limit_in_mb=512,
        invoked_function_arn=FUNCTION,
        aws_request_id="one",
        get_remaining_time_in_millis=lambda: 60_000,
    )
    yield lambda why: claimer.handler({"forbear": why}, context)
    claimer.runner.run(claimer._store().aclose())
    claimer._store.cache_clear()
    claimer._sender.cache_clear()


def create_claimer() -> None:
    assume = {"Statement": {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}}}
    role = boto3.client("iam").create_role(RoleName="claimer", AssumeRolePolicyDocument=json.dumps(assume))
    boto3.client("lambda").create_function(
        FunctionName=CLAIMER,
        Role=role["Role"]["Arn"],
        Runtime="python3.13",
        Handler="claimer.handler",
        Code={"ZipFile": b"not run"},
    )


def delete_claimer() -> None:
    boto3.client("lambda").delete_function(FunctionName=CLAIMER)


def schedule(group: str = GROUP) -> dict[str, Any]:
    return dict(boto3.client("scheduler").get_schedule(Name=TICK, GroupName=group))


def state(group: str = GROUP) -> tuple[str, str]:
    read = schedule(group)
    return read["State"], read["ScheduleExpression"]


def rest_of(read: dict[str, Any]) -> dict[str, Any]:
    return {name: read[name] for name in SCHEDULE}


@pytest.mark.usefixtures("account")
class TestSchedule:
    def test_it_is_switched_on_off_and_to_a_time_and_keeps_everything_else(self) -> None:
        aws = AwsWaking(SETTINGS)
        before = schedule()
        assert rest_of(before) == SCHEDULE
        assert run(aws.keep_ticking()) is True
        assert state() == ("ENABLED", "rate(1 minute)")
        assert run(aws.stop_ticking(7200.0)) is True
        assert state()[0] == "ENABLED"
        assert state()[1].startswith("at(")
        assert run(aws.stop_ticking(None)) is True
        assert state() == ("DISABLED", "rate(1 minute)")
        assert rest_of(schedule()) == SCHEDULE

    def test_the_time_it_rests_until_is_utc_to_the_second(self) -> None:
        earliest = time.time() + 600
        run(AwsWaking(SETTINGS).stop_ticking(600.0))
        latest = time.time() + 600
        at = datetime.strptime(state()[1], "at(%Y-%m-%dT%H:%M:%S)").replace(tzinfo=UTC)
        assert datetime.fromtimestamp(earliest, UTC) - timedelta(seconds=1) <= at
        assert at <= datetime.fromtimestamp(latest, UTC) + timedelta(seconds=1)

    @pytest.mark.parametrize("off_s", [3600, -3600])
    def test_the_time_it_rests_until_is_by_the_schedulers_clock(
        self, monkeypatch: pytest.MonkeyPatch, off_s: float
    ) -> None:
        """With a function's own clock an hour ahead, what is due would wait an hour longer."""
        latest = time.time() + 660
        monkeypatch.setattr(waking, "time", SimpleNamespace(time=lambda: time.time() + off_s))
        run(AwsWaking(SETTINGS).stop_ticking(600.0))
        at = datetime.strptime(state()[1], "at(%Y-%m-%dT%H:%M:%S)").replace(tzinfo=UTC)
        assert latest - 65 <= at.timestamp() <= latest

    def test_another_stacks_schedule_of_the_same_name_is_left_alone(self) -> None:
        run(AwsWaking(SETTINGS).keep_ticking())
        assert state("default") == ("DISABLED", RATE)

    def test_a_schedule_that_is_not_there_is_logged_and_not_raised(self, caplog: pytest.LogCaptureFixture) -> None:
        boto3.client("scheduler").delete_schedule(Name=TICK, GroupName=GROUP)
        assert run(AwsWaking(SETTINGS).keep_ticking()) is False
        assert run(AwsWaking(SETTINGS).stop_ticking(None)) is False
        failures = [record.levelno for record in caplog.records if record.levelno > logging.INFO]
        assert failures == [logging.ERROR] * 2
        assert "schedule" in caplog.text

    def test_without_a_schedules_name_nothing_is_switched(self) -> None:
        nameless = replace(SETTINGS, schedule_name=None)
        assert run(AwsWaking(nameless).keep_ticking()) is True
        assert state() == ("DISABLED", RATE)


class TestCall:
    @pytest.mark.parametrize("reason", ["wake", "full", "successor"])
    def test_it_is_asynchronous_and_says_why(self, calls: list[Call], reason: str) -> None:
        assert invoke_claimer(SETTINGS, reason) is True
        assert calls == [Call(CLAIMER, "Event", {"forbear": reason})]

    def test_the_loops_call_is_the_same(self, calls: list[Call]) -> None:
        run(AwsWaking(SETTINGS).call("full"))
        assert calls == [Call(CLAIMER, "Event", {"forbear": "full"})]

    def test_one_that_fails_is_logged_and_not_raised(self, calls: list[Call], caplog: pytest.LogCaptureFixture) -> None:
        delete_claimer()
        assert invoke_claimer(SETTINGS, "wake") is False
        run(AwsWaking(SETTINGS).call("full"))
        assert calls == []
        failures = [record.levelno for record in caplog.records if record.levelno > logging.INFO]
        assert failures == [logging.ERROR] * 2

    def test_without_a_functions_name_nobody_is_called(self, calls: list[Call]) -> None:
        assert invoke_claimer(replace(SETTINGS, claimer_function=None), "wake") is True
        assert calls == []

    def test_one_claimer_is_called_however_often_work_comes_and_a_failed_call_is_repeated(
        self, calls: list[Call], database_url: str
    ) -> None:
        database = Database(database_url)
        delete_claimer()
        wake(database, SETTINGS)
        create_claimer_again()
        for _ in range(3):
            wake(database, SETTINGS)
        database.close()
        assert calls == [Call(CLAIMER, "Event", {"forbear": "wake"})]


def create_claimer_again() -> None:
    boto3.client("iam").delete_role(RoleName="claimer")
    create_claimer()


@pytest.mark.usefixtures("environment")
class TestHandlers:
    def test_ingest_calls_a_claimer_once_until_one_has_been(self, calls: list[Call], connection: Connection) -> None:
        make_endpoint(connection)
        for _ in range(2):
            assert take_in() == 202
        assert calls == [Call(CLAIMER, "Event", {"forbear": "wake"})]

    def test_an_event_is_accepted_although_nobody_can_be_called(
        self, calls: list[Call], connection: Connection
    ) -> None:
        make_endpoint(connection)
        delete_claimer()
        assert take_in() == 202
        assert calls == []
        assert one(connection, "SELECT count(*) FROM forbear.queue") == 1

    def test_a_claimer_with_work_for_later_has_the_schedule_fire_then(
        self, claim: Callable[[str], dict[str, Any]], connection: Connection
    ) -> None:
        make_endpoint(connection, policy=AGAIN_IN_TEN_MINUTES)
        post(connection, b"1")
        earliest = datetime.now(UTC) + timedelta(seconds=598)
        assert claim("wake")["claimed"] == 1
        enabled, expression = state()
        assert enabled == "ENABLED"
        at = datetime.strptime(expression, "at(%Y-%m-%dT%H:%M:%S)").replace(tzinfo=UTC)
        assert earliest <= at <= datetime.now(UTC) + timedelta(seconds=602)
        assert rest_of(schedule()) == SCHEDULE

    def test_a_claimer_that_finds_nothing_switches_the_schedule_off(
        self, claim: Callable[[str], dict[str, Any]], connection: Connection
    ) -> None:
        boto3.client("scheduler").update_schedule(
            Name=TICK, GroupName=GROUP, State="ENABLED", ScheduleExpression=RATE, **SCHEDULE
        )
        claim("tick")
        assert state() == ("DISABLED", RATE)
        assert one(connection, "SELECT schedule FROM forbear.control") == "resting"

    def test_a_schedule_that_cannot_be_switched_stops_no_delivery(
        self, claim: Callable[[str], dict[str, Any]], connection: Connection
    ) -> None:
        boto3.client("scheduler").delete_schedule(Name=TICK, GroupName=GROUP)
        make_endpoint(connection, policy=AGAIN_IN_TEN_MINUTES)
        post(connection, b"1")
        assert claim("wake")["claimed"] == 1


def take_in() -> int:
    body = b'{"tenant":"acme","type":"order.paid","payload":{}}'
    event = http_event("POST", "/v1/events", headers={"content-type": "application/json"}, body=body)
    return int(ingest.handler(event, None)["statusCode"])
