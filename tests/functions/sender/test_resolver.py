"""Lookups are shared, cached and bounded."""

import asyncio
import socket
from collections.abc import Sequence

import pytest

from forbear.sender.resolver import LOOKUPS_MAX, UNPROVEN_MAX, Resolver, system_lookup


class Names:
    """A lookup that waits for its gates, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.running = 0
        self.open = asyncio.Event()
        self.hanging: set[str] = set()
        self.failing: set[str] = set()

    async def __call__(self, host: str) -> Sequence[str]:
        self.asked.append(host)
        self.running += 1
        try:
            if host in self.hanging:
                await self.open.wait()
            if host in self.failing:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        finally:
            self.running -= 1
        return ["192.0.2.1", host]


async def settle() -> None:
    """Lets every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_answer_is_used_again_until_it_expires() -> None:
    names = Names()
    resolver = Resolver(names)
    assert [await resolver.resolve("a"), await resolver.resolve("a")] == [("192.0.2.1", "a")] * 2
    assert names.asked == ["a"]
    forgetful = Resolver(names, cache_s=0)
    for _ in range(2):
        await forgetful.resolve("b")
    assert names.asked == ["a", "b", "b"]


async def test_a_failure_is_told_to_all_and_not_remembered() -> None:
    names = Names()
    names.failing.add("a")
    resolver = Resolver(names)
    results = await asyncio.gather(*(resolver.resolve("a") for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [socket.gaierror] * 3
    assert names.asked == ["a"]
    names.failing.clear()
    assert await resolver.resolve("a")


async def test_waiters_share_a_lookup_and_may_give_up() -> None:
    names = Names()
    names.hanging.add("a")
    resolver = Resolver(names)
    waiters = [asyncio.create_task(resolver.resolve("a")) for _ in range(5)]
    await settle()
    for waiter in waiters[:4]:
        waiter.cancel()
    names.open.set()
    assert await waiters[4] == ("192.0.2.1", "a")
    assert names.asked == ["a"]


async def test_names_that_hang_do_not_starve_names_that_resolve() -> None:
    names = Names()
    resolver = Resolver(names, cache_s=0)
    await resolver.resolve("good")
    names.hanging.update(f"bad-{number}" for number in range(100))
    waiters = [asyncio.create_task(resolver.resolve(name)) for name in sorted(names.hanging)]
    await settle()
    assert names.running == UNPROVEN_MAX
    async with asyncio.timeout(1):
        assert await resolver.resolve("good")
    names.open.set()
    assert len(await asyncio.gather(*waiters)) == 100


async def test_at_most_so_many_lookups_run_at_once() -> None:
    names = Names()
    resolver = Resolver(names, cache_s=0)
    everyone = [f"host-{number}" for number in range(100)]
    for name in everyone:
        await resolver.resolve(name)
    names.hanging.update(everyone)
    waiters = [asyncio.create_task(resolver.resolve(name)) for name in everyone]
    await settle()
    assert names.running == LOOKUPS_MAX
    names.open.set()
    await asyncio.gather(*waiters)


async def test_closing_ends_the_wait() -> None:
    names = Names()
    names.hanging.add("a")
    resolver = Resolver(names)
    waiter = asyncio.create_task(resolver.resolve("a"))
    await settle()
    resolver.close()
    with pytest.raises(OSError, match="closed"):
        await waiter
    assert names.running == 0


async def test_the_system_knows_addresses_and_refuses_what_is_no_name() -> None:
    assert await system_lookup("127.0.0.1") == ["127.0.0.1"]
    assert await system_lookup("127.1") == ["127.0.0.1"]  # a spelling that only the resolver knows
    with pytest.raises(OSError, match=r".+"):
        await system_lookup("256.256.256.256.")
    with pytest.raises(UnicodeError):
        await system_lookup("a" * 64 + ".example")
