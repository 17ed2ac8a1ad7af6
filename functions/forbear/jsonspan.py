"""Where the values of a JSON text stand in it, byte for byte.

A payload goes out exactly as it came in, so it is cut out of its envelope, never parsed and written again. This module
validates a whole document strictly (RFC 8259) and gives the byte offsets of an object's members or an array's elements.
It does not know what the members mean, and gives no values: whoever needs one parses its slice.

The work is done by the C scanner of the standard library, made strict where it is lenient: no NaN and Infinity, no
limit on the digits of a number (numbers are not converted at all), no invalid UTF-8.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, NoReturn

_SPACE: Final = re.compile(r"[ \t\n\r]*")  # RFC 8259 section 2
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_SHOWN_CHARS: Final = 60


class InvalidJson(ValueError):
    """A text that is not JSON, or not of the kind asked for; the message says what and, where known, at which byte."""


class Span(NamedTuple):
    """A stretch of bytes, from start up to but without end."""

    start: int
    end: int

    def of(self, document: bytes) -> bytes:
        """Cut the stretch out of the document that it was found in."""
        return document[self.start : self.end]


def spans(document: bytes) -> dict[str, Span]:
    """Find the value of each member of a JSON object.

    Args:
        document: The whole text, UTF-8. Nesting of 500 levels is always accepted, and a limit lies some way beyond.

    Returns:
        The members' names (escapes resolved), in the order of the text, and where their values stand, without the space
        around them.

    Raises:
        InvalidJson: The text is not valid JSON by RFC 8259, not an object, or has two members of one name at its top
            (further down, duplicates pass).
    """
    reader = _Reader(document, "{", "object")
    values: dict[str, Span] = {}
    more = not reader.take("}")
    while more:
        name = reader.name()
        if name in values:
            reader.fail(f"the name {name[:_SHOWN_CHARS]!r} is there twice", reader.position)
        values[name] = reader.value()
        more = reader.another("}")
    reader.finish()
    return dict(zip(values, reader.in_bytes(values.values()), strict=True))


def elements(document: bytes) -> list[Span]:
    """Find the elements of a JSON array.

    To split a batch, cut the array out with `spans` first, then pass each element to `spans` again: as the whole was
    valid JSON, an element that is not as it should be fails alone.

    Args:
        document: The whole text, UTF-8. The bounds are those of `spans`.

    Returns:
        Where the elements stand, in their order, without the space around them.

    Raises:
        InvalidJson: The text is not valid JSON by RFC 8259, or not an array.
    """
    reader = _Reader(document, "[", "array")
    values: list[Span] = []
    more = not reader.take("]")
    while more:
        values.append(reader.value())
        more = reader.another("]")
    reader.finish()
    return reader.in_bytes(values)


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJson(f"not valid JSON: {name} is no JSON value; use null or a string")


# `str` leaves numbers as they are: no limit of digits (sys.set_int_max_str_digits), no overflow, no time spent.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)


class _Reader:
    """Walks over one level of a JSON text. Positions count characters, until `in_bytes` turns them into bytes."""

    def __init__(self, document: bytes, opening: str, kind: str) -> None:
        self.text = _decoded(document)
        self.position = 0
        if not self.take(opening):
            start = self.position
            self._scan()  # what is no JSON at all is told as such first
            self.fail(f"expected a JSON {kind}", start)

    def take(self, char: str) -> bool:
        """Skip space, and the character if it comes next."""
        if not self.text.startswith(char, self.position):  # mostly there is no space
            self._skip_space()
            if not self.text.startswith(char, self.position):
                return False
        self.position += 1
        return True

    def name(self) -> str:
        """Read a member's name and the colon behind it."""
        if not self.text.startswith('"', self.position):
            self._skip_space()
            if not self.text.startswith('"', self.position):
                self.fail("expected a member's name in double quotes", self.position)
        name: str = self._scan()
        if not self.take(":"):
            self.fail("expected : behind a member's name", self.position)
        return name

    def value(self) -> Span:
        """Step over a value; gives its place."""
        self._skip_space()
        start = self.position
        self._scan()
        return Span(start, self.position)

    def another(self, closing: str) -> bool:
        """Tell whether a comma (so that another one must follow) or the closing bracket comes next, and skip it."""
        if self.take(","):
            return True
        if not self.take(closing):
            self.fail(f"expected , or {closing}", self.position)
        return False

    def finish(self) -> None:
        """Check that nothing but space is left."""
        self._skip_space()
        if self.position != len(self.text):
            self.fail("there is something behind the end of the document", self.position)

    def in_bytes(self, places: Iterable[Span]) -> list[Span]:
        """Turn places in the text, which must be in order, into places in the document."""
        if self.text.isascii():
            return list(places)
        found: list[Span] = []
        done_chars = done_bytes = 0
        for start, end in places:
            start_bytes = done_bytes + len(self.text[done_chars:start].encode())
            done_bytes = start_bytes + len(self.text[start:end].encode())
            done_chars = end
            found.append(Span(start_bytes, done_bytes))
        return found

    def fail(self, what: str, position: int) -> NoReturn:
        """Refuse the document because of what stands at a position."""
        raise InvalidJson(f"not valid JSON: {what}, at byte {len(self.text[:position].encode())}")

    def _skip_space(self) -> None:
        self.position = _SPACE.match(self.text, self.position).end()  # type: ignore[union-attr]  # it matches always

    def _scan(self) -> Any:
        try:
            value, self.position = _DECODER.raw_decode(self.text, self.position)
        except json.JSONDecodeError as error:
            self.fail(error.msg[:1].lower() + error.msg[1:], error.pos)
        except RecursionError:
            self.fail("nested too deeply", self.position)
        return value


def _decoded(document: bytes) -> str:
    if document.startswith(_BYTE_ORDER_MARK):
        raise InvalidJson("not valid JSON: it starts with a byte order mark; leave that out (RFC 8259 section 8.1)")
    nul = document.find(b"\0")
    if nul >= 0:
        raise InvalidJson(f"not valid JSON: a NUL byte, at byte {nul}; inside a string, write \\u0000")
    try:
        return document.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidJson(f"not valid JSON: it is not UTF-8, at byte {error.start}") from None
