"""The kinds of field that the API's models share: ids, times out, subscription patterns, bytes.

Owns how a value looks in JSON. Knows no model.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Final
from uuid import UUID

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from forbear import event_types
from forbear.ids import Prefix, decode, encode

IN: Final = ConfigDict(frozen=True, extra="forbid")
"""The configuration of a model that callers write: what it does not know is a mistake, and said so."""


def without_defaults(schema: dict[str, Any]) -> None:
    """What is left out stays as it is, so the schema names no defaults."""
    for field in schema["properties"].values():
        field.pop("default", None)


# Text that JSON needs no more than two bytes a character for: control characters take six, and an answer has a limit.
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def _typed_id(prefix: Prefix, about: str) -> Any:
    """A UUID that is a TypeID in JSON."""

    def read(value: object) -> object:
        return decode(prefix, value) if isinstance(value, str) else value

    schema = {
        "type": "string",
        "pattern": f"^{prefix}_[0-7][0-9a-hjkmnp-tv-z]{{25}}$",
        "description": about,
        "examples": [f"{prefix}_01h455vb4pex5vsknk084sn02q"],
    }
    return (BeforeValidator(read), PlainSerializer(partial(encode, prefix), return_type=str), WithJsonSchema(schema))


EndpointId = Annotated[UUID, *_typed_id(Prefix.ENDPOINT, "An endpoint's id.")]
EventId = Annotated[UUID, *_typed_id(Prefix.EVENT, "An event's id, which is its webhook-id.")]
DeliveryId = Annotated[UUID, *_typed_id(Prefix.DELIVERY, "A delivery's id, which is its idempotency-key.")]
ReplayId = Annotated[UUID, *_typed_id(Prefix.REPLAY, "A replay's id.")]
ApiKeyId = Annotated[UUID, *_typed_id(Prefix.API_KEY, "An API key's id; not the key.")]


def show_time(at: datetime) -> str:
    """A time as RFC 3339 in UTC with Z, to the millisecond."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


Instant = Annotated[
    datetime,
    PlainSerializer(show_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time", "examples": ["2030-01-31T09:30:00.000Z"]}),
]


def storable(text: str) -> str:
    """Check that a text can be stored: PostgreSQL's texts hold no U+0000."""
    if "\0" in text:
        raise ValueError("the character U+0000 cannot be stored: remove it")
    return text


EventType = Annotated[
    str,
    AfterValidator(event_types.validate),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^{event_types.NAME}$",
            "maxLength": event_types.MAX_LENGTH,
            "examples": ["invoice.paid"],
        }
    ),
]
Pattern = Annotated[
    str,
    AfterValidator(event_types.validate_pattern),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^(?:\*|{event_types.NAME}(?:\.\*)?)$",
            "maxLength": event_types.MAX_LENGTH,
            "examples": ["invoice.paid", "invoice.*"],
        }
    ),
]
Patterns = Annotated[
    list[Pattern],
    Field(min_length=1, max_length=100),
    AfterValidator(lambda patterns: list(dict.fromkeys(patterns))),
]


def show_bytes(raw: bytes) -> dict[str, str]:
    """Bytes for JSON: as `text` where they are text (UTF-8 without control characters), else as `base64`."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = "\0"
    if _CONTROLS.search(text):
        return {"base64": base64.b64encode(raw).decode("ascii")}
    return {"text": text}


def _member(name: str, about: str, **more: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string", "description": about, **more}},
        "required": [name],
        "additionalProperties": False,
    }


Content = Annotated[
    bytes,
    PlainSerializer(show_bytes, return_type=dict[str, str]),
    WithJsonSchema(
        {
            "oneOf": [
                _member("text", "The bytes as text, where they are UTF-8 without control characters."),
                _member("base64", "The bytes in base64 otherwise.", contentEncoding="base64"),
            ]
        }
    ),
]
