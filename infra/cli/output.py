"""What commands print: tables on a terminal, plain lines elsewhere, JSON (one line a document) if asked for.

Owns form only. What comes from elsewhere (answers of receivers, names, reasons) may hold anything, so control
characters never reach the terminal. Results go to standard output, errors and remarks to standard error.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from infra.cli.errors import CliError

NOTHING = "-"

# Columns of a table that may be narrower than what is in them, and how narrow.
_GIVES_WAY = {"url": 10, "endpoint": 4, "types": 5, "held by": 7, "takes": 5, "status": 9, "summary": 9}
_TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]+)?Z")


type Document = Mapping[str, Any]
type Columns = Mapping[str, str | Callable[[Document], Any]]
"""Facts about an item: what each is called, and where it stands in the item's document (`a.b` is b within a) or how it
follows from the document."""


@dataclass(frozen=True, slots=True)
class Output:
    """Prints. `as_json`: whether programs read it."""

    as_json: bool = False

    def items(self, items: Iterable[Document], columns: Columns, nothing: str) -> None:
        """Print a list.

        Args:
            items: The items' documents; plain lines and JSON are printed as they come.
            columns: What to show of each: a table's columns, or the fields, tab-separated, of plain lines.
            nothing: The remark if there is no item.
        """
        if not self.as_json and sys.stdout.isatty():
            rows = list(items)
            if rows:
                self._table(rows, columns)
        else:
            rows = []
            for item in items:
                rows = [item]
                self.document(item) if self.as_json else print("\t".join(_facts(item, columns)))
        if not rows:
            self.remark(nothing)

    def facts(self, document: Document, columns: Columns) -> None:
        """Print one item: a line a fact, or its document. Facts that it has not are left out."""
        if self.as_json:
            self.document(document)
            return
        width = max(map(len, columns))
        for title, value in zip(columns, _facts(document, columns), strict=True):
            if value != NOTHING:
                print(f"{title:<{width}}  {value}")

    def done(self, sentence: str, document: Any) -> None:
        """Print what was done: a sentence, or the document that the API answered with (or that stands for it)."""
        if self.as_json:
            self.document(document)
        else:
            self.line(sentence)

    def document(self, document: Any) -> None:
        """Print a document as a line of JSON."""
        print(json.dumps(document, separators=(",", ":")), flush=True)

    def line(self, sentence: str) -> None:
        """Print a line for people."""
        print(visible(sentence), flush=True)

    def block(self, lines: str) -> None:
        """Print text of several lines, indented; its lines stay, other control characters do not."""
        for line in lines.split("\n"):
            self.line(f"    {line.removesuffix('\r')}")

    def remark(self, sentence: str) -> None:
        """Tell people something that is no result."""
        if not self.as_json:
            print(visible(sentence), file=sys.stderr)

    def error(self, error: CliError) -> None:
        """Tell what went wrong: one line, or the problem document."""
        line = json.dumps(error.document(), separators=(",", ":")) if self.as_json else f"error: {visible(str(error))}"
        print(line, file=sys.stderr)

    def _table(self, items: Iterable[Document], columns: Columns) -> None:
        from rich.console import Console  # noqa: PLC0415 - rich takes 0.3 s that plain lines need not cost
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for title in columns:
            # In a narrow terminal some columns give way; a URL is folded, for if it were cut it could not be copied.
            table.add_column(
                title,
                no_wrap=title not in _GIVES_WAY,
                overflow="fold" if title == "url" else "ellipsis",
                min_width=_GIVES_WAY.get(title),
            )
        today = f"{datetime.now(UTC):%Y-%m-%d}"
        for item in items:
            table.add_row(*(Text(_short(fact, today)) for fact in _facts(item, columns)))
        Console().print(table)


def _facts(item: Document, columns: Columns) -> list[str]:
    return [text(_at(item, column) if isinstance(column, str) else column(item)) for column in columns.values()]


def _at(item: Document, path: str) -> Any:
    value: Any = item
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _short(fact: str, today: str) -> str:
    """A fact for a table, where a time need not be exact to the millisecond; all else stays as it is."""
    time = _TIME.fullmatch(fact)
    if time is None:
        return fact
    return f"{time[2]}Z" if time[1] == today else f"{time[1]}T{time[2]}Z"


def text(value: Any) -> str:
    """A JSON value as people read it, on one line, without control characters."""
    match value:
        case _ if value in (None, "", [], {}):
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list():
            return ", ".join(text(one) for one in value)
        case Mapping():
            return " ".join(f"{visible(name)}={text(one)}" for name, one in value.items())
        case _:
            return visible(str(value))


def counted(number: int, singular: str, plural: str | None = None) -> str:
    """A number of things: `1 event`, `2 events`."""
    return f"{number} {singular if number == 1 else plural or f'{singular}s'}"


def content(shown: Document, max_chars: int | None = None) -> str:
    """Bytes as the API shows them (`text` or `base64`), for people; cut to a number of characters if that is given."""
    if "text" not in shown:
        return cut(f"base64: {shown['base64']}", max_chars)
    return cut(shown["text"].rstrip("\n"), max_chars)


def cut(long: str, max_chars: int | None) -> str:
    """A text, cut with a mark if it is longer than wanted."""
    return long if max_chars is None or len(long) <= max_chars else f"{long[:max_chars]}…"


def visible(content: str) -> str:
    """Replace what would not print by its escape: control characters, and halves of surrogate pairs."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii")
        for char in content
    )
