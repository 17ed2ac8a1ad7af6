"""Asynchronous invocations: waiting for room, retries, age."""

import asyncio
import re

import pytest

from infra.local.stack import Timing
from tests.infra.local.support import Gate, Launch, Output, call, eventually, plain


def ticks(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("plain: tick")]


async def test_an_event_is_accepted_at_once_and_run_when_an_environment_is_free(
    launch: Launch, gate: Gate, output: Output
) -> None:
    stack = await launch(plain(max_environments=1))
    running = asyncio.create_task(stack.functions.invoke("plain", gate.event))
    await gate.arrival()
    for number in range(5):
        stack.functions.invoke_async("plain", f'{{"number": {number}}}'.encode())
    gate.open()
    await running
    await output.until(lambda lines: len(ticks(lines)) == 5)
    assert output.lines == ["plain: through the gate", *(f'plain: tick {{"number": {n}}}' for n in range(5))]


async def test_events_run_at_once_up_to_the_limit(launch: Launch, gate: Gate) -> None:
    stack = await launch(plain(max_environments=3))
    for _ in range(4):
        stack.functions.invoke_async("plain", gate.event)
    first = {await gate.arrival() for _ in range(3)}
    assert len(first) == 3
    gate.open()
    assert await gate.arrival() in first


async def test_a_failed_event_is_tried_twice_more_under_the_same_request_id(
    launch: Launch, output: Output, caplog: pytest.LogCaptureFixture
) -> None:
    stack = await launch(plain(), timing=Timing(retry_delays_s=(0.01, 0.02), grace_s=0.2))
    request_id = stack.functions.invoke_async("plain", b'{"fail": 99}')
    await eventually(lambda: "it failed 3 times" in caplog.text)
    calls = [line for line in output.lines if "call" in line and "of" in line and "File" not in line]
    assert calls == [f"plain: call {n} of {request_id}" for n in (1, 2, 3)]


async def test_an_event_that_succeeds_in_the_end_is_not_tried_again(launch: Launch, output: Output) -> None:
    stack = await launch(plain(max_environments=1, queue_s=30), timing=Timing(retry_delays_s=(0.01,), grace_s=0.2))
    stack.functions.invoke_async("plain", b'{"fail": 1}')
    await output.until(lambda lines: any(re.match("plain: call 2", line) for line in lines))
    assert (await call(stack, {}))["calls"] == 3


async def test_a_function_without_retries_is_tried_once(launch: Launch, caplog: pytest.LogCaptureFixture) -> None:
    stack = await launch(plain(async_retries=0))
    stack.functions.invoke_async("plain", b'{"raise": "for good"}')
    await eventually(lambda: "it failed 1 times" in caplog.text)
    assert "for good" in caplog.text


async def test_an_event_that_waits_too_long_is_dropped_and_told(
    launch: Launch, gate: Gate, output: Output, caplog: pytest.LogCaptureFixture
) -> None:
    stack = await launch(plain(max_environments=1, max_event_age_s=0.05))
    running = asyncio.create_task(stack.functions.invoke("plain", gate.event))
    await gate.arrival()
    stack.functions.invoke_async("plain", b"{}")
    await eventually(lambda: "Rate Exceeded" in caplog.text)
    gate.open()
    await running
    assert (await call(stack, {}))["calls"] == 2
    assert len(ticks(output.lines)) == 1


async def test_an_event_too_old_for_its_next_retry_is_dropped(launch: Launch, caplog: pytest.LogCaptureFixture) -> None:
    stack = await launch(plain(max_event_age_s=30), timing=Timing(retry_delays_s=(60,), grace_s=0.2))
    stack.functions.invoke_async("plain", b'{"raise": "again"}')
    await eventually(lambda: "too old" in caplog.text)


async def test_stopping_drops_what_waits_for_room_or_for_its_retry(
    launch: Launch, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    stack = await launch(plain(max_environments=1), timing=Timing(retry_delays_s=(60,), grace_s=0.05))
    stack.functions.invoke_async("plain", b'{"raise": "again"}')
    stack.functions.invoke_async("plain", gate.event)
    await gate.arrival()
    stack.functions.invoke_async("plain", b"{}")
    await asyncio.wait_for(stack.stop(), 10)
    assert caplog.text.count("Dropped the event") == 3  # the one at the gate, too: it was cut off
