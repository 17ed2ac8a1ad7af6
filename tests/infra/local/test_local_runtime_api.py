"""The Runtime API where a runtime does what it should not, or the unexpected."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from infra.local.runtime_api import Invocation, Outcome, RuntimeApi
from tests.infra.local.support import eventually

NEXT = "/2018-06-01/runtime/invocation/next"
WORK = Invocation(
    request_id="8476a536-e9f4-11e8-9739-2dfe598c3fcd",
    function_arn="arn:aws:lambda:us-east-2:123456789012:function:custom-runtime",
    trace_id="Root=1-5bef4de7-ad49b0e87f6ef6c87fc2e700;Parent=9a9197af755a6419;Sampled=1",
    timeout_s=3.0,
    payload=b'{"a": 1}',
)


@pytest.fixture
async def taken() -> list[Invocation]:
    return []


@pytest.fixture
async def api(taken: list[Invocation]) -> AsyncIterator[RuntimeApi]:
    api = RuntimeApi("127.0.0.1", taken.append)
    await api.start()
    yield api
    await api.stop()


@pytest.fixture
async def runtime(api: RuntimeApi) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://{api.address}", trust_env=False) as runtime:
        yield runtime


async def test_an_invocation_carries_what_lambda_documents(
    api: RuntimeApi, runtime: httpx.AsyncClient, taken: list[Invocation]
) -> None:
    outcome = api.offer(WORK)
    assert not api.taken
    given = await runtime.get(NEXT)
    assert given.content == WORK.payload
    assert given.headers["lambda-runtime-aws-request-id"] == WORK.request_id
    assert given.headers["lambda-runtime-invoked-function-arn"] == WORK.function_arn
    assert given.headers["lambda-runtime-trace-id"] == WORK.trace_id
    assert int(given.headers["lambda-runtime-deadline-ms"]) > 1_700_000_000_000
    assert taken == [WORK]
    answer = await runtime.post(f"/2018-06-01/runtime/invocation/{WORK.request_id}/response", content=b'"done"')
    assert (answer.status_code, answer.json()) == (202, {"status": "OK"})
    assert await outcome == Outcome(b'"done"')


async def test_a_response_to_something_else_is_refused(api: RuntimeApi, runtime: httpx.AsyncClient) -> None:
    path = f"/2018-06-01/runtime/invocation/{WORK.request_id}/response"
    assert (await runtime.post(path, content=b"1")).status_code == 400
    outcome = api.offer(WORK)
    assert (await runtime.post(path, content=b"1")).json()["errorType"] == "InvalidRequestID"
    await runtime.get(NEXT)
    assert (await runtime.post(path.replace("8476", "8477"), content=b"1")).status_code == 400
    assert (await runtime.post(path, content=b"1")).status_code == 202
    assert (await runtime.post(path, content=b"2")).status_code == 400
    assert await outcome == Outcome(b"1")


async def test_asking_for_more_before_answering_is_refused(api: RuntimeApi, runtime: httpx.AsyncClient) -> None:
    api.offer(WORK)
    await runtime.get(NEXT)
    answer = await runtime.get(NEXT)
    assert (answer.status_code, answer.json()["errorType"]) == (403, "InvalidStateTransition")


async def test_a_runtime_that_asks_again_gets_the_work(api: RuntimeApi, runtime: httpx.AsyncClient) -> None:
    first = asyncio.create_task(runtime.get(NEXT))
    await eventually(lambda: api._poll is not None)
    given_up = api._poll
    first.cancel()
    asking = asyncio.create_task(runtime.get(NEXT))
    await eventually(lambda: api._poll is not given_up)
    api.offer(WORK)
    assert (await asking).content == WORK.payload


async def test_what_is_settled_by_others_is_not_the_runtime_s_any_more(
    api: RuntimeApi, runtime: httpx.AsyncClient
) -> None:
    outcome = api.offer(WORK)
    await runtime.get(NEXT)
    api.settle(Outcome(b"{}", "Unhandled"))
    assert (await outcome).error == "Unhandled"
    path = f"/2018-06-01/runtime/invocation/{WORK.request_id}/response"
    assert (await runtime.post(path, content=b"1")).status_code == 400


async def test_other_paths_are_not_found(runtime: httpx.AsyncClient) -> None:
    assert (await runtime.get("/2018-06-01/runtime/restore/next")).status_code == 404
