"""JSON as text, built without a parser, so that what stands where is known."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import strategies as st

# Documents are built as text, so that the expected slices are known without any parser: a tree of source texts, written
# out with whitespace drawn from a seeded generator (drawing each gap from hypothesis would take most of the time).
type Tree = str | list[Tree] | list[tuple[str, Tree]]

pieces = st.sampled_from(
    [r"\u0000", r"\ud800", r"\"", r"\\", r"\/", r"\u00e9", "\U0001f600", "é", "{", "]", ",", " ", "ab"]
)
names = st.lists(pieces, max_size=4).map(lambda parts: '"' + "".join(parts) + '"')
numbers = st.sampled_from(["0", "-0", "1.0", "1e400", "-1E-7", "0.10", "9" * 30, "9" * 5000]) | st.integers().map(str)
leaves = st.sampled_from(["true", "false", "null"]) | numbers | names
trees: st.SearchStrategy[Tree] = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.lists(st.tuples(names, inner), max_size=4),
    max_leaves=10,
)
generators = st.integers(0, 2**32).map(random.Random)


def written(tree: Tree, rng: random.Random) -> str:
    if isinstance(tree, str):
        return tree
    parts = [
        f"{part[0]}{space(rng)}:{space(rng)}{written(part[1], rng)}" if isinstance(part, tuple) else written(part, rng)
        for part in tree
    ]
    opening, closing = "{}" if tree and isinstance(tree[0], tuple) else "[]"
    return opening + ",".join(f"{space(rng)}{part}{space(rng)}" for part in parts) + closing


def space(rng: random.Random) -> str:
    return "".join(rng.choices(" \t\r\n", k=rng.randrange(3)))


def parsed(document: str | bytes) -> Any:
    return json.loads(document, parse_float=str, parse_int=str)
