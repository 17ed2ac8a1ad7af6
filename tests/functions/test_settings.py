"""Settings: what the environment says, and what is said to a wrong one."""

from __future__ import annotations

import pytest

from forbear.settings import InvalidSettings, Settings

URL = {"FORBEAR_DATABASE_URL": "postgresql://somebody@localhost/forbear"}


def test_an_empty_variable_counts_as_not_set() -> None:
    """Whoever cannot unset a variable empties it; an empty name of a function would be called."""
    emptied = {f"FORBEAR_{name.upper()}": "" for name in Settings.model_fields}
    assert Settings.read(emptied | URL) == Settings.read(URL)


def test_a_wrong_one_is_named_with_what_it_takes() -> None:
    with pytest.raises(InvalidSettings, match=r"FORBEAR_RETENTION_DAYS: .*It takes: Days to keep"):
        Settings.read(URL | {"FORBEAR_RETENTION_DAYS": "0"})
