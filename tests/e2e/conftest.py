from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.e2e.world import World, running


@pytest_asyncio.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    """A running stack on a fresh database, with a receiver."""
    async with running(database_url) as one:
        yield one
