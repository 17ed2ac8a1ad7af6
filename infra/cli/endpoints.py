"""`forbear endpoints`: who gets webhooks, how they are doing, and what holds them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from infra.cli import times
from infra.cli.command import ListByDefault, Session, command
from infra.cli.errors import UsageError
from infra.cli.options import Limit, Since, Tenant, Until
from infra.cli.output import Columns, Document

app = typer.Typer(cls=ListByDefault, help="Endpoints: add, read, change, pause. Without a command: list.")

PATH = "/v1/endpoints/{}"

Id = Annotated[str, typer.Argument(metavar="ID", help="The endpoint's id (ep_…).", show_default=False)]
Types = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TYPE", help="A type, `prefix.*` or `*`; again for more.", show_default=False),
]
Description = Annotated[str | None, typer.Option(help="For people.", show_default=False)]
Headers = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="'NAME: VALUE'", help="A header of each request; again for more."),
]
PresetOption = Annotated[
    str | None,
    typer.Option("--preset", metavar="NAME", help="What the policy begins as; `forbear presets` lists them."),
]
PolicyOption = Annotated[
    str | None,
    typer.Option("--policy", metavar="FILE|JSON", help="Parts of the policy: a JSON object, or a file that holds one."),
]
Secret = Annotated[
    str | None,
    typer.Option(metavar="whsec_…|whsk_…", help="An own signing secret; left out, one is made.", show_default=False),
]


def _held(endpoint: Document) -> list[str]:
    return [
        hold["by"]
        + (f" until {hold['until']}" if hold["until"] else "")
        + (f" ({hold['reason']})" if hold["reason"] else "")
        for hold in endpoint["circuit"]["held"]
    ]


def _pending(endpoint: Document) -> str | None:
    pending = endpoint["circuit"].get("pending")
    return pending and f"{pending['count']}{' or more' if pending['more'] else ''}"


def _success(endpoint: Document) -> str | None:
    rate = endpoint["circuit"].get("success_rate")
    if not rate or rate["rate"] is None:
        return None
    return f"{rate['rate']:.1%} of {rate['attempts']} attempts since {rate['since']}"


def _retry_after(endpoint: Document) -> str | None:
    tally = endpoint["circuit"].get("retry_after")
    return f"{tally['honoured']} of {tally['seen']} honoured" if tally and tally["seen"] else None


def _retries(endpoint: Document) -> str | None:
    retries = endpoint["circuit"]["retries"]
    return None if retries is None else f"{retries} may go now"


LIST: Columns = {
    "id": "id",
    "tenant": "tenant",
    "url": "url",
    "types": "event_types",
    "circuit": "circuit.state",
    "held by": _held,
}
FACTS: Columns = {
    "id": "id",
    "tenant": "tenant",
    "url": "url",
    "types": "event_types",
    "description": "description",
    "headers": lambda endpoint: (
        ["were altered in the database, set them anew"]
        if endpoint["headers"] is None
        else [f"{name}: {value}" for name, value in endpoint["headers"].items()]
    ),
    "preset": "preset",
    "circuit": "circuit.state",
    "since": "circuit.since",
    "why": "circuit.reason",
    "next probe": "circuit.next_probe_at",
    "held by": _held,
    "pending": _pending,
    "in flight": "circuit.in_flight",
    "at most": "circuit.allows",
    "retries": _retries,
    "success": _success,
    "Retry-After": _retry_after,
    "created": "created_at",
    "updated": "updated_at",
    "secret": "secret",
    "public key": "public_key",
}


@command(app, "add")
def add(
    session: Session,
    endpoint_url: Annotated[str, typer.Argument(metavar="URL", help="Where the webhooks go.", show_default=False)],
    *,
    tenant: Annotated[str, typer.Option(help="Whose endpoint this is.", show_default=False)],
    types: Types = None,
    description: Description = None,
    headers: Headers = None,
    preset: PresetOption = None,
    policy: PolicyOption = None,
    secret: Secret = None,
) -> None:
    """Add an endpoint; without --type it gets every event of its tenant."""
    document = _members(endpoint_url, types, description, headers, preset=preset, policy=policy)
    document |= {"tenant": tenant} | ({} if secret is None else {"secret": secret})
    with session.api() as api:
        _print(session, api.call("POST", "/v1/endpoints", document=document))


@command(app, "list")
def list_(session: Session, tenant: Tenant = None, limit: Limit = 100) -> None:
    """List endpoints, the newest first."""
    with session.api() as api:
        found = api.pages("/v1/endpoints", {"tenant": tenant}, limit)
        session.output.items(found, LIST, "there is no endpoint")


@command(app, "show")
def show(session: Session, endpoint: Id) -> None:
    """Show an endpoint and how it is doing."""
    with session.api() as api:
        _print(session, api.call("GET", PATH, endpoint))


@command(app, "update")
def update(
    session: Session,
    endpoint: Id,
    *,
    endpoint_url: Annotated[
        str | None, typer.Option("--endpoint-url", metavar="URL", help="Where the webhooks go.", show_default=False)
    ] = None,
    types: Types = None,
    description: Description = None,
    headers: Headers = None,
    preset: PresetOption = None,
    policy: PolicyOption = None,
) -> None:
    """Change an endpoint. Types and headers are replaced as a whole, and so is each part of a policy that is given.

    With a preset, all other parts of the policy are the preset's.
    """
    document = _members(endpoint_url, types, description, headers, preset=preset, policy=policy)
    if not document:
        raise UsageError("say what to change: --endpoint-url, --type, --description, --header, --preset or --policy")
    with session.api() as api:
        _print(session, api.call("PATCH", PATH, endpoint, document=document))


@command(app, "delete")
def delete(session: Session, endpoint: Id) -> None:
    """Delete an endpoint; its unfinished deliveries are cancelled."""
    with session.api() as api:
        answer = api.call("DELETE", PATH, endpoint)
    session.output.done(f"deleted {endpoint}", answer or {"id": endpoint, "deleted": True})


def _action(name: str, done: str, about: str) -> None:
    def act(session: Session, endpoint: Id) -> None:
        with session.api() as api:
            answer = api.call("POST", f"{PATH}/{name}", endpoint)
        # Being resumed is not yet going: something else may hold it too.
        held = [by for by in _held(answer) if by != "paused"]
        session.output.done(f"{done} {endpoint}{f'; it is still held: {", ".join(held)}' if held else ''}", answer)

    act.__doc__ = about
    command(app, name)(act)


_action("pause", "paused", "Hold an endpoint's deliveries until it is resumed.")
_action("resume", "resumed", "Let a paused endpoint's deliveries go.")
_action("enable", "enabled", "Let a disabled endpoint's deliveries go.")
_action("reset-breaker", "closed the breaker of", "Close an endpoint's breaker without a probe.")


@command(app, "secret")
def secret_(session: Session, endpoint: Id) -> None:
    """Reveal an endpoint's signing secret."""
    with session.api() as api:
        _print_secrets(session, api.call("GET", PATH + "/secret", endpoint))


