"""Columns of values as PostgreSQL's binary arrays: what a batch of results travels as.

psycopg's own dumping of a list looks at every element several times; over the twenty columns of a batch that was a
quarter of what settling cost a claimer. Here a column is of one type, known beforehand, and written at once.

The format is that of `array_send` (PostgreSQL, src/backend/utils/adt/arrayfuncs.c), all numbers big-endian: the number
of dimensions, whether there are NULLs, the element's type, length and lower bound of each dimension; then for each
element its length in bytes (-1: NULL) and as many bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from psycopg.abc import AdaptContext
from psycopg.adapt import Dumper
from psycopg.pq import Format

# The types' numbers, of the element and of its array (PostgreSQL, src/include/catalog/pg_type.dat).
_BOOL, _BYTEA, _INT8, _INT4, _TEXT, _FLOAT8, _UUID = (
    (16, 1000),
    (17, 1001),
    (20, 1016),
    (23, 1007),
    (25, 1009),
    (701, 1022),
    (2950, 2951),
)
_HEAD = struct.Struct("!iiIii").pack
_LENGTH = struct.Struct("!i").pack
_INT8_ELEMENT = struct.Struct("!iq").pack
_INT4_ELEMENT = struct.Struct("!ii").pack
_FLOAT8_ELEMENT = struct.Struct("!id").pack
_NULL = _LENGTH(-1)
_BOOLS = {True: _LENGTH(1) + b"\1", False: _LENGTH(1) + b"\0", None: _NULL}
_UUID_LENGTH = _LENGTH(16)


@dataclass(slots=True)
class Column:
    """A column as a parameter of a statement, to be passed as binary (`%b`) on a connection that `register` knows."""

    oid: int
    encoded: bytes


def uuids(values: Sequence[UUID]) -> Column:
    """A `uuid[]`."""
    return _column(_UUID, len(values), [_UUID_LENGTH + value.bytes for value in values])


def texts(values: Sequence[str | None]) -> Column:
    """A `text[]`. No text may hold NUL or a lone surrogate."""
    encoded = {value: _NULL if value is None else _sized(value.encode()) for value in set(values)}
    return _column(_TEXT, len(values), [encoded[value] for value in values])


def blobs(values: Sequence[bytes]) -> Column:
    """A `bytea[]`."""
    return _column(_BYTEA, len(values), [_sized(value) for value in values])


def floats(values: Sequence[float | None]) -> Column:
    """A `float8[]`."""
    return _column(_FLOAT8, len(values), [_NULL if value is None else _FLOAT8_ELEMENT(8, value) for value in values])


def ints(values: Sequence[int | None]) -> Column:
    """An `int4[]`."""
    return _column(_INT4, len(values), [_NULL if value is None else _INT4_ELEMENT(4, value) for value in values])


def longs(values: Sequence[int]) -> Column:
    """An `int8[]`."""
    return _column(_INT8, len(values), [_INT8_ELEMENT(8, value) for value in values])


def booleans(values: Sequence[bool | None]) -> Column:
    """A `boolean[]`."""
    return _column(_BOOL, len(values), [_BOOLS[value] for value in values])


def register(context: AdaptContext) -> None:
    """Have a connection take columns as parameters."""
    context.adapters.register_dumper(Column, _ColumnDumper)


def _sized(value: bytes) -> bytes:
    return _LENGTH(len(value)) + value


def _column(types: tuple[int, int], length: int, elements: Iterable[bytes]) -> Column:
    element, array = types
    if not length:
        return Column(array, _HEAD(0, 0, element, 0, 0)[:12])
    # That there may be NULLs is enough: PostgreSQL looks for itself.
    return Column(array, _HEAD(1, 1, element, length, 1) + b"".join(elements))


class _ColumnDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return obj.encoded  # type: ignore[no-any-return]

    def get_key(self, obj: Any, format: Any) -> Any:  # noqa: A002, ARG002 - psycopg's names
        return (Column, obj.oid)

    def upgrade(self, obj: Any, format: Any) -> Dumper:  # noqa: A002, ARG002
        typed = _ColumnDumper(Column)
        typed.oid = obj.oid
        return typed
