"""Columns arrive as the values that they were made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear import columns

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
# Each kind of column with its type and with what it may hold.
KINDS: list[tuple[Callable[[Any], columns.Column], str, st.SearchStrategy[Any]]] = [
    (columns.uuids, "uuid", st.uuids()),
    (columns.texts, "text", TEXT | st.none()),
    (columns.blobs, "bytea", st.binary()),
    (columns.floats, "float8", st.floats(allow_nan=False) | st.none()),
    (columns.ints, "int4", st.integers(-(2**31), 2**31 - 1) | st.none()),
    (columns.longs, "int8", st.integers(-(2**63), 2**63 - 1)),
    (columns.booleans, "boolean", st.booleans() | st.none()),
]


def arrived(connection: psycopg.Connection[Any], column: columns.Column, type_name: str) -> list[Any]:
    """What PostgreSQL makes of a column, as psycopg reads it."""
    columns.register(connection)
    query = f"SELECT %b::{type_name}[], pg_typeof(%b)::text"
    (row,) = connection.execute(query, (column, column)).fetchall()
    assert row[1] in {
        f"{type_name}[]",
        {"float8": "double precision[]", "int4": "integer[]", "int8": "bigint[]"}.get(type_name),
    }
    return list(row[0])


@pytest.mark.parametrize(("kind", "type_name", "values"), KINDS, ids=lambda one: one if isinstance(one, str) else "")
def test_a_column_arrives_as_it_was(
    connection: psycopg.Connection[Any],
    kind: Callable[[Sequence[Any]], columns.Column],
    type_name: str,
    values: st.SearchStrategy[Any],
) -> None:
    @given(st.lists(values, max_size=20))
    @settings(max_examples=50, deadline=None)
    def holds(given_values: list[Any]) -> None:
        assert arrived(connection, kind(given_values), type_name) == given_values

    holds()
