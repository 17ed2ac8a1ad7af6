"""Lambda Invoke, as boto3 calls it."""

import asyncio
import json
from typing import Any

import boto3
import httpx
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from infra.local.functions import MAX_EVENT_BYTES
from infra.local.scheduler import Schedule
from infra.local.stack import LocalStack
from tests.infra.local.support import Gate, Launch, Output, call, plain


async def invoke(stack: LocalStack, function: str = "plain", **arguments: Any) -> Any:
    client = boto3.client(
        "lambda",
        endpoint_url=stack.aws_url,
        region_name="us-east-1",
        aws_access_key_id="local",
        aws_secret_access_key="local",
        config=Config(retries={"total_max_attempts": 1}),
    )
    try:
        answer = await asyncio.to_thread(client.invoke, FunctionName=function, **arguments)
        answer["Payload"] = await asyncio.to_thread(answer["Payload"].read)
    finally:
        client.close()
    return answer


async def test_a_synchronous_invocation_answers_with_the_result(launch: Launch) -> None:
    stack = await launch(plain())
    answer = await invoke(stack, Payload=b'{"return": "done"}')
    assert answer["StatusCode"] == 200
    assert answer["ExecutedVersion"] == "$LATEST"
    assert json.loads(answer["Payload"]) == "done"
    assert "FunctionError" not in answer


async def test_an_error_of_the_function_is_marked(launch: Launch) -> None:
    stack = await launch(plain())
    answer = await invoke(stack, Payload=b'{"raise": "no"}')
    assert answer["StatusCode"] == 200
    assert answer["FunctionError"] == "Unhandled"
    assert json.loads(answer["Payload"])["errorMessage"] == "no"


async def test_an_asynchronous_invocation_is_accepted_with_202(launch: Launch, output: Output) -> None:
    stack = await launch(plain())
    function = "arn:aws:lambda:us-east-1:000000000000:function:plain"
    answer = await invoke(stack, function, InvocationType="Event", Payload=b'{"by": "boto3"}')
    assert answer["StatusCode"] == 202
    assert answer["Payload"] == b""
    await output.until(lambda lines: 'plain: tick {"by": "boto3"}' in lines)


async def test_an_invocation_without_a_payload_has_an_empty_event(launch: Launch, output: Output) -> None:
    stack = await launch(plain())
    await invoke(stack)
    await output.until(lambda lines: "plain: tick {}" in lines)


async def test_refusals_have_the_codes_of_lambda(launch: Launch, gate: Gate) -> None:
    stack = await launch(plain(max_environments=1))
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        await invoke(stack, "other")
    with pytest.raises(ClientError, match="InvalidRequestContentException"):
        await invoke(stack, Payload=b"{")
    with pytest.raises(ClientError, match="RequestEntityTooLargeException") as refused:
        await invoke(stack, InvocationType="Event", Payload=json.dumps("x" * MAX_EVENT_BYTES).encode())
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413
    running = asyncio.create_task(stack.functions.invoke("plain", gate.event))
    await gate.arrival()
    with pytest.raises(ClientError, match="TooManyRequestsException") as refused:
        await invoke(stack)
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 429
    gate.open()
    await running


async def test_a_function_finds_the_services_without_being_told(launch: Launch, output: Output) -> None:
    schedule = Schedule(name="off", expression="rate(1 minute)", function="plain", enabled=False)
    stack = await launch(plain(), plain("caller", handler="caller.handler"), schedules=[schedule])
    assert await call(stack, {"function": "plain", "schedule": "off"}, function="caller") == 202
    await output.until(lambda lines: 'plain: tick {"from": 1}' in lines)


async def test_another_operation_is_not_found(launch: Launch, client: httpx.AsyncClient) -> None:
    stack = await launch(plain())
    assert (await client.get(f"{stack.aws_url}/2015-03-31/functions")).status_code == 404
