"""The entry points with API keys: each in its own database role, as deployed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module

import pytest

from forbear.roles import ROLE_OF
from forbear.settings import settings
from tests.conftest import Connection
from tests.functions.builders import key_file
from tests.functions.conftest import remembering
from tests.functions.keys import KeyMaker, key_maker


@pytest.fixture
def keys(connection: Connection) -> Iterator[KeyMaker]:
    """Makes keys."""
    with key_maker(connection) as maker:
        yield maker


@pytest.fixture(autouse=True)
def functions(handlers: pytest.MonkeyPatch, url_of: Callable[[str], str], keys: KeyMaker) -> pytest.MonkeyPatch:
    """Points each entry point at this test's database, as its own role. Gives what their environment is set by."""
    handlers.setattr("forbear.waking.invoke_claimer", remembering([]))
    handlers.setenv("FORBEAR_KEY", str(key_file()))
    for name in ("ingest", "manage", "replay"):
        handlers.setenv("FORBEAR_DATABASE_URL", url_of(ROLE_OF[name]))
        settings.cache_clear()
        import_module(name).database()
    return handlers
