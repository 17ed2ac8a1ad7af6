"""The rules for what is said of an event, which stand in two places: for reading, and for the description."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from forbear.faults import faults
from forbear.heads import InvalidHead, read_head
from forbear.models.events import EventHead, EventHeaders

HEADERS = {"tenant": "forbear-tenant", "type": "forbear-type", "expires_at": "forbear-expires-at"}

NAMES = ["acme", "a.b", "", "..", "a/b", "forbear.test", "a..b", "k\n", "é", *("x" * n for n in (128, 129, 255, 256))]
TIMES = ["2030-01-01T00:00:00Z", "2030-01-01T00:00:00", "2029-12-31t23:00:00.5-01:00", "0001-01-01T00:00:00Z"]

texts = st.sampled_from([*NAMES, *TIMES]) | st.text(max_size=5)


def by_model(model: type[BaseModel], given: dict[str, Any]) -> object:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        return faults(error)


def by_hand(given: dict[str, Any], names: dict[str, str] | None = None) -> object:
    try:
        return read_head(given, names)
    except InvalidHead as error:
        return error.faults


@given(st.dictionaries(st.sampled_from(["tenant", "type", "id", "expires_at"]), texts | st.none() | st.just(False)))
def test_an_envelopes_members_are_read_as_their_model_describes_them(said: dict[str, Any]) -> None:
    told, expected = by_hand(said), by_model(EventHead, said)
    if isinstance(expected, EventHead):
        assert told == (expected.tenant, expected.type, expected.id, expected.expires_at)
    else:
        assert told == expected


@given(st.dictionaries(st.sampled_from(list(HEADERS.values())), texts))
def test_a_raw_events_headers_are_read_as_their_model_describes_them(said: dict[str, Any]) -> None:
    told, expected = by_hand(said, HEADERS), by_model(EventHeaders, said)
    if isinstance(expected, EventHeaders):
        assert told == (expected.tenant, expected.type, None, expected.expires_at)
    else:
        assert told == expected


@pytest.mark.parametrize("field", ["tenant", "type", "id"])
def test_half_a_character_is_refused_by_both(field: str) -> None:
    """Lone surrogates; the words differ."""
    said = {"tenant": "acme", "type": "a", field: "\ud800"}
    told, expected = by_hand(said), by_model(EventHead, said)
    assert isinstance(told, list)
    assert isinstance(expected, list)
    assert [fault.field for fault in told] == [fault.field for fault in expected] == [field]
