"""Reads what a producer posts: headers and body in, events out, or a problem that says what to mend.

Owns the two ways to post an event (an envelope of JSON, or the payload as it is with headers), batches, and their
bounds. The payload's bytes are kept as they came in, whatever they are. Knows no database.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from forbear.api import JSON, Problem, at_fault
from forbear.heads import MAX_BATCH_EVENTS, Head, InvalidHead, read_head, validate_key
from forbear.jsonspan import InvalidJson, Span, elements, spans

MAX_PAYLOAD_BYTES: Final = 1 << 20
# Lambda takes events of 6 MiB, and a body comes as base64 if it must: 4/3 of its size.
MAX_BATCH_BYTES: Final = 4_500_000

_KEY_HEADER: Final = "idempotency-key"
_RAW_HEADERS: Final = {"tenant": "forbear-tenant", "type": "forbear-type", "expires_at": "forbear-expires-at"}
_HEAD_MEMBERS: Final = ("tenant", "type", "id", "expires_at")
_CONTENT_TYPE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,253}[\x21-\x7e])?")
_DEFAULT_CONTENT_TYPE: Final = "application/octet-stream"
# In place of a JSON value that is neither text nor null; every field of text refuses it.
_NO_TEXT: Final = False


@dataclass(frozen=True, slots=True)
class NewEvent:
    """An event to store. `key`: its idempotency key, if it has one."""

    tenant: str
    type: str
    content_type: str
    payload: bytes
    expires_at: datetime | None
    key: str | None

    def digest(self) -> bytes:
        """SHA-256 of what is stored, tenant and key left out: two posts under one key must agree in it."""
        expires_at = "" if self.expires_at is None else self.expires_at.isoformat()
        digest = hashlib.sha256()
        for part in (self.type.encode(), self.content_type.encode(), expires_at.encode(), self.payload):
            digest.update(len(part).to_bytes(8))
            digest.update(part)
        return digest.digest()


def read_event(headers: Mapping[str, str], body: bytes) -> NewEvent:
    """Read a single event, in either way.

    Args:
        headers: the request's, names in lower case. One of forbear-tenant, forbear-type and forbear-expires-at makes it
            a raw event.
        body: the body's bytes.

    Raises:
        Problem: 400 the body is not JSON, or there are two keys; 413 the payload is over 1 MiB; 415 not JSON; 422 a
            member or header is missing, unknown or not as it should be.
    """
    key = _key(headers)
    if any(name in headers for name in _RAW_HEADERS.values()):
        return _from_headers(headers, body, key)
    _check_media_type(headers)
    event = _from_envelope(body)
    if key is None or event.key == key:
        return event
    if event.key is not None:
        raise Problem(400, "the header Idempotency-Key and the member id are both there and differ: send one of them")
    return replace(event, key=key)


def read_batch(headers: Mapping[str, str], body: bytes) -> list[NewEvent | Problem]:
    """Read a batch: each entry is an event, or the problem with it.

    Args:
        headers: the request's, names in lower case. With an Idempotency-Key, an event without an id of its own gets
            that key, a slash and its index.
        body: the body's bytes.

    Raises:
        Problem: 400 the body as a whole is not JSON; 413 it is over 4.5 MB or 500 events; 415 not said to be JSON; 422
            it is not an object with some events.
    """
    key = _key(headers)
    _check_media_type(headers)
    if len(body) > MAX_BATCH_BYTES:
        raise Problem(413, f"a batch has at most {MAX_BATCH_BYTES} bytes, this one has {len(body)}: send several")
    members = _spans(body)
    _check_members(members, known=("events",), required="events")
    document = members["events"].of(body)
    if not document.startswith(b"["):
        raise Problem(422, "events: it must be an array")
    found = elements(document)
    if not found:
        raise Problem(422, "events: there is none")
    if len(found) > MAX_BATCH_EVENTS:
        raise Problem(413, f"a batch has at most {MAX_BATCH_EVENTS} events, this one has {len(found)}: send several")
    entries: list[NewEvent | Problem] = []
    for index, span in enumerate(found):
        try:
            event = _from_envelope(span.of(document))
        except Problem as problem:
            entries.append(problem)
        else:
            entries.append(replace(event, key=f"{key}/{index}") if key and event.key is None else event)
    return entries


def _from_envelope(document: bytes) -> NewEvent:
    members = _spans(document)
    _check_members(members, known=(*_HEAD_MEMBERS, "payload"), required="payload")
    given = {name: _text(span.of(document)) for name, span in members.items() if name != "payload"}
    head = _head(given)
    payload = members["payload"].of(document)
    _check_size(payload)
    return NewEvent(head.tenant, head.type, JSON, payload, head.expires_at, head.id)


def _from_headers(headers: Mapping[str, str], body: bytes, key: str | None) -> NewEvent:
    head = _head({name: headers[name] for name in _RAW_HEADERS.values() if name in headers}, _RAW_HEADERS)
    content_type = headers.get("content-type", "").strip() or _DEFAULT_CONTENT_TYPE
    if not _CONTENT_TYPE.fullmatch(content_type):
        raise Problem(422, "content-type: it must be printable ASCII, at most 255 characters")
    _check_size(body)
    return NewEvent(head.tenant, head.type, content_type, body, head.expires_at, key)


def _key(headers: Mapping[str, str]) -> str | None:
    if _KEY_HEADER not in headers:
        return None
    try:
        return validate_key(headers[_KEY_HEADER])
    except ValueError as error:
        raise Problem(400, f"the header Idempotency-Key: {error}") from None


def _check_media_type(headers: Mapping[str, str]) -> None:
    content_type = headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() not in {"", JSON}:
        raise Problem(
            415,
            f"an envelope is {JSON}; to post a payload of another type as it is, say in the headers forbear-tenant and"
            " forbear-type whose and what it is",
        )


def _spans(document: bytes) -> dict[str, Span]:
    try:
        return spans(document)
    except InvalidJson as error:
        raise Problem(400, str(error)) from None


def _check_members(members: Mapping[str, Span], *, known: tuple[str, ...], required: str) -> None:
    for name in members:
        if name not in known:
            raise Problem(422, f"{name[:60]!a}: there is no such member; there is: {', '.join(known)}")
    if required not in members:
        raise Problem(422, f"{required}: it is missing")


def _head(given: Mapping[str, object], names: Mapping[str, str] | None = None) -> Head:
    try:
        return read_head(given, names)
    except InvalidHead as error:
        raise at_fault(error.faults) from None


def _text(document: bytes) -> str | bool | None:
    """The value of a JSON text that should be a string: that, None for null, `_NO_TEXT` for anything else."""
    if document.startswith(b'"'):
        text = document.decode()
        return str(json.loads(text)) if "\\" in text else text[1:-1]
    return None if document == b"null" else _NO_TEXT


def _check_size(payload: bytes) -> None:
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise Problem(413, f"a payload has at most {MAX_PAYLOAD_BYTES} bytes (1 MiB), this one has {len(payload)}")
