"""Events as they are posted: the request that carries a payload without changing a byte of it.

Pure: knows no connection and no command. The API's two ways to take an event are described in `forbear.envelope`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from forbear.jsonspan import InvalidJson, elements, spans
from infra.cli.errors import UsageError

MAX_BATCH_EVENTS: Final = 500
MAX_BATCH_BYTES: Final = 4_500_000

_SPACE: Final = b" \t\n\r"  # RFC 8259 section 2
_PLACE: Final = re.compile(r"(?<=at byte )[0-9]+")  # of the envelope, in a message
_BATCH: Final = (b'{"events":[', b"]}")


@dataclass(frozen=True, slots=True)
class Head:
    """Whose event it is, of which type, and its idempotency key if it has one."""

    tenant: str
    type: str
    key: str | None = None


def envelope(head: Head, payload: bytes) -> bytes:
    """An event as JSON, with the payload's text in it as it is (but for space around it).

    Raises:
        InvalidJson: The payload is no JSON value.
    """
    text = payload.strip(_SPACE)
    before = len(payload) - len(payload.lstrip(_SPACE))
    members = {"tenant": head.tenant, "type": head.type} | ({} if head.key is None else {"id": head.key})
    start = json.dumps(members).encode()[:-1] + b',"payload":'
    document = start + text + b"}"
    try:
        found = spans(document)
    except InvalidJson as error:
        raise InvalidJson(_PLACE.sub(lambda place: str(int(place[0]) - len(start) + before), str(error))) from None
    # `1,"tenant":"other"` would also give a valid document, only not this one.
    if found["payload"] != (len(start), len(start) + len(text)):
        raise InvalidJson("not valid JSON: there is something behind the value")
    return document


def raw_headers(head: Head, content_type: str) -> dict[str, str]:
    """The headers that make a request's body, as it is, the payload.

    Raises:
        UsageError: Something cannot stand in a header.
    """
    headers = {"content-type": content_type, "forbear-tenant": head.tenant, "forbear-type": head.type}
    if head.key is not None:
        headers["idempotency-key"] = head.key
    for name, value in headers.items():
        if not value.isascii() or not value.isprintable():
            raise UsageError(f"{value!r} cannot go into the header {name}: printable ASCII only")
    return headers


def guessed_type(payload: bytes) -> str:
    """A content type for a payload that came without one."""
    try:
        if len(elements(b"[%b]" % payload)) == 1:
            return "application/json"
    except InvalidJson:
        pass
    try:
        payload.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain; charset=utf-8"


def batches(envelopes: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Cut a stream of envelopes into batches that the API takes; an envelope too large for any makes one alone."""
    batch: list[bytes] = []
    size = 0
    for one in envelopes:
        if batch and (len(batch) == MAX_BATCH_EVENTS or size + len(one) + 1 > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(one)
        size = (size or sum(map(len, _BATCH))) + len(one) + 1
    if batch:
        yield batch


def batch_document(batch: Iterable[bytes]) -> bytes:
    """The body of a batch."""
    return b",".join(batch).join(_BATCH)
