"""What a producer says of an event beside its payload: whose it is, its type, its key, and until when it is any good.

Owns how each of them must be, and the events' bounds. The same rules stand in `models.events`, which describes the API;
that takes pydantic, whose import would be a third of ingest's cold start, for four fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from forbear import event_types, rfc3339, tenants
from forbear.faults import MISSING, Fault

RESERVED_TYPES: Final = "forbear."
MAX_KEY_CHARS: Final = 255
MAX_BATCH_EVENTS: Final = 500

_KEY: Final = re.compile(rf"[\x20-\x7e]{{1,{MAX_KEY_CHARS}}}")


class InvalidHead(ValueError):
    """What is said of an event is not as it should be.

    Args:
        faults: all that is wrong, in the fields' order.
    """

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__(str(faults[0]))
        self.faults = faults


class Head(NamedTuple):
    """An event without its payload. `id`: an idempotency key."""

    tenant: str
    type: str
    id: str | None
    expires_at: datetime | None


def read_head(given: Mapping[str, object], names: Mapping[str, str] | None = None) -> Head:
    """Check what is said of an event.

    Args:
        given: by name; None is as good as nothing where a field may be left out.
        names: of the fields that have other names than in an envelope; faults name them so.

    Raises:
        InvalidHead: a field is missing or not as it should be.
    """
    read: dict[str, Any] = {}
    found: list[Fault] = []
    for field, (required, kind, validate) in _FIELDS.items():
        name = names.get(field, field) if names else field
        value = given.get(name)
        read[field] = value
        if value is None and not (required and name in given):
            if required:
                found.append(Fault(name, MISSING))
        elif not isinstance(value, str):
            found.append(Fault(name, f"Input should be a valid {kind}"))
        else:
            try:
                read[field] = validate(value)
            except ValueError as error:
                found.append(Fault(name, str(error)))
    if found:
        raise InvalidHead(found)
    return Head(**read)


def validate_type(name: str) -> str:
    """Check a type as producers may use it; gives it back.

    Raises:
        ValueError: it is no event type, or one of Forbear's own.
    """
    event_types.validate(name)
    if name.startswith(RESERVED_TYPES):
        raise ValueError(f"types that begin with {RESERVED_TYPES} are Forbear's own; use another name")
    return name


def validate_key(key: str) -> str:
    """Check an idempotency key: 1 to 255 printable ASCII characters. Gives it back.

    Raises:
        ValueError: it is none.
    """
    if not _KEY.fullmatch(key):
        raise ValueError(f"an idempotency key has 1 to {MAX_KEY_CHARS} characters, all of them printable ASCII")
    return key


type _Validate = Callable[[str], object]

_FIELDS: Final[Mapping[str, tuple[bool, str, _Validate]]] = {
    "tenant": (True, "string", tenants.validate),
    "type": (True, "string", validate_type),
    "id": (False, "string", validate_key),
    "expires_at": (False, "datetime", rfc3339.parse),
}
"""Whether a field is required, what it is to be, and how its text is checked."""
