"""What is wrong with a document is told by where it is and what to do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from forbear.faults import faults
from forbear.policy.model import Policy


def found(document: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Policy.model_validate(document)
    return [str(fault) for fault in faults(caught.value)]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"schedule": {"retries": 3}}, ["schedule: its `kind` is missing: add it"]),
        ({"schedule": {"kind": "exponential", "base_s": 1}}, ["schedule.multiplier: it is missing: add it"]),
        ({"retires": 3}, ["retires: there is no such field: correct its name or remove it"]),
        (
            {"schedule": {"kind": "ladder", "gaps_s": [1, -1]}},
            ["schedule.gaps_s.1: Input should be greater than or equal to 0"],
        ),
        (
            {"schedule": {"kind": "ladder", "gaps_s": [], "jitter": {"kind": "proportional", "ratio": 2}}},
            ["schedule.jitter.ratio: Input should be less than or equal to 1"],
        ),
        (
            {"limits": {"concurrency": None}},
            ["adaptive needs limits.concurrency to stay under: set it, or make adaptive null"],
        ),
    ],
)
def test_a_fault_names_its_place_in_the_document(document: Any, expected: list[str]) -> None:
    assert found(document) == expected


documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(list(Policy.model_fields)), inner),
    max_leaves=8,
)


@given(documents)
def test_whatever_is_refused_says_why(document: Any) -> None:
    try:
        Policy.model_validate(document)
    except ValidationError as error:
        found = faults(error)
    else:
        return
    assert all(fault.message for fault in found)
