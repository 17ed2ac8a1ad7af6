from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.rfc3339 import InvalidTime, parse

offsets = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
times = st.datetimes(datetime(1971, 1, 1), datetime(9998, 1, 1), timezones=offsets)  # noqa: DTZ001 - bounds are naive


@given(times)
def test_times_with_an_offset_are_read_as_the_same_instant(at: datetime) -> None:
    assert parse(at.isoformat()) == at
    assert parse(at.isoformat()).tzinfo == UTC
    assert parse(at.astimezone(UTC).isoformat().replace("+00:00", "Z")) == at


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("1985-04-12T23:20:50.52Z", datetime(1985, 4, 12, 23, 20, 50, 520_000, UTC)),  # RFC 3339 section 5.8
        ("1996-12-19T16:39:57-08:00", datetime(1996, 12, 20, 0, 39, 57, tzinfo=UTC)),  # the same
        ("1996-12-19t16:39:57z", datetime(1996, 12, 19, 16, 39, 57, tzinfo=UTC)),
        ("2030-01-01T00:00:00.1234567Z", datetime(2030, 1, 1, 0, 0, 0, 123_456, UTC)),
    ],
)
def test_the_forms_of_the_specification_are_read(text: str, at: datetime) -> None:
    assert parse(text) == at


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2030-01-01",
        "2030-01-01T00:00:00",
        "2030-01-01 00:00:00Z",
        "2030-01-01T00:00Z",
        "2030-01-01T24:00:00Z",
        "2030-01-01T00:00:60Z",
        "2030-02-30T00:00:00Z",
        "2030-01-01T00:00:00+24:00",
        "2030-01-01T00:00:00+0100",
        "2030-01-01T00:00:00,5Z",
        "20300101T000000Z",
        "2030-W01-1T00:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59-14:00",
        "2030-01-01T00:00:00Z\n",
        "\u0662030-01-01T00:00:00Z",
        "1893456000",
        "soon" * 100,
    ],
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(InvalidTime, match=r"2030-01-31T09:30:00Z; got") as refused:
        parse(text)
    assert len(str(refused.value)) < 300
