import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.event_types import InvalidEventType, matching_patterns, validate, validate_pattern

segments = st.text("abZ09_-", min_size=1, max_size=4)
names = st.lists(segments, min_size=1, max_size=6).map(".".join)


@pytest.mark.parametrize(
    "name", ["a", "invoice.paid", "Invoice.Paid", "a-b.c_d.0", "-", "_", "x" * 128, "a." * 63 + "bc"]
)
def test_dot_separated_names_are_event_types(name: str) -> None:
    assert validate(name) == name
    assert validate_pattern(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "a.",
        ".a",
        "a..b",
        "a b",
        "a/b",
        "a:b",
        "é",
        "a\n",
        "\n",
        "a\0",
        "*",
        "a.*",
        "a.*.b",
        "x" * 129,
        "x" * 9999,
    ],
)
def test_anything_else_is_not_an_event_type(name: str) -> None:
    with pytest.raises(InvalidEventType, match="event type") as refused:
        validate(name)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("pattern", ["*", "a.*", "a.b.*", "invoice.paid", "x" * 126 + ".*"])
def test_names_prefixes_and_everything_can_be_subscribed_to(pattern: str) -> None:
    assert validate_pattern(pattern) == pattern


@pytest.mark.parametrize(
    "pattern",
    ["", ".*", "**", "*.*", "a*", "*.a", "a.*.b", "a.**", "a.*.*", "a..*", "a. *", "*\n", "a.*\n", "x" * 127 + ".*"],
)
def test_other_wildcards_are_refused(pattern: str) -> None:
    with pytest.raises(InvalidEventType):
        validate_pattern(pattern)


def test_patterns_that_match_go_from_the_narrowest_to_the_widest() -> None:
    assert matching_patterns("a.b.c") == ("a.b.c", "a.b.*", "a.*", "*")
    assert matching_patterns("a") == ("a", "*")


@given(names, names)
def test_a_pattern_is_listed_exactly_if_it_matches(name: str, other: str) -> None:
    patterns = matching_patterns(name)
    assert len(set(patterns)) == len(patterns)
    assert all(validate_pattern(pattern) for pattern in patterns)
    assert (other in patterns) == (other == name)
    assert (f"{other}.*" in patterns) == name.startswith(f"{other}.")
