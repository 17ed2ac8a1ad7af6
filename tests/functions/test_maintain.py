"""Housekeeping as a function of its own: when the claimer calls it, and what it does as the tables' owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest

import claimer
import maintain
from forbear.maintenance import EVERY
from forbear.settings import Settings
from forbear.store import Store
from forbear.waking import invoke_maintenance
from tests.functions.builders import data_keys, move_clock, one, run

type Connection = psycopg.Connection[Any]

KNOWN = Settings(database_url="postgresql://", maintenance_function="maintain")


@pytest.fixture
def role() -> str:
    """The tables' owner: nobody else can make or drop partitions."""
    return "forbear_owner"


@pytest.fixture
def told(url_of: Callable[[str], str]) -> Callable[[], bool]:
    """Asks as a claimer whether to call; each time a new one."""

    async def ask() -> bool:
        store = Store(url_of("forbear_claimer"), data_keys())
        try:
            return await store.must_call_maintenance(EVERY)
        finally:
            await store.aclose()

    return lambda: run(ask())


def test_it_is_called_once_an_hour_of_work(
    connection: Connection, told: Callable[[], bool], handlers: pytest.MonkeyPatch
) -> None:
    assert told()
    maintain.handler({}, None)
    assert not told()
    move_clock(connection, minutes=59)
    assert not told()
    move_clock(connection, minutes=2)
    assert told()


def test_a_call_that_was_lost_is_made_again_within_minutes_but_not_each_second(
    connection: Connection, told: Callable[[], bool]
) -> None:
    assert told()
    assert not told()
    move_clock(connection, minutes=4)
    assert not told()
    move_clock(connection, minutes=2)
    assert told()


def test_of_many_claimers_one_calls(url_of: Callable[[str], str]) -> None:
    async def ask() -> list[bool]:
        stores = [Store(url_of("forbear_claimer"), data_keys()) for _ in range(8)]
        try:
            return await asyncio.gather(*(store.must_call_maintenance(EVERY) for store in stores))
        finally:
            await asyncio.gather(*(store.aclose() for store in stores))

    assert sorted(run(ask())) == [False] * 7 + [True]


def test_the_function_drops_what_retention_is_over_for(connection: Connection, handlers: pytest.MonkeyPatch) -> None:
    day = one(connection, "SELECT to_char(forbear.now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
    assert maintain.handler({}, None) == {"dropped": []}
    move_clock(connection, days=40)
    dropped = maintain.handler({}, None)["dropped"]
    assert {f"{table}_{day}" for table in ("events", "history", "history_attempts")} <= set(dropped)


class Asked:
    """A store that says what it was told to, and counts who asked."""

    def __init__(self, answer: bool | Exception) -> None:
        self.times = 0
        self._answer = answer

    async def must_call_maintenance(self, every: timedelta) -> bool:
        assert every == EVERY
        self.times += 1
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Grows by the function's name whenever a claimer calls it."""
    made: list[str | None] = []
    monkeypatch.setattr(claimer, "invoke_maintenance", lambda known: made.append(known.maintenance_function))
    return made


@pytest.mark.parametrize(("due", "called"), [(True, ["maintain"]), (False, []), (OSError("lost"), [])])
def test_the_claimer_calls_when_it_is_told_to(
    calls: list[str | None], monkeypatch: pytest.MonkeyPatch, due: bool | Exception, called: list[str]
) -> None:
    """And goes on whatever becomes of it."""
    monkeypatch.setattr(claimer, "_store", lambda: Asked(due))
    run(claimer._keep_house(KNOWN))
    assert calls == called


def test_without_a_function_to_call_nobody_is_asked(calls: list[str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    store = Asked(answer=True)
    monkeypatch.setattr(claimer, "_store", lambda: store)
    run(claimer._keep_house(replace(KNOWN, maintenance_function=None)))
    assert (calls, store.times) == ([], 0)


def test_the_call_waits_for_nobody_and_its_failure_is_only_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Client:
        def invoke(self, **asked: object) -> None:
            assert asked == {"FunctionName": "maintain", "InvocationType": "Event", "Payload": b"{}"}
            raise ConnectionError

    monkeypatch.setattr("forbear.waking._client", {"lambda": Client()}.__getitem__)
    invoke_maintenance(KNOWN)
    assert "maintenance could not be called" in caplog.text
