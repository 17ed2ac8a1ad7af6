"""What the tests of the entry points may use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from forbear.manage import backend
from forbear.settings import Settings, settings
from tests.functions.builders import key_file

# Each entry point keeps its connection behind a cached function `database`.
ENTRY_POINTS = ("ingest", "claimer", "replay", "manage", "migrate", "maintain")


@pytest.fixture
def role() -> str | None:
    """The role that the entry points connect as; a test module of one of them says which. None: the superuser."""
    return None


@pytest.fixture
def handlers(
    database_url: str, url_of: Callable[[str], str], role: str | None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[pytest.MonkeyPatch]:
    """Points the entry points at this test's database; the monkeypatch it gives may set more of their environment."""
    monkeypatch.setenv("FORBEAR_DATABASE_URL", database_url if role is None else url_of(role))
    monkeypatch.setenv("FORBEAR_KEY", str(key_file()))
    forget()
    yield monkeypatch
    forget()


def forget() -> None:
    """Make the entry points read their environment and connect anew."""
    settings.cache_clear()
    backend._data_keys.cache_clear()
    for name in ENTRY_POINTS:
        database = getattr(sys.modules.get(name), "database", None)
        if database is not None:
            if database.cache_info().currsize:
                database().close()
            database.cache_clear()


def remembering(calls: list[Any]) -> Callable[[Settings, str], bool]:
    """Stands in for `waking.invoke_claimer`: notes the claimer function's name."""

    def invoke(settings: Settings, _reason: str) -> bool:
        calls.append(settings.claimer_function)
        return True

    return invoke
