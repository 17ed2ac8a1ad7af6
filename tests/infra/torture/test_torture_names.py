"""The made-up internet: what it leads to is loopback, and every connection into it is remembered."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.torture.names import Dialled, Internet, Name, Route

PUBLIC, OTHER = "45.33.1.1", "45.33.1.2"


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Somebody who listens."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()


async def test_a_name_gives_its_answers_in_turn_and_the_last_one_again(tmp_path: Path) -> None:
    Internet(tmp_path).set({"rebinds.example": Name(((PUBLIC,), ("127.0.0.2",)))}, {})
    claimer = Internet(tmp_path)
    assert [await claimer.lookup("rebinds.example") for _ in range(3)] == [[PUBLIC], ["127.0.0.2"], ["127.0.0.2"]]


@pytest.mark.parametrize("host", ["fails.example", "unknown.example"])
async def test_what_has_no_address_does_not_resolve(tmp_path: Path, host: str) -> None:
    Internet(tmp_path).set({"fails.example": Name(((),))}, {})
    with pytest.raises(socket.gaierror):
        await Internet(tmp_path).lookup(host)


async def test_before_anything_is_said_nothing_resolves(tmp_path: Path) -> None:
    with pytest.raises(socket.gaierror):
        await Internet(tmp_path).lookup("any.example")


async def test_a_look_up_may_hang(tmp_path: Path) -> None:
    Internet(tmp_path).set({"hangs.example": Name(((PUBLIC,),), after_s=math.inf)}, {})
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await Internet(tmp_path).lookup("hangs.example")


async def test_connections_go_to_loopback_and_are_remembered_by_the_address_that_was_asked_for(
    tmp_path: Path, port: int
) -> None:
    ours = Internet(tmp_path)
    ours.set({}, {PUBLIC: Route.LOOPBACK})
    with await Internet(tmp_path).connect(PUBLIC, port) as connected:
        assert connected.getpeername() == ("127.0.0.1", port)
    with await Internet(tmp_path).connect("127.0.0.1", port):
        assert ours.dialled() == [Dialled(PUBLIC, port)]
    ours.forget()
    assert ours.dialled() == []


async def test_an_address_that_nobody_has_leads_to_who_must_stay_alone(tmp_path: Path, port: int) -> None:
    ours = Internet(tmp_path)
    ours.set({}, {}, elsewhere=port)
    with await Internet(tmp_path).connect("169.254.169.254", 80) as connected:
        assert connected.getpeername() == ("127.0.0.1", port)
    assert ours.dialled() == [Dialled("169.254.169.254", 80)]


async def test_addresses_refuse_or_swallow_what_comes(tmp_path: Path, port: int) -> None:
    Internet(tmp_path).set({}, {PUBLIC: Route.REFUSED, OTHER: Route.SWALLOWED})
    with pytest.raises(ConnectionRefusedError):
        await Internet(tmp_path).connect(PUBLIC, port)
    with pytest.raises(ConnectionRefusedError):
        await Internet(tmp_path).connect("45.33.9.9", port)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await Internet(tmp_path).connect(OTHER, port)
