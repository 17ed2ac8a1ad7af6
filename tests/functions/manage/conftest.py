"""Every test here calls the manage function on a database of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.functions.manage.calling import Claimer


@pytest.fixture
def role() -> str:
    """Nothing here takes more rights than the function's own."""
    return "forbear_manage"


@pytest.fixture(autouse=True)
def _handlers(handlers: pytest.MonkeyPatch) -> None:
    """The entry points read this test's database."""


@pytest.fixture
def claimer(database_url: str) -> Iterator[Claimer]:
    """A claimer on this test's database."""
    claimer = Claimer(database_url)
    yield claimer
    claimer.close()
