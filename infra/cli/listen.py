"""`forbear listen`: a receiver on this machine that prints what it gets."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forbear.signing import InvalidSecret
from infra.cli.command import Session
from infra.cli.errors import UsageError
from infra.cli.output import Output, cut

if TYPE_CHECKING:
    from infra.cli.receiver import Received

_BODY_CHARS = 4_000


def listen(
    session: Session,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 is any free one.")] = 8402,
    secret: Annotated[
        str | None,
        typer.Option(metavar="whsec_…|whpk_…", help="What to verify with; what does not verify is answered with 401."),
    ] = None,
    status: Annotated[int, typer.Option(min=200, max=599, help="What requests are answered with.")] = 200,
    fail: Annotated[int, typer.Option(min=0, help="How many requests are answered with 500 first.")] = 0,
) -> None:
    """Receive webhooks on this machine, verify and print them, until interrupted."""
    from infra.cli.receiver import Receiver, serve  # noqa: PLC0415 - uvicorn and cryptography take their time
    from infra.cli.verifying import check_with  # noqa: PLC0415

    output = session.output
    try:
        check = None if secret is None else check_with(secret)
    except InvalidSecret as error:
        raise UsageError(f"--secret: {error}") from error

    def ready(url: str) -> None:
        output.done(f"listening on {url}{'' if check else ' (without --secret nothing is verified)'}", {"url": url})

    def tell(received: Received) -> None:
        if output.as_json:
            output.document(_document(received))
        else:
            _print(output, received)

    serve(Receiver(check, status, fail, tell), port, ready)


def _document(received: Received) -> dict[str, Any]:
    headers = received.headers
    try:
        body = {"text": received.body.decode()}
    except UnicodeDecodeError:
        body = {"base64": base64.b64encode(received.body).decode("ascii")}
    return {
        "id": headers.get("webhook-id"),
        "verified": received.refused is None if received.checked else None,
        "why_not": received.refused,
        "seen_before": received.seen_before,
        "answered": received.status,
        "method": received.method,
        "target": received.target,
        "headers": dict(headers),
        "body": body,
    }


def _print(output: Output, received: Received) -> None:
    headers = received.headers
    if received.refused is not None:
        verified = f"NOT VERIFIED: {received.refused}"
    else:
        verified = "verified" if received.checked else "not checked"
    parts = [
        f"{datetime.now().astimezone():%H:%M:%S}",
        headers.get("webhook-id", f"{received.method} {received.target}"),
        headers.get("forbear-type", ""),
        f"attempt {headers['forbear-attempt']}" if "forbear-attempt" in headers else "",
        f"replay {headers['forbear-replay']}" if "forbear-replay" in headers else "",
        verified,
        "seen before" if received.seen_before else "",
        f"answered {received.status}",
    ]
    output.line("  ".join(part for part in parts if part))
    about = [headers.get("idempotency-key"), headers.get("content-type"), f"{len(received.body)} bytes"]
    output.block("  ".join(part for part in about if part))
    try:
        body = received.body.decode().rstrip("\n")
    except UnicodeDecodeError:
        body = f"base64: {base64.b64encode(received.body).decode('ascii')}"
    output.block(cut(body, _BODY_CHARS))
