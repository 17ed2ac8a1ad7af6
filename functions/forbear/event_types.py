"""Names of event types, and the patterns by which endpoints subscribe to them.

A name is one or more segments of ``A-Z a-z 0-9 _ -``, separated by dots: ``invoice.paid``. A pattern is an exact name,
a prefix with everything below it (``invoice.*``, at any depth, not ``invoice`` itself) or everything (``*``). This
module owns that grammar. It does not know who subscribes: a store looks the matching patterns up by equality.
"""

import re
from typing import Final

MAX_LENGTH: Final = 128
"""The most characters that a name or a pattern may have."""

EVERYTHING: Final = "*"
"""The pattern that matches every event type."""

NAME: Final = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"
"""The grammar of a name, as a regular expression (Python's and ECMA's alike)."""

_NAME: Final = re.compile(NAME)
_BELOW: Final = ".*"
_SHOWN_CHARS: Final = 60


class InvalidEventType(ValueError):
    """A text that is not an event type, or not a pattern for event types; the message says what is expected."""


def validate(name: str) -> str:
    """Check the name of an event type.

    Args:
        name: The name as somebody wrote it.

    Returns:
        The same name.

    Raises:
        InvalidEventType: It is not made of dot-separated segments, or is longer than 128 characters.
    """
    _check_length(name)
    if not _NAME.fullmatch(name):
        raise InvalidEventType(
            "an event type is made of segments of letters, digits, _ and - with single dots between them, "
            f"such as invoice.paid; got {_shown(name)}"
        )
    return name


def validate_pattern(pattern: str) -> str:
    """Check a subscription pattern.

    Args:
        pattern: An exact name, ``prefix.*`` or ``*``.

    Returns:
        The same pattern.

    Raises:
        InvalidEventType: It is none of the three, or is longer than 128 characters.
    """
    _check_length(pattern)
    if pattern != EVERYTHING and not _NAME.fullmatch(pattern.removesuffix(_BELOW)):
        raise InvalidEventType(
            "a subscription is an event type (invoice.paid), a prefix with all below it (invoice.*) or everything (*); "
            f"got {_shown(pattern)}"
        )
    return pattern


def matching_patterns(event_type: str) -> tuple[str, ...]:
    """List every pattern that matches an event type.

    Args:
        event_type: A valid name.

    Returns:
        The patterns from the narrowest to the widest: ``a.b.c`` gives ``a.b.c``, ``a.b.*``, ``a.*`` and ``*``.
    """
    patterns = [event_type]
    prefix = event_type
    while "." in prefix:
        prefix = prefix.rpartition(".")[0]
        patterns.append(prefix + _BELOW)
    patterns.append(EVERYTHING)
    return tuple(patterns)


def _check_length(text: str) -> None:
    if len(text) > MAX_LENGTH:
        raise InvalidEventType(f"an event type has at most {MAX_LENGTH} characters; got {len(text)}: {_shown(text)}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…")
