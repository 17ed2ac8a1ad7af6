"""Hostile receivers do what they are named after, by the sender's own account, and count what they got."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from itertools import repeat
from pathlib import Path

import pytest

from forbear.guard import Guard
from forbear.policy.model import Verdicts
from forbear.policy.verdict import Answer, classify
from forbear.sender import Request, Response
from forbear.sender.dialer import tls_context
from forbear.sender.lean import LeanSender
from forbear.urls import parse
from infra.torture import behaviours
from infra.torture.authority import CA_FILE, Authority
from infra.torture.hostile import Behaviour, Hostile
from infra.torture.ledger import Receipt
from infra.torture.world import until

HEADERS = ((b"webhook-id", b"evt_1"), (b"idempotency-key", b"dlv_1"), (b"forbear-attempt", b"1"))
NAME = "receiver.example"
# Those that need no made-up internet and do not last until a time-out.
QUICK = [
    behaviour
    for group in (
        behaviours.CONNECTIONS,
        behaviours.RESPONSES,
        behaviours.BODIES,
        behaviours.CERTIFICATES,
        behaviours.redirects(repeat("http://127.0.0.1:1/")),
    )
    for behaviour in group
    if "never-answers" not in behaviour.name
]


@asynccontextmanager
async def receiving(behaviour: Behaviour, tls: ssl.SSLContext | None) -> AsyncIterator[tuple[Hostile, list[Receipt]]]:
    """A receiver with an open gate, and its books."""
    receipts: list[Receipt] = []

    def note(path: str, headers: dict[str, str], body: bytes) -> Receipt:
        receipts.append(Receipt(headers["idempotency-key"], headers["webhook-id"], 1, path, body))
        return receipts[-1]

    gate = asyncio.Event()
    gate.set()
    hostile = Hostile(behaviour=behaviour, note=note, gate=gate)
    await hostile.start(tls)
    try:
        yield hostile, receipts
    finally:
        await hostile.stop()
    assert not hostile.failures


async def send(hostile: Hostile, folder: Path, times: int) -> list[Response]:
    """Requests to a receiver, one after the other."""

    async def lookup(_host: str) -> list[str]:
        return ["127.0.0.1"]

    guard = Guard((ip_network("127.0.0.1/32"),), allow_http=True)
    sender = LeanSender(guard, tls=tls_context(str(folder / CA_FILE)), lookup=lookup)
    scheme = "http" if hostile.behaviour.certificate is None else "https"
    url = parse(f"{scheme}://{NAME}:{hostile.port}/hook", allow_http=True)
    try:
        return [await sender.send(Request(url, HEADERS, b"{}", 1.5, 1.0)) for _ in range(times)]
    finally:
        await sender.aclose()


@pytest.mark.parametrize("behaviour", QUICK, ids=lambda behaviour: behaviour.name)
async def test_what_the_table_says_of_a_behaviour_is_what_comes_of_it(behaviour: Behaviour, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = authority.context(behaviour.certificate, NAME) if behaviour.certificate is not None else None
    async with receiving(behaviour, tls) as (hostile, receipts):
        for response in await send(hostile, tmp_path, 2):
            assert response.status == behaviour.status
            assert (response.error in behaviour.errors) if behaviour.errors else response.error is None
            assert behaviour.reason in response.reason
            answer = Answer(response.status, response.error, response.retry_after)
            assert classify(Verdicts(), answer) is behaviour.verdict
        assert hostile.requests - hostile.dropped == len(receipts) == (2 if behaviour.asked else 0)
        assert hostile.dropped <= 1
        if behaviour.status is not None:
            assert {receipt.status for receipt in receipts} == {behaviour.status}


async def test_nothing_is_answered_before_the_gate_is_open() -> None:
    hostile = Hostile(behaviour=behaviours.ALONE, note=lambda *_: Receipt("d", "e", 1, "/", b""), gate=asyncio.Event())
    await hostile.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", hostile.port)
    writer.write(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
    await until(lambda: hostile.in_flight == 1, "the request to be read")
    assert (hostile.connections, hostile.requests) == (1, 1)
    hostile.gate.set()
    assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200 OK")
    await until(lambda: hostile.in_flight == 0, "the answer to be counted")
    writer.close()
    await hostile.stop()


def test_a_bomb_is_one() -> None:
    bomb = behaviours.bomb_of_gzip()
    assert len(bomb) < 1.2 * 2**20
    assert len(gzip.decompress(bomb[: len(bomb) // 1024])) * 1024 == 2**30
    assert len(behaviours.bomb_of_zstd()) < 2**16