@command(app, "rotate-secret")
def rotate_secret(session: Session, endpoint: Id, secret: Secret = None) -> None:
    """Sign with a new secret; the old one signs too for another 24 hours."""
    with session.api() as api:
        document = {} if secret is None else {"secret": secret}
        _print_secrets(session, api.call("POST", PATH + "/rotate-secret", endpoint, document=document))


@command(app, "test")
def test(session: Session, endpoint: Id) -> None:
    """Send a test event to an endpoint."""
    with session.api() as api:
        answer = api.call("POST", PATH + "/test", endpoint)
    delivery = answer["delivery_id"]
    session.output.done(f"sent {answer['event_id']}; to follow it: forbear deliveries show {delivery}", answer)


@command(app, "backfill")
def backfill(session: Session, endpoint: Id, since: Since = None, until: Until = None, types: Types = None) -> None:
    """Deliver earlier events that an endpoint did not get."""
    if since is None:
        raise UsageError("say from when on: --since 2h, or --since 2030-01-31")
    now = datetime.now(UTC)
    document = {
        "since": times.past(since, now),
        **({} if until is None else {"until": times.past(until, now)}),
        **({"types": types} if types else {}),
    }
    with session.api() as api:
        answer = api.call("POST", PATH + "/backfill", endpoint, document=document)
    session.output.done(f"started {answer['id']}; to follow it: forbear replay show {answer['id']}", answer)


def _print(session: Session, endpoint: Document) -> None:
    session.output.facts(endpoint, FACTS)
    if not session.output.as_json:
        session.output.line("policy")
        policy = {part: "none" if value is None else value for part, value in endpoint["policy"].items()}
        session.output.facts(policy, {part: part for part in policy})


def _members(
    url: str | None,
    types: list[str] | None,
    description: str | None,
    headers: list[str] | None,
    *,
    preset: str | None,
    policy: str | None,
) -> dict[str, Any]:
    """The members of an endpoint that were given."""
    return {
        **({} if url is None else {"url": url}),
        **({"event_types": types} if types else {}),
        **({} if description is None else {"description": description}),
        **({"headers": _headers(headers)} if headers else {}),
        **({} if preset is None else {"preset": preset}),
        **({} if policy is None else {"policy": _policy(policy)}),
    }


def _headers(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = (part.strip() for part in line.partition(":"))
        if not colon:
            raise UsageError(f"--header: {name!r} has no colon: write it as 'Name: value'")
        if name in found:
            raise UsageError(f"--header: {name} is there twice")
        found[name] = value
    return found


def _policy(given: str) -> Any:
    document = given
    try:
        if not given.lstrip().startswith("{"):
            document = Path(given).read_text(encoding="utf-8")
        return json.loads(document)
    except OSError as error:
        raise UsageError(f"--policy: {given!r} is neither a JSON object nor a file: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--policy: not JSON: {error}") from error


def _print_secrets(session: Session, secrets: Document) -> None:
    # The secret alone on standard output: so it can go into another command.
    session.output.done(secrets["secret"], secrets)
    if secrets.get("public_key"):
        session.output.remark(f"receivers verify with {secrets['public_key']}")
    for earlier in secrets.get("earlier", []):
        session.output.remark(f"an earlier one signs too until {earlier['expires_at']}: {earlier['secret']}")
