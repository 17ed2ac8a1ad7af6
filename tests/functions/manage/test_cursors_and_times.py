"""Cursors and times inside ids: what is written is what is read."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.api import Problem
from forbear.manage import cursors
from forbear.manage.times import HIGHEST_ID, LOWEST_ID, first_id, id_range, made_at
from forbear.models.fields import show_bytes, show_time

type Connection = psycopg.Connection[Any]

TIMES = st.datetimes(datetime(1970, 1, 1), datetime(9998, 12, 31), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants naive bounds


@given(st.sampled_from("edvac"), st.uuids(), st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_cursor_is_read_as_it_was_written(kind: str, id_: UUID, number: int) -> None:
    assert cursors.read(kind, cursors.write(kind, id_, number), UUID, int) == [id_, number]


@given(st.text(max_size=60))
def test_no_text_breaks_the_reading_of_a_cursor(text: str) -> None:
    with suppress(Problem):
        assert isinstance(cursors.read_id("d", text), UUID)


@given(st.uuids())
def test_a_cursor_of_one_list_is_none_of_another(id_: UUID) -> None:
    with pytest.raises(Problem, match="not one of this list"):
        cursors.read_id("e", cursors.write("d", id_))


@given(TIMES)
def test_the_first_id_of_a_time_has_that_time_to_the_millisecond(at: datetime) -> None:
    assert made_at(first_id(at)) == at - timedelta(microseconds=at.microsecond % 1000)


@given(st.uuids())
def test_every_uuid_has_a_time_and_it_can_be_shown(id_: UUID) -> None:
    assert show_time(made_at(id_)).endswith("Z")


def test_first_ids_are_the_databases(connection: Connection) -> None:
    for at in (datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 11, 30, 1, 2, 3, 456789, tzinfo=UTC)):
        row = connection.execute("SELECT forbear.first_id(%s)", (at,)).fetchone()
        assert row == (first_id(at),)


def test_a_range_without_bounds_holds_every_id() -> None:
    assert id_range(None, None).first == LOWEST_ID
    assert id_range(None, None).end == HIGHEST_ID
    cursor = UUID(int=5)
    assert id_range(None, datetime(2026, 1, 1, tzinfo=UTC), cursor).end == cursor


def test_times_are_shown_in_utc_to_the_millisecond() -> None:
    assert show_time(datetime.fromisoformat("2026-11-30T01:02:03.456789+02:00")) == "2026-11-29T23:02:03.456Z"
    assert show_time(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00.000Z"


def test_bytes_are_shown_as_text_only_if_json_keeps_them_small() -> None:
    assert show_bytes(b"a\r\n\tb") == {"text": "a\r\n\tb"}
    assert show_bytes("é\N{GRINNING FACE}".encode()) == {"text": "é\N{GRINNING FACE}"}
    for raw in (b"\x00", b"\x1b[31m", b"\xc3", b"\xff"):
        assert set(show_bytes(raw)) == {"base64"}
