"""Starting and stopping: ports, grace, and nothing left over."""

import asyncio
import gc
import os
import signal
import socket
import sys
from contextlib import suppress

import httpx
import pytest
import uvloop

from infra.local.errors import FunctionNotFound, FunctionUnavailable
from infra.local.gateway import Route
from infra.local.serving import PortTaken
from infra.local.stack import LocalStack, Ports, Timing
from tests.infra.local.support import PATIENCE_S, Gate, Launch, Output, call, eventually, plain


def is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


@pytest.mark.parametrize("which", ["api", "replay", "aws"])
async def test_a_port_that_is_taken_is_named_and_nothing_is_left_running(launch: Launch, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=f"Port {port} is taken") as refused:
            await launch(plain(), replay_function="plain", ports=Ports(**{which: port}))
        assert refused.value.port == port
    gc.collect()  # a socket left open warns here, and a warning is an error


async def test_only_loopback_is_served(launch: Launch) -> None:
    with pytest.raises(ValueError, match="loopback only"):
        await launch(plain(), host="0.0.0.0")  # noqa: S104 - the point is that it is refused


async def test_a_route_to_nowhere_is_refused_at_the_start(launch: Launch) -> None:
    with pytest.raises(FunctionNotFound):
        await launch(plain(), routes=(Route("GET", "/", "other"),))


async def test_stopping_lets_running_invocations_end_and_answers_them(
    launch: Launch, client: httpx.AsyncClient, gate: Gate, output: Output
) -> None:
    stack = await launch(
        plain(handler="web_gate.handler", environment={"GATE": str(gate.port)}),
        routes=(Route("GET", "/", "plain"),),
        timing=Timing(grace_s=20),
    )
    request = asyncio.create_task(client.get(stack.api_url))
    pid = await gate.arrival()
    stopping = asyncio.create_task(stack.stop())
    await eventually(lambda: stack.functions.stopping)
    with pytest.raises(FunctionUnavailable):
        await stack.functions.invoke("plain", b"{}")
    with pytest.raises(FunctionUnavailable):
        stack.functions.invoke_async("plain", b"{}")
    gate.open()
    assert (await request).json() == {"calls": 1, "pid": pid}
    await stopping
    assert "plain: through the gate" in output.lines
    assert not is_alive(pid)


async def test_stopping_ends_what_does_not_end_by_itself(launch: Launch, gate: Gate) -> None:
    stack = await launch(plain(), timing=Timing(grace_s=0.05))
    running = [asyncio.create_task(stack.functions.invoke("plain", gate.event)) for _ in range(2)]
    pids = [await gate.arrival(), await gate.arrival()]
    await asyncio.wait_for(stack.stop(), 10)
    assert [outcome.error for outcome in await asyncio.gather(*running)] == ["Unhandled", "Unhandled"]
    assert not any(is_alive(pid) for pid in pids)
    assert stack.functions.pids("plain") == ()


async def test_a_process_that_ignores_sigterm_is_killed(launch: Launch) -> None:
    stack = await launch(plain(handler="stubborn.handler"))
    pid = await call(stack, {})
    await asyncio.wait_for(stack.stop(), 10)
    assert not is_alive(pid)


async def test_stopping_during_a_cold_start_leaves_no_process(launch: Launch) -> None:
    stack = await launch(plain(handler="stubborn.handler", environment={"SLOW": "1"}), timing=Timing(grace_s=0))
    running = asyncio.create_task(stack.functions.invoke("plain", b"{}"))
    await eventually(lambda: bool(stack.functions.pids("plain")))
    (pid,) = stack.functions.pids("plain")
    await asyncio.wait_for(stack.stop(), 10)
    assert (await running).error == "Unhandled"
    assert not is_alive(pid)


async def test_a_stopped_stack_serves_nothing_and_can_be_stopped_again(
    launch: Launch, client: httpx.AsyncClient
) -> None:
    stack = await launch(plain(), routes=(Route("GET", "/", "plain"),), replay_function="plain")
    assert (await client.get(stack.api_url)).status_code == 200
    await stack.stop()
    await stack.stop()
    for url in (stack.api_url, stack.replay_url, stack.aws_url):
        with pytest.raises(httpx.ConnectError):
            await client.get(str(url))


async def test_a_stack_that_was_never_started_can_be_stopped() -> None:
    await LocalStack([plain()], []).stop()


async def test_a_stack_that_is_killed_takes_its_busy_environments_with_it(gate: Gate) -> None:
    script = f"""
import asyncio
from infra.local.stack import LocalStack
from tests.infra.local.support import plain

async def live():
    stack = LocalStack([plain()], [])
    await stack.start()
    await stack.functions.invoke("plain", {gate.event!r})

asyncio.run(live())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    await gate.arrival()
    process.kill()
    await process.wait()
    await gate.hung_up()


def test_the_stack_runs_on_uvloop_too() -> None:
    async def live() -> None:
        stack = LocalStack([plain()], [Route("GET", "/", "plain")], timing=Timing(grace_s=0.2))
        await stack.start()
        try:
            async with httpx.AsyncClient(timeout=PATIENCE_S, trust_env=False) as client:
                victim = (await client.get(stack.api_url)).json()["pid"]
            os.kill(victim, signal.SIGKILL)
            await eventually(lambda: not stack.functions.pids("plain"))
            assert (await call(stack, {}))["calls"] == 1
        finally:
            await stack.stop()

    uvloop.run(live())
