"""What an invocation gives back, and what it does when the function fails."""

import asyncio
import json
import os
import signal
import sys

import pytest

from infra.local.errors import FunctionNotFound, RequestTooLarge, TooManyRequests
from infra.local.functions import MAX_EVENT_BYTES, MAX_REQUEST_BYTES
from infra.local.stack import Timing
from tests.infra.local.support import HANDLERS, Gate, Launch, Output, call, error_of, eventually, plain

BOTH_RUNTIMES = pytest.mark.parametrize(
    "runtime",
    [
        "infra.local.bootstrap",
        pytest.param("awslambdaric", marks=pytest.mark.skipif(sys.platform != "linux", reason="built for Linux only")),
    ],
)


async def test_a_result_comes_back_as_json(launch: Launch) -> None:
    stack = await launch(plain())
    assert await call(stack, {"return": {"é": [1, None, 1.5]}}) == {"é": [1, None, 1.5]}


async def test_an_arn_names_a_function_as_its_name_does(launch: Launch) -> None:
    stack = await launch(plain())
    for reference in ("arn:aws:lambda:us-east-1:000000000000:function:plain", "function:plain", "plain:$LATEST"):
        assert await call(stack, {"return": 1}, function=reference) == 1


async def test_another_timeout_counts_from_the_next_invocation_on(launch: Launch) -> None:
    stack = await launch(plain(timeout_s=5))
    assert (await call(stack, {"context": True}))["remaining_ms"] <= 5_000
    stack.functions.set_timeout("plain", 60)
    assert (await call(stack, {"context": True}))["remaining_ms"] > 30_000


async def test_an_unknown_function_is_refused(launch: Launch) -> None:
    stack = await launch(plain())
    with pytest.raises(FunctionNotFound):
        await stack.functions.invoke("other", b"{}")
    with pytest.raises(FunctionNotFound):
        stack.functions.invoke_async("other", b"{}")


