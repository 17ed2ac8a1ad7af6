"""The AWS endpoints that the functions call: Lambda Invoke, and EventBridge Scheduler's schedules, for any SDK.

Owns the REST documents of both services and their errors; signatures are not looked at. An SDK finds them through
`AWS_ENDPOINT_URL_LAMBDA` and `AWS_ENDPOINT_URL_SCHEDULER`. Source: the two services' API references.
"""

import json
import logging
import uuid
from datetime import UTC, datetime
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from infra.local.errors import AwsError, InvalidRequestContent, InvalidSchedule
from infra.local.functions import Functions
from infra.local.pool import ACCOUNT_ID
from infra.local.scheduler import Schedule, Scheduler

logger = logging.getLogger(__name__)

_TIME_ZONES_THAT_ARE_UTC = {None, "UTC", "Etc/UTC"}


def aws_api(functions: Functions, scheduler: Scheduler) -> Starlette:
    """The endpoints as an ASGI application.

    Args:
        functions: What Lambda Invoke invokes.
        scheduler: What the schedule calls read and change.

    Returns:
        The application.
    """

    async def invoke(request: Request) -> Response:
        name = request.path_params["name"]
        payload = await request.body() or b"{}"
        try:
            json.loads(payload)
        except ValueError as error:
            raise InvalidRequestContent(str(error)) from error
        if request.headers.get("x-amz-invocation-type") == "Event":
            return Response(
                status_code=HTTPStatus.ACCEPTED,
                headers={"x-amzn-requestid": functions.invoke_async(name, payload)},
            )
        outcome = await functions.invoke(name, payload)
        headers = {"x-amz-executed-version": "$LATEST", "x-amzn-requestid": str(uuid.uuid4())}
        if outcome.error is not None:
            headers["x-amz-function-error"] = outcome.error
        return Response(outcome.payload, media_type="application/json", headers=headers)

    async def get_schedule(request: Request) -> Response:
        schedule, created_at, changed_at = scheduler.get(request.path_params["name"])
        return JSONResponse(
            {
                "ActionAfterCompletion": "NONE",
                "Arn": schedule.arn,
                "CreationDate": created_at.timestamp(),
                "Description": schedule.description,
                "FlexibleTimeWindow": {"Mode": "OFF"},
                "GroupName": "default",
                "LastModificationDate": changed_at.timestamp(),
                "Name": schedule.name,
                "ScheduleExpression": schedule.expression,
                "ScheduleExpressionTimezone": "UTC",
                "State": "ENABLED" if schedule.enabled else "DISABLED",
                "Target": {
                    "Arn": functions.spec(schedule.function).arn,
                    "RoleArn": f"arn:aws:iam::{ACCOUNT_ID}:role/local",
                    "RetryPolicy": {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 0},
                    **({} if schedule.input is None else {"Input": schedule.input}),
                },
            },
            headers={"date": format_datetime(datetime.now(UTC), usegmt=True)},
        )

    async def create_schedule(request: Request) -> Response:
        schedule = await _read_schedule(request)
        scheduler.create(schedule)
        return JSONResponse({"ScheduleArn": schedule.arn})

    async def update_schedule(request: Request) -> Response:
        schedule = await _read_schedule(request)
        scheduler.update(schedule)
        return JSONResponse({"ScheduleArn": schedule.arn})

    return Starlette(
        routes=[
            Route("/2015-03-31/functions/{name}/invocations", invoke, methods=["POST"]),
            Route("/schedules/{name}", get_schedule, methods=["GET"]),
            Route("/schedules/{name}", create_schedule, methods=["POST"]),
            Route("/schedules/{name}", update_schedule, methods=["PUT"]),
        ],
        exception_handlers={AwsError: _refuse, ClientDisconnect: _hang_up},
    )


async def _read_schedule(request: Request) -> Schedule:
    """A schedule from a create or update call; what is left out has its default, also when it was set before."""
    document: dict[str, Any] = await request.json()
    try:
        target = document["Target"]
        target["RoleArn"], document["FlexibleTimeWindow"]["Mode"]
        if document.get("ScheduleExpressionTimezone") not in _TIME_ZONES_THAT_ARE_UTC:
            raise InvalidSchedule("Only UTC is known here.")
        return Schedule(
            name=request.path_params["name"],
            expression=document["ScheduleExpression"],
            function=target["Arn"],
            input=target.get("Input"),
            enabled=document.get("State", "ENABLED") == "ENABLED",
            description=document.get("Description", ""),
        )
    except KeyError as error:
        raise InvalidSchedule(f"Missing required field {error}.") from error


async def _refuse(_: Request, error: Exception) -> Response:
    if not isinstance(error, AwsError):  # Starlette calls this for AwsError only, but says Exception
        raise error
    # The services disagree on whether it is "message" or "Message"; SDKs read either.
    return JSONResponse({"message": str(error), **error.fields}, error.status, headers={"x-amzn-errortype": error.code})


async def _hang_up(_: Request, __: Exception) -> Response:
    return Response(status_code=HTTPStatus.BAD_REQUEST)  # reaches nobody: a function was killed while it called
