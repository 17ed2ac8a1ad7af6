"""A sender that lives for days: nothing is left behind by what it has sent."""

import asyncio
import gc
from pathlib import Path

import pytest

from forbear.sender import Sender
from tests.functions.sender.building import NAME, Authority, Start, post
from tests.functions.sender.receivers import OK, answering, answering_once, silent

DESCRIPTORS = Path("/proc/self/fd")


def descriptors() -> int:
    return len(list(DESCRIPTORS.iterdir()))


@pytest.mark.skipif(not DESCRIPTORS.exists(), reason="descriptors are counted in /proc")
async def test_a_thousand_requests_leave_no_descriptor_and_no_task(
    sender: Sender, start: Start, authority: Authority
) -> None:
    receivers = [
        await start(answering(OK)),
        await start(answering_once(OK)),
        await start(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20_000)),
        await start(answering(b"garbage\r\n\r\n")),
        await start(answering_once(b"")),
    ]
    secure = await start(answering_once(OK), tls=authority.server(NAME))
    untrusted = await start(answering(OK), tls=authority.server("other.example"))
    hanging = await start(silent)

    async def volley(count: int) -> None:
        for _ in range(count):
            await asyncio.gather(
                *(post(sender, receiver) for receiver in receivers * 3),
                post(sender, secure, scheme="https"),
                post(sender, untrusted, scheme="https"),
                post(sender, hanging, timeout_s=0.01),
                post(sender, hanging, scheme="https", timeout_s=0.01),
                post(sender, hanging, scheme="https", host="127.0.0.9"),
            )

    before, tasks = descriptors(), len(asyncio.all_tasks())
    await volley(50)
    gc.collect()  # an unclosed transport would warn here
    idle = 2 * 3  # both ends of what is kept open to the one receiver that allows it
    async with asyncio.timeout(5):
        while descriptors() > before + idle or len(asyncio.all_tasks()) > tasks + idle:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.01)