@BOTH_RUNTIMES
async def test_the_context_and_the_environment_are_those_of_lambda(launch: Launch, runtime: str) -> None:
    spec = plain(timeout_s=30, memory_mb=512, runtime=runtime, environment={"OWN": "2", "AWS_REGION": "moon-1"})
    stack = await launch(spec, environment={"COMMON": "1", "OWN": "1"})
    context = await call(stack, {"context": True})

    assert context["name"] == "plain"
    assert context["version"] == "$LATEST"
    assert context["arn"] == "arn:aws:lambda:us-east-1:000000000000:function:plain"
    assert context["memory"] == "512"
    assert context["log_group"] == "/aws/lambda/plain"
    assert len(context["request_id"]) == 36
    assert 20_000 < context["remaining_ms"] <= 30_000
    environment = context["environment"]
    assert environment["COMMON"] == "1"
    assert environment["OWN"] == "2"
    assert environment["AWS_REGION"] == environment["AWS_DEFAULT_REGION"] == "us-east-1"
    assert environment["AWS_ENDPOINT_URL_LAMBDA"] == environment["AWS_ENDPOINT_URL_SCHEDULER"] == stack.aws_url
    assert environment["AWS_LAMBDA_FUNCTION_NAME"] == "plain"
    assert environment["AWS_LAMBDA_FUNCTION_VERSION"] == "$LATEST"
    assert environment["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] == "512"
    assert environment["AWS_EXECUTION_ENV"] == f"AWS_Lambda_python3.{sys.version_info.minor}"
    assert environment["_HANDLER"] == "plain.handler"
    assert environment["LAMBDA_TASK_ROOT"] == str(HANDLERS)
    assert environment["_X_AMZN_TRACE_ID"].startswith("Root=1-")
    assert {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} <= environment.keys()


async def test_nothing_of_this_process_s_environment_reaches_a_function(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    stack = await launch(plain())
    assert "AWS_PROFILE" not in (await call(stack, {"context": True}))["environment"]


async def test_an_environment_is_used_again_and_keeps_its_module_state(launch: Launch) -> None:
    stack = await launch(plain())
    answers = [await call(stack, {}) for _ in range(3)]
    assert [answer["calls"] for answer in answers] == [1, 2, 3]
    assert {answer["pid"] for answer in answers} == set(stack.functions.pids("plain"))


async def test_busy_environments_get_company_up_to_the_limit_and_then_callers_are_refused(
    launch: Launch, gate: Gate
) -> None:
    stack = await launch(plain(max_environments=2))
    running = [asyncio.create_task(stack.functions.invoke("plain", gate.event)) for _ in range(2)]
    pids = {await gate.arrival(), await gate.arrival()}
    assert pids == set(stack.functions.pids("plain"))
    with pytest.raises(TooManyRequests):
        await stack.functions.invoke("plain", b"{}")
    gate.open()
    assert {json.loads(outcome.payload)["calls"] for outcome in await asyncio.gather(*running)} == {1}
    assert (await call(stack, {}))["calls"] == 2


async def test_a_synchronous_caller_may_be_made_to_wait_for_room(launch: Launch, gate: Gate) -> None:
    stack = await launch(plain(max_environments=1, queue_s=30), plain("hasty", max_environments=1, queue_s=0.05))
    running = [asyncio.create_task(stack.functions.invoke(name, gate.event)) for name in ("plain", "hasty")]
    await gate.arrival()
    await gate.arrival()
    waiting = [asyncio.create_task(call(stack, {})) for _ in range(20)]
    with pytest.raises(TooManyRequests):
        await stack.functions.invoke("hasty", b"{}")
    gate.open()
    assert [answer["calls"] for answer in await asyncio.gather(*waiting)] == list(range(2, 22))
    await asyncio.gather(*running)


async def test_an_invocation_goes_on_when_its_caller_gives_up(launch: Launch, gate: Gate, output: Output) -> None:
    stack = await launch(plain(max_environments=1, queue_s=30))
    caller = asyncio.create_task(stack.functions.invoke("plain", gate.event))
    await gate.arrival()
    caller.cancel()
    gate.open()
    await output.until(lambda lines: "plain: through the gate" in lines)
    assert (await call(stack, {}))["calls"] == 2


async def test_the_environment_that_worked_last_works_first(launch: Launch, gate: Gate) -> None:
    stack = await launch(plain())
    running = [asyncio.create_task(stack.functions.invoke("plain", gate.event)) for _ in range(2)]
    await gate.arrival()
    last = await gate.arrival()
    gate.open()
    await asyncio.gather(*running)
    for _ in range(3):
        last = (await call(stack, {}))["pid"]
        assert (await call(stack, {}))["pid"] == last
    assert len(stack.functions.pids("plain")) == 2


async def test_an_idle_environment_is_ended_after_a_while(launch: Launch) -> None:
    stack = await launch(plain(), timing=Timing(idle_s=0.05))
    first = await call(stack, {})
    await eventually(lambda: not stack.functions.pids("plain"))
    second = await call(stack, {})
    assert second["calls"] == 1
    assert second["pid"] != first["pid"]


async def test_an_exception_becomes_an_error_document_and_the_environment_stays(launch: Launch) -> None:
    stack = await launch(plain())
    error = error_of(await stack.functions.invoke("plain", b'{"raise": "no such thing"}'))
    assert error["errorType"] == "LookupError"
    assert error["errorMessage"] == "no such thing"
    assert error["stackTrace"][0].startswith(f'  File "{HANDLERS / "plain.py"}", line ')
    assert (await call(stack, {}))["calls"] == 2


async def test_a_result_that_is_no_json_is_a_marshal_error(launch: Launch) -> None:
    stack = await launch(plain(handler="coroutine.handler"))
    error = error_of(await stack.functions.invoke("plain", b"{}"))
    assert error["errorType"] == "Runtime.MarshalError"
    assert "coroutine is not JSON serializable" in error["errorMessage"]


@BOTH_RUNTIMES
async def test_a_lone_surrogate_in_a_result_ends_the_process(launch: Launch, runtime: str) -> None:
    stack = await launch(plain(runtime=runtime))
    error = error_of(await stack.functions.invoke("plain", b'{"return": "\\ud800"}'))
    assert error["errorType"] == "Runtime.ExitError"
    assert (await call(stack, {}))["calls"] == 1


@pytest.mark.parametrize(
    ("handler", "error_type", "message"),
    [
        ("unloadable.handler", "LookupError", "no settings"),
        (
            "missing.handler",
            "Runtime.ImportModuleError",
            "Unable to import module 'missing': No module named 'missing'",
        ),
        ("plain.other", "Runtime.HandlerNotFound", "Handler 'other' missing on module 'plain'"),
        ("plain", "Runtime.MalformedHandlerName", "Bad handler 'plain': it is not module.function"),
    ],
)
async def test_a_handler_that_cannot_be_loaded_fails_every_invocation(
    launch: Launch, handler: str, error_type: str, message: str
) -> None:
    stack = await launch(plain(handler=handler))
    for _ in range(2):
        error = error_of(await stack.functions.invoke("plain", b"{}"))
        assert (error["errorType"], error["errorMessage"]) == (error_type, message)


@pytest.mark.skipif(sys.platform != "linux", reason="awslambdaric is built for Linux only")
async def test_awslambdaric_serves_the_same_handlers(launch: Launch) -> None:
    stack = await launch(
        plain(runtime="awslambdaric"),
        plain("brief", runtime="awslambdaric", timeout_s=0.5),
        plain("missing", runtime="awslambdaric", handler="missing.handler"),
    )
    assert await call(stack, {"return": {"é": [1, None]}}) == {"é": [1, None]}
    assert (await call(stack, {}))["calls"] == 2
    error = error_of(await stack.functions.invoke("plain", b'{"raise": "no such thing"}'))
    assert (error["errorType"], error["errorMessage"]) == ("LookupError", "no such thing")
    error = error_of(await stack.functions.invoke("plain", b'{"exit": 3}'))
    assert error["errorType"] == "Runtime.ExitError"
    error = error_of(await stack.functions.invoke("brief", b'{"sleep": 60}'))
    assert error["errorType"] == "Sandbox.Timedout"
    error = error_of(await stack.functions.invoke("missing", b"{}"))
    assert error["errorType"] == "Runtime.ImportModuleError"


async def test_an_invocation_over_its_time_is_ended_with_its_process(launch: Launch) -> None:
    stack = await launch(plain(timeout_s=0.5, max_environments=1))
    first = await call(stack, {})
    error = error_of(await stack.functions.invoke("plain", b'{"sleep": 60}'))
    assert error["errorType"] == "Sandbox.Timedout"
    assert error["errorMessage"].endswith("Error: Task timed out after 0.50 seconds")
    second = await call(stack, {})
    assert second["calls"] == 1
    assert second["pid"] != first["pid"]


@pytest.mark.parametrize(("code", "cause"), [(3, "with error: exit status 3"), (0, "without providing a reason")])
async def test_a_process_that_exits_is_an_exit_error(launch: Launch, code: int, cause: str) -> None:
    stack = await launch(plain())
    error = error_of(await stack.functions.invoke("plain", json.dumps({"exit": code}).encode()))
    assert error["errorType"] == "Runtime.ExitError"
    assert error["errorMessage"].endswith(f"Error: Runtime exited {cause}")
    assert (await call(stack, {}))["calls"] == 1


async def test_killing_a_busy_environment_fails_its_invocation_only(launch: Launch, gate: Gate) -> None:
    stack = await launch(plain())
    running = [asyncio.create_task(stack.functions.invoke("plain", gate.event)) for _ in range(2)]
    victim = await gate.arrival()
    await gate.arrival()
    os.kill(victim, signal.SIGKILL)
    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
    gate.open()
    outcomes = await asyncio.gather(*running)
    assert sorted(str(outcome.error) for outcome in outcomes) == ["None", "Unhandled"]
    error = next(error_of(outcome) for outcome in outcomes if outcome.error)
    assert error["errorMessage"].endswith("Error: Runtime exited with error: signal: killed")
    assert victim not in stack.functions.pids("plain")


async def test_killing_an_idle_environment_costs_a_cold_start_only(launch: Launch) -> None:
    stack = await launch(plain())
    victim = (await call(stack, {}))["pid"]
    os.kill(victim, signal.SIGKILL)
    await eventually(lambda: not stack.functions.pids("plain"))
    assert (await call(stack, {}))["calls"] == 1


async def test_a_request_over_6_mb_is_refused(launch: Launch) -> None:
    stack = await launch(plain())
    fits = json.dumps("x" * (MAX_REQUEST_BYTES - 2)).encode()
    assert (await stack.functions.invoke("plain", fits)).error is None
    with pytest.raises(RequestTooLarge):
        await stack.functions.invoke("plain", fits + b" ")


async def test_a_response_over_6_mb_is_an_error_of_the_function(launch: Launch) -> None:
    stack = await launch(plain())
    assert len(await call(stack, {"blob": MAX_REQUEST_BYTES})) == MAX_REQUEST_BYTES
    error = error_of(await stack.functions.invoke("plain", json.dumps({"blob": MAX_REQUEST_BYTES + 100}).encode()))
    assert error["errorType"] == "Function.ResponseSizeTooLarge"
    assert (await call(stack, {}))["calls"] == 3


async def test_an_asynchronous_event_over_1_mb_is_refused(launch: Launch) -> None:
    stack = await launch(plain())
    with pytest.raises(RequestTooLarge):
        stack.functions.invoke_async("plain", json.dumps("x" * MAX_EVENT_BYTES).encode())


async def test_what_a_function_writes_comes_out_line_by_line_and_never_blocks_it(
    launch: Launch, output: Output
) -> None:
    stack = await launch(plain())
    await call(stack, {"print": "ä" * 100_000, "times": 20})
    await call(stack, {"print": "short", "times": 1})
    await output.until(lambda lines: lines.count("plain: short") == 2)
    assert sum(len(line.removeprefix("plain: ")) for line in output.lines) >= 2 * 20 * 100_000


async def test_what_a_process_wrote_last_is_not_lost_when_it_dies(launch: Launch, output: Output) -> None:
    stack = await launch(plain(handler="unloadable.handler"))
    await stack.functions.invoke("plain", b"{}")
    await output.until(lambda lines: "plain: [ERROR] LookupError: no settings" in lines)
