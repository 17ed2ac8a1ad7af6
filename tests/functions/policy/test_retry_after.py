import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forbear.policy.retry_after import parse

NOW = datetime(1994, 11, 6, 8, 48, 37, tzinfo=UTC)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
MOMENTS = st.datetimes(timezones=st.just(UTC))


def imf_fixdate(at: datetime) -> str:
    return f"{DAYS[at.weekday()][:3]}, {at.day:02} {MONTHS[at.month - 1]} {at.year:04} {at:%H:%M:%S} GMT"


def rfc850(at: datetime) -> str:
    return f"{DAYS[at.weekday()]}, {at.day:02}-{MONTHS[at.month - 1]}-{at.year % 100:02} {at:%H:%M:%S} GMT"


def asctime(at: datetime) -> str:
    return f"{DAYS[at.weekday()][:3]} {MONTHS[at.month - 1]} {at.day:2} {at:%H:%M:%S} {at.year:04}"


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("0", 0),
        ("120", 120),
        ("  30  ", 30),
        ("\t30 ", 30),
        ("007", 7),
        ("0" * 5_000 + "7", 7),
        ("2592000", 2_592_000),
        ("2147483648", 2_147_483_648),
        ("999999999999", 999_999_999_999),
    ],
)
def test_digits_are_seconds(value: str, wait_s: float) -> None:
    assert parse([value], NOW) == wait_s


@pytest.mark.parametrize(
    "value",
    [
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun Nov  6 08:49:37 1994",
        "Sun Nov 06 08:49:37 1994",
        "  Sun, 06 Nov 1994 08:49:37 GMT\t",
        "Tue, 06 Nov 1994 08:49:37 GMT",  # a wrong day name leaves no doubt about the date
    ],
)
def test_all_three_date_forms_of_the_rfc_are_read(value: str) -> None:
    assert parse([value], NOW) == 60


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "soon",
        "Tomorrow",
        "-1",
        "-5",
        "+5",
        "- 5",
        "12.5",
        "0.503",
        "0.129",
        "5.",
        ".5",
        "1e3",
        "nan",
        "inf",
        "-inf",
        "Infinity",
        "1_000",
        "1,000",
        "0x10",
        "1m0s",
        "300s",
        "120, 60",
        "1, 2",
        "120,120",
        "120;60",
        "1 20",
        "120\n",
        "120\r\n",
        "120\x0b",
        "\x85120",
        "\xa0120",
        "120\x00",
        "\x00",
        "\xb2",  # superscript two
        "\u0661\u0662",  # Arabic-Indic digits
        "\uff11\uff12",  # full-width digits
        "\u0967",  # a Devanagari digit
        "1000000000000",
        "99999999999999999999",
        "9" * 5_000,
    ],
)
def test_what_is_neither_digits_nor_a_date_is_ignored(value: str) -> None:
    assert parse([value], NOW) is None


@pytest.mark.parametrize(
    "value",
    [
        "sun, 06 nov 1994 08:49:37 gmt",
        "Sun, 06 Nov 1994 08:49:37",
        "Sun, 06 Nov 1994 08:49:37 UTC",
        "Sun, 06 Nov 1994 08:49:37 +0000",
        "Sun, 06 Nov 1994 08:49:37 GMT, 120",
        "Sun,06 Nov 1994 08:49:37 GMT",
        "Sun, 06  Nov 1994 08:49:37 GMT",
        "Sun, 6 Nov 1994 08:49:37 GMT",
        "06 Nov 1994 08:49:37 GMT",
        "Sun, 06-Nov-1994 08:49:37 GMT",
        "Sun, 06-Nov-94 08:49:37 GMT",
        "Sunday, 06 Nov 1994 08:49:37 GMT",
        "Sun Nov 6 08:49:37 1994",
        "Sun Nov  6 08:49:37 1994 GMT",
        "Sun Nov  6 08:49:37 94",
        "Sun, 06 Nov 99999 08:49:37 GMT",
        "Sun Nov  6 08:49:37 99999",
        "Sun, 06 Nov 0000 08:49:37 GMT",
        "Fri, 31 Feb 1995 08:49:37 GMT",
        "Wed, 29 Feb 1995 08:49:37 GMT",
        "Sun, 00 Nov 1995 08:49:37 GMT",
        "Sun, 32 Nov 1995 08:49:37 GMT",
        "Sun, 06 Foo 1995 08:49:37 GMT",
        "Sun, 06 Nov 1995 24:00:00 GMT",
        "Sun, 06 Nov 1995 08:60:00 GMT",
        "Sun, 06 Nov 1995 08:49:61 GMT",
        "1995-11-06T08:49:37Z",
        "784111777 GMT",
        "Sun, \u0660\u0666 Nov 1995 08:49:37 GMT",
    ],
)
def test_what_is_almost_a_date_is_ignored(value: str) -> None:
    assert parse([value], NOW) is None


def test_no_header_is_no_hint() -> None:
    assert parse([], NOW) is None


@pytest.mark.parametrize("values", [["120", "60"], ["120", "120"], ["", "120"], ["120", "soon"]])
def test_several_headers_are_ignored_even_when_they_agree(values: list[str]) -> None:
    assert parse(values, NOW) is None


@pytest.mark.parametrize("write", [imf_fixdate, rfc850, asctime])
def test_a_date_in_the_past_is_ignored(write: Callable[[datetime], str]) -> None:
    assert parse([write(NOW - timedelta(seconds=1))], NOW) is None
    assert parse([write(NOW)], NOW) == 0
    assert parse([write(NOW)], NOW + timedelta(microseconds=1)) is None


