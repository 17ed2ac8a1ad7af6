"""`forbear send`: post an event, many times, or one a line.

Owns where payloads come from and how it is told what became of them; the requests' form is `posting`'s.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from itertools import repeat, starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self, cast

import typer

from forbear.jsonspan import InvalidJson
from infra.cli.command import Session
from infra.cli.errors import UsageError
from infra.cli.output import Document, Output, counted
from infra.cli.posting import Head, batch_document, batches, envelope, guessed_type, raw_headers

if TYPE_CHECKING:
    from infra.cli.client import Client

_JSON = {"content-type": "application/json"}
_CHUNK_BYTES = 1 << 20


@dataclass(slots=True)
class Tally:
    """What became of many events; tells of each as it comes, and of all in a line at the end."""

    output: Output
    accepted: int = 0
    deliveries: int = 0
    duplicates: int = 0
    refused: int = 0

    def add(self, result: Document, line: int | None = None) -> None:
        """Count the API's answer for one event, which came from a line."""
        if self.output.as_json:
            self.output.document(result if line is None else {"line": line, **result})
        if "id" in result:
            self.accepted += 1
            self.deliveries += result["deliveries"]
            self.duplicates += result["duplicate"]
        else:
            self.refused += 1
            self.output.remark(f"{'refused' if line is None else f'line {line}'}: {result['detail']}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Also when an error ends it all: what was accepted until then is stored.
        parts = [f"{counted(self.accepted, 'event')} accepted, {counted(self.deliveries, 'delivery', 'deliveries')}"]
        parts += [f"{counted(self.duplicates, 'duplicate')} among them"] if self.duplicates else []
        parts += [f"{self.refused} refused"] if self.refused else []
        if not self.output.as_json:
            self.output.line("; ".join(parts))


def send(
    session: Session,
    payload: Annotated[
        str | None,
        typer.Argument(metavar="PAYLOAD|@FILE|-", help="The payload, a file that holds it, or standard input (-)."),
    ] = None,
    *,
    tenant: Annotated[str, typer.Option(help="Whose event this is.", show_default=False)],
    event_type: Annotated[str, typer.Option("--type", help="The event's type.", show_default=False)],
    key: Annotated[
        str | None,
        typer.Option("--id", metavar="KEY", help="An idempotency key: within 24 hours one event is stored under it."),
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Post the payload as it is, whatever it is; done anyway if it is not JSON.")
    ] = False,
    content_type: Annotated[
        str | None, typer.Option(metavar="TYPE", help="What a raw payload is; left out, it is guessed.")
    ] = None,
    lines: Annotated[bool, typer.Option("--lines", help="Each line is the JSON payload of an event.")] = False,
    count: Annotated[int, typer.Option(min=1, help="How many such events.")] = 1,
) -> None:
    """Post an event; its payload goes out byte for byte."""
    head = Head(tenant, event_type, key)
    tally = Tally(session.output)
    if lines:
        if key is not None or raw or content_type is not None or count != 1:
            raise UsageError("--lines goes with neither --id, --raw, --content-type nor --count")
        with session.api() as api:
            _send_lines(api, head, payload, tally)
    else:
        whole = b"".join(_chunks(payload))
        document = None if raw or content_type is not None else _as_json(session.output, head, whole)
        headers = _JSON if document else raw_headers(head, content_type or guessed_type(whole))
        if document and key is not None:
            headers = {**headers, "idempotency-key": key}
        with session.api() as api:
            post = partial(api.call, "POST", "/v1/events", body=document or whole, headers=headers, once=True)
            if count == 1:
                _tell(session.output, post())
            else:
                with tally:
                    for result in _post(api, repeat(document, count)) if document else starmap(post, repeat((), count)):
                        tally.add(result)
    if tally.refused:
        raise typer.Exit(1)


def _as_json(output: Output, head: Head, payload: bytes) -> bytes | None:
    """The payload in an envelope; None, and a remark, if it is not JSON."""
    try:
        return envelope(head, payload)
    except InvalidJson as error:
        output.remark(f"sent raw, as it is, for it is {error}")
        return None


def _tell(output: Output, accepted: Document) -> None:
    repeated = " (sent before under this key: nothing new is stored)" if accepted["duplicate"] else ""
    output.done(f"{accepted['id']}  deliveries: {accepted['deliveries']}{repeated}", accepted)


def _send_lines(api: Client, head: Head, source: str | None, tally: Tally) -> None:
    number = 0
    with tally:
        for group in _groups_of_lines(_chunks(source)):
            numbers: list[int] = []
            envelopes: list[bytes] = []
            for line in group:
                number += 1
                if not line.strip():
                    continue
                try:
                    envelopes.append(envelope(head, line))
                    numbers.append(number)
                except InvalidJson as error:
                    tally.add(
                        {"type": "about:blank", "title": "Bad Request", "status": 400, "detail": str(error)}, number
                    )
            for number_of, result in zip(numbers, _post(api, envelopes), strict=True):
                tally.add(result, number_of)


def _post(api: Client, envelopes: Iterable[bytes]) -> Iterator[Document]:
    """Post envelopes in batches; gives the answer for each."""
    for batch in batches(envelopes):
        yield from api.call("POST", "/v1/events/batch", body=batch_document(batch), headers=_JSON, once=True)["results"]


def _chunks(source: str | None) -> Iterator[bytes]:
    """The payload's bytes, as they become available."""
    if source is None and sys.stdin.isatty():
        raise UsageError("what is the payload? Give it as an argument, as @FILE, or on standard input")
    if source is None or source == "-":
        # read1 gives what is there: the lines of a running program are sent as it writes them.
        yield from iter(partial(cast(BufferedReader, sys.stdin.buffer).read1, _CHUNK_BYTES), b"")
    elif source.startswith("@"):
        try:
            yield Path(source[1:]).read_bytes()
        except OSError as error:
            raise UsageError(f"{source[1:]!r} cannot be read: {error.strerror}") from error
    else:
        yield os.fsencode(source)


def _groups_of_lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    """The lines that each chunk completes, without their ends."""
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        yield complete
    yield [rest]
