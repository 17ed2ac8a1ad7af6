from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.policy.retry_after import parse

NOW = datetime(1994, 11, 6, 8, 48, 37, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "wait_s"),
    [
        ("12.5", 12.5),
        ("0.503", 0.503),
        ("0.129", 0.129),
        ("0.493", 0.493),
        ("120.1", 120.1),
        ("0.0", 0),
        ("1.0", 1),
        ("007.50", 7.5),
        (" \t1.5 ", 1.5),
        ("0.30000000000000004", 0.30000000000000004),
        ("0." + "0" * 23 + "1", 1e-24),
        ("999999999999.9", 999_999_999_999.9),
        ("0" * 5_000 + "7.5", 7.5),
    ],
)
def test_a_policy_may_read_fractions_of_a_second(value: str, wait_s: float) -> None:
    """Servers send them, though the RFC knows whole seconds only; a policy that keeps to it ignores them."""
    assert parse([value], NOW, fractions=True) == wait_s
    assert parse([value], NOW) is None


@pytest.mark.parametrize(
    "value",
    [
        ".5",
        "5.",
        ".",
        "1..5",
        "1.2.3",
        "1 .5",
        "1. 5",
        "1.5 2",
        "1,5",
        "1.5, 2",
        "1.5,2.5",
        "-0.5",
        "+1.5",
        "1.-5",
        "1.+5",
        "1_0.5",
        "1.5_0",
        "1.5e3",
        "1e3.5",
        "1e3",
        "1.5s",
        "1m0.5s",
        "0x1.8",
        "nan",
        "inf",
        "1.nan",
        "1.5\n",
        "1.5\x00",
        "\xa01.5",
        "1\xb75",  # a middle dot
        "1\u066b5",  # the Arabic decimal separator
        "1\uff0e5",  # a full-width full stop
        "\u0661.5",
        "1.\u0665",
        "\uff11.\uff15",
        "1.\xb2",
        "1000000000000.0",
        "9" * 5_000 + ".5",
        "1." + "0" * 25,
        "1." + "9" * 5_000,
        "Sun, 06 Nov 1994 08:49:37.5 GMT",
    ],
)
def test_a_fraction_is_ascii_digits_around_a_point_and_nothing_else(value: str) -> None:
    assert parse([value], NOW, fractions=True) is None
    assert parse([value], NOW) is None


def test_two_headers_with_fractions_are_ignored() -> None:
    assert parse(["1.5", "1.5"], NOW, fractions=True) is None


@given(st.integers(0, 10**12 - 1), st.text("0123456789", min_size=1, max_size=24))
def test_any_fraction_of_up_to_24_places_is_as_near_as_a_number_gets(whole: int, decimals: str) -> None:
    assert parse([f"{whole}.{decimals}"], NOW, fractions=True) == float(f"{whole}.{decimals}")