def test_second_sixty_is_the_one_after_fifty_nine() -> None:
    """The positive leap second at the end of 2016; without them, POSIX time has it fall on the next day's first."""
    now = datetime(2016, 12, 31, 23, 59, 50, tzinfo=UTC)
    assert parse(["Sat, 31 Dec 2016 23:59:60 GMT"], now) == 10
    assert parse(["Saturday, 31-Dec-16 23:59:60 GMT"], now) == 10
    assert parse(["Sat Dec 31 23:59:60 2016"], now) == 10


def test_the_last_second_that_can_be_written_is_read() -> None:
    assert parse(["Fri, 31 Dec 9999 23:59:60 GMT"], datetime(9999, 12, 31, 23, 59, 0, tzinfo=UTC)) == 60


@pytest.mark.parametrize(
    ("value", "now", "at"),
    [
        # within fifty years ahead: that year, across the end of a century too
        (
            "Saturday, 01-Jan-00 00:00:00 GMT",
            datetime(1999, 12, 31, 23, 59, tzinfo=UTC),
            datetime(2000, 1, 1, tzinfo=UTC),
        ),
        ("Saturday, 01-Jan-01 00:00:00 GMT", datetime(2099, 6, 1, tzinfo=UTC), datetime(2101, 1, 1, tzinfo=UTC)),
        ("Sunday, 01-Mar-76 12:00:00 GMT", datetime(2026, 3, 1, 12, tzinfo=UTC), datetime(2076, 3, 1, 12, tzinfo=UTC)),
        # a second more than fifty years ahead: the most recent past year with these digits
        ("Sunday, 01-Mar-76 12:00:01 GMT", datetime(2026, 3, 1, 12, tzinfo=UTC), None),
        ("Sunday, 06-Nov-94 08:49:37 GMT", datetime(2026, 3, 1, tzinfo=UTC), None),
        # from a leap day, whose date does not exist fifty years on
        (
            "Tuesday, 28-Feb-74 23:59:59 GMT",
            datetime(2024, 2, 29, tzinfo=UTC),
            datetime(2074, 2, 28, 23, 59, 59, tzinfo=UTC),
        ),
        ("Tuesday, 01-Mar-74 00:00:00 GMT", datetime(2024, 2, 29, tzinfo=UTC), None),
    ],
)
def test_a_two_digit_year_follows_the_fifty_year_rule(value: str, now: datetime, at: datetime | None) -> None:
    assert parse([value], now) == (None if at is None else (at - now).total_seconds())


def test_the_time_zone_of_the_arrival_does_not_matter() -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=-9)))
    for value in ("Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"):
        assert parse([value], elsewhere) == 60


@given(MOMENTS, MOMENTS, st.sampled_from([imf_fixdate, asctime]))
def test_any_date_is_the_time_until_then_or_past(at: datetime, now: datetime, write: Callable[[datetime], str]) -> None:
    wait_s = (at.replace(microsecond=0) - now).total_seconds()
    assert parse([write(at)], now) == (wait_s if wait_s >= 0 else None)


@given(
    st.datetimes(datetime(100, 1, 1), datetime(9900, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - the bounds are naive there
    st.timedeltas(timedelta(0), timedelta(days=365 * 50)),
)
def test_a_two_digit_date_up_to_fifty_years_ahead_is_the_time_until_then(now: datetime, ahead: timedelta) -> None:
    at = (now + ahead).replace(microsecond=0)
    wait_s = (at - now).total_seconds()
    assert parse([rfc850(at)], now) == (wait_s if wait_s >= 0 else None)


@given(st.integers(0, 10**12 - 1), st.text(" \t", max_size=5), st.text(" \t", max_size=5))
def test_any_number_of_up_to_twelve_digits_is_exact(seconds: int, before: str, behind: str) -> None:
    assert parse([f"{before}{seconds}{behind}"], NOW) == seconds


ALMOST = st.text("0123456789 ,:-+._eEGMTSunNov\t\u0661\uff11\xb2", max_size=40)


@given(st.lists(st.one_of(st.text(), ALMOST), max_size=3), MOMENTS)
@example(["9" * 100_000], NOW)
@example(["0" * 100_000], NOW)
@example(["Friday, 31-Dec-99 23:59:60 GMT"], datetime.max.replace(tzinfo=UTC))
@example(["Friday, 31-Dec-99 23:59:60 GMT"], datetime.min.replace(tzinfo=UTC))
@example(["Thursday, 29-Feb-00 00:00:00 GMT"], datetime(99, 12, 31, tzinfo=UTC))
def test_nothing_raises_and_every_hint_is_a_finite_wait(values: list[str], now: datetime) -> None:
    wait_s, with_fractions_s = parse(values, now), parse(values, now, fractions=True)
    assert with_fractions_s is None or (with_fractions_s >= 0 and math.isfinite(with_fractions_s))
    assert wait_s in {None, with_fractions_s}


@given(ALMOST)
def test_only_ascii_digits_and_dates_are_hints(value: str) -> None:
    core = value.strip(" \t")
    if parse([value], NOW) is not None:
        assert (core.isascii() and core.isdigit()) or core[:3] in {day[:3] for day in DAYS}
    elif parse([value], NOW, fractions=True) is not None:
        assert core.isascii()
        assert [part.isdigit() for part in core.split(".")] == [True, True]


@pytest.mark.parametrize(
    "value",
    [
        "9" * 1_000_000,
        "0" * 1_000_000,
        "0" * 1_000_000 + ".",
        "0." + "0" * 1_000_000 + "x",
        "1." * 500_000,
        " " * 1_000_000 + "x",
        "Sun, " * 200_000,
    ],
)
@pytest.mark.timeout(20)
def test_a_megabyte_is_read_once_and_not_over_and_over(value: str) -> None:
    """Looking at each character again for each one before it would take hours."""
    assert parse([value], NOW) in {None, 0}
    assert parse([value], NOW, fractions=True) in {None, 0}
