"""What a claimer holds: leased deliveries with all that is needed to sign, send and judge them.

Owns the shape of the claim's rows and the request made from one. Knows no SQL and no socket.

What is made once a delivery, here and in the modules around, is a dataclass with slots and not a frozen one: that
costs five times as much to make, and some ten of them are made. Nobody changes one all the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import UUID

from forbear import __version__, ids, signing, urls
from forbear.policy.breaker import Breaker, BreakerState
from forbear.policy.control import Control, Trouble
from forbear.policy.model import Policy
from forbear.policy.verdict import Progress
from forbear.sealed import open_headers, open_secret
from forbear.sender import Request
from forbear.vault import Keyring

USER_AGENT = f"Forbear/{__version__}"
# A claimer starts a request within this time of its claim or gives the delivery back; the lease's margin of 30 s (see
# the SQL function forbear.claim) leaves the rest for settling.
START_WITHIN_S = 10.0


class Unsendable(Exception):
    """A delivery that no attempt can be made of: its endpoint's secrets, URL or headers cannot be used."""


class UnknownKey(Unsendable):
    """The endpoint's secrets or headers are sealed by a data key that is not at hand; somebody may have just added it.

    Asking for the data keys once more tells.
    """


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint as a sender needs it, parsed once for as long as it stays the same. `text`: the URL, for evidence."""

    url: urls.Url
    text: str
    headers: tuple[tuple[bytes, bytes], ...]
    keys: tuple[signing.SigningKey, ...]


@dataclass(slots=True)
class Lane:
    """An endpoint's state as the latest claim told it.

    `endpoint` is the error that parsing it gave, if any; `in_flight` counts its live leases, everybody's and these.
    """

    endpoint_id: UUID
    endpoint: Endpoint | Unsendable
    policy: Policy
    control: Control
    in_flight: int


@dataclass(slots=True)  # not frozen: see forbear.leases
class Lease:
    """One delivery in hand.

    Attributes:
        delivery_id, event_id: as the database has them.
        lane: the endpoint's state; shared by its leases.
        token: fences a late result off.
        number: the attempt's, over all generations.
        progress: where the delivery stands within its generation, before this attempt.
        expires_at: when the event is stale; None: never.
        replay_id: the replay that put it back, if one did.
        probe: it is a half-open breaker's probe.
        epoch: the breaker's when it was claimed.
        claimed: when, just before the claim, by the store's `monotonic`.
    """

    delivery_id: UUID
    event_id: UUID
    lane: Lane
    token: UUID
    number: int
    progress: Progress
    expires_at: datetime | None
    replay_id: UUID | None
    probe: bool
    epoch: int
    event_type: str
    content_type: str
    payload: bytes
    claimed: float


@lru_cache(maxsize=4096)
def parse_endpoint(text: str, endpoint_id: UUID, keyring: Keyring) -> tuple[Endpoint | Unsendable, Policy]:
    """Read the claim's `endpoint` column: URL, sealed headers, policy and sealed live secrets as JSON.

    What cannot be used gives an `Unsendable`, and the policy all the same (the default one if that is at fault).

    Args:
        text: the JSON.
        endpoint_id: what it is of. Secrets and headers of another endpoint cannot be opened.
        keyring: opens them, once for as long as all three arguments stay the same.
    """
    raw = json.loads(text)
    try:
        policy = Policy.model_validate_json(json.dumps(raw["policy"]))
    except ValueError as error:
        return Unsendable(f"the endpoint's policy cannot be used: {error}"), Policy()
    try:
        url = urls.parse(raw["url"], allow_http=True)  # whether http and the port may be is for the guard to say
        sealed = raw["secrets"] or ()
        if not all(keyring.knows(one) for one in (*sealed, raw["headers"]) if one is not None):
            return UnknownKey(
                "the endpoint's secret or headers are sealed by a data key that is not in the database: put it back, or"
                " rotate the secret and set the headers anew"
            ), policy
        opened = open_headers(keyring, endpoint_id, raw["headers"])
        headers = tuple((name.encode("ascii"), value.encode("ascii")) for name, value in opened.items())
        keys = tuple(signing.parse_secret(open_secret(keyring, endpoint_id, one)) for one in sealed)
    except (ValueError, TypeError, AttributeError) as error:
        return Unsendable(str(error)), policy
    if not keys:
        return Unsendable("the endpoint has no signing secret: rotate it to get one"), policy
    return Endpoint(url, str(url), headers, keys), policy


def parse_control(text: str | dict[str, Any]) -> Control:
    """Read what outcomes change about a lane, as the SQL function forbear.control_of writes it."""
    raw = json.loads(text) if isinstance(text, str) else text
    memory = raw["memory"]
    breaker = Breaker(
        state=BreakerState(raw["state"]),
        since=datetime.fromisoformat(raw["since"]),
        failures=raw["failures"],
        trips=raw["trips"],
        until=_time(raw["until"]),
        epoch=raw["epoch"],
        reason=raw["reason"],
        allows=raw["allows"],
        passed=memory.get("passed", 0) if raw["state"] == BreakerState.HALF_OPEN_TRICKLE else 0,
        failing_since=_time(memory.get("failing_since")),
        recent=tuple(datetime.fromisoformat(at) for at in memory.get("recent", ())),
    )
    trouble = memory.get("trouble")
    return Control(
        breaker=breaker,
        limit=raw["limit"],
        limit_since=_time(memory.get("limit_since")),
        trouble=trouble
        and Trouble(
            datetime.fromisoformat(trouble["since"]), datetime.fromisoformat(trouble["last"]), trouble["failures"]
        ),
        version=raw["version"],
    )


def control_json(control: Control) -> str:
    """Write it as the SQL function forbear.change_lanes reads it; what says nothing is left out of its memory."""
    breaker, trouble = control.breaker, control.trouble
    memory = {
        "passed": breaker.passed,
        "failing_since": _text(breaker.failing_since),
        "recent": [at.isoformat() for at in breaker.recent],
        "limit_since": _text(control.limit_since),
        "trouble": trouble
        and {"since": _text(trouble.since), "last": _text(trouble.last), "failures": trouble.failures},
    }
    return json.dumps(
        {
            "state": breaker.state,
            "since": _text(breaker.since),
            "failures": breaker.failures,
            "trips": breaker.trips,
            "until": _text(breaker.until),
            "epoch": breaker.epoch,
            "reason": breaker.reason,
            "allows": breaker.allows,
            "limit": control.limit,
            "memory": {name: value for name, value in memory.items() if value},
        }
    )


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def _text(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


def request_for(lease: Lease, now: datetime) -> Request:
    """The request of an attempt: signed (Standard Webhooks 1.0), with Forbear's headers and then the endpoint's own.

    Args:
        lease: the delivery.
        now: the time, by the database's clock.

    Raises:
        Unsendable: the endpoint cannot be used.
    """
    endpoint = lease.lane.endpoint
    if isinstance(endpoint, Unsendable):
        # Another one of its kind: it is kept, and each raise would add frames to its traceback, with all they hold.
        raise type(endpoint)(*endpoint.args)
    event_id = ids.encode(ids.Prefix.EVENT, lease.event_id)
    timestamp = int(now.timestamp())
    headers = [
        (b"content-type", lease.content_type.encode("latin-1")),
        (b"user-agent", USER_AGENT.encode()),
        (b"webhook-id", event_id.encode()),
        (b"webhook-timestamp", str(timestamp).encode()),
        (b"webhook-signature", signing.sign(endpoint.keys, event_id, timestamp, lease.payload).encode()),
        (b"idempotency-key", ids.encode(ids.Prefix.DELIVERY, lease.delivery_id).encode()),
        (b"forbear-type", lease.event_type.encode()),
        (b"forbear-attempt", str(lease.number).encode()),
    ]
    if lease.replay_id is not None:
        headers.append((b"forbear-replay", ids.encode(ids.Prefix.REPLAY, lease.replay_id).encode()))
    return Request(
        url=endpoint.url,
        headers=(*headers, *endpoint.headers),
        body=lease.payload,
        timeout_s=lease.lane.policy.timeout_s,
        connect_timeout_s=lease.lane.policy.connect_timeout_s,
    )


def evidence_of(request: Request, own_headers: int) -> bytes:
    """The request's header block as an attempt keeps it: the endpoint's own values, the last ones, are left out.

    They are the customer's and may be credentials.
    """
    shown = len(request.headers) - own_headers
    return b"\r\n".join(
        [b"%b: %b" % (name, value if n < shown else b"***") for n, (name, value) in enumerate(request.headers)]
    )
