"""Endpoints: what their owners say about them, and how they are doing."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from forbear import headers, signing
from forbear.models.events import TenantName, Time
from forbear.models.fields import (
    IN,
    DeliveryId,
    EndpointId,
    EventId,
    Instant,
    Pattern,
    Patterns,
    ReplayId,
    storable,
    without_defaults,
)
from forbear.models.policies import PolicyParts, PresetName
from forbear.policy.breaker import BreakerState
from forbear.policy.model import Policy

EVERYTHING = ["*"]


def _check_headers(given: dict[str, str]) -> dict[str, str]:
    headers.validate(given)
    return given


def _check_secret(secret: str) -> str:
    signing.parse_secret(secret)
    return secret


Url = Annotated[
    str,
    Field(
        description="Where the webhooks go: absolute, https (http only where the stack allows it), at most 2,048 ASCII "
        "characters in path and query, sent byte for byte as given.",
        json_schema_extra={"format": "uri", "maxLength": 2048},
    ),
]
Subscriptions = Annotated[
    Patterns,
    Field(description="What the endpoint gets: exact types, `prefix.*` for all below a prefix, or `*` for everything."),
]
Description = Annotated[str, Field(max_length=1000, description="For people."), AfterValidator(storable)]
Headers = Annotated[
    dict[str, str],
    AfterValidator(_check_headers),
    Field(
        description="Custom headers of each request: at most 20, printable ASCII; none that HTTP or Forbear sets "
        "(Host, Content-…, Webhook-…, Forbear-… and the like)."
    ),
]
Secret = Annotated[
    str,
    AfterValidator(_check_secret),
    Field(
        description="Signing secret: `whsec_` and base64 of 24 to 64 bytes, or `whsk_` and base64 of an Ed25519 key.",
        json_schema_extra={"format": "password"},
    ),
]


class EndpointIn(BaseModel):
    """A new endpoint."""

    model_config = IN

    tenant: Annotated[TenantName, Field(description="Whose endpoint this is.")]
    url: Url
    event_types: Subscriptions = EVERYTHING
    description: Description = ""
    headers: Headers = {}
    preset: Annotated[
        PresetName | None,
        Field(description="What the policy begins as: a name that GET /v1/presets lists. Left out: `default`."),
    ] = None
    policy: Annotated[
        PolicyParts, Field(description="What is to be other than the preset's.", default_factory=PolicyParts)
    ]
    secret: Annotated[Secret | None, Field(description="Left out: a symmetric one is generated.")] = None
    paused: Annotated[bool, Field(strict=True, description="Whether it starts paused.")] = False


class EndpointPatch(BaseModel):
    """What to change about an endpoint: members left out stay as they are, null sets the default (a URL has none).

    Lists and headers are replaced as a whole. Of a policy, the parts given are replaced as a whole, the others stay;
    with a preset, they are the preset's.
    """

    model_config = ConfigDict(**IN, json_schema_extra=without_defaults)

    url: Url = ""
    event_types: Subscriptions | None = None
    description: Description | None = None
    headers: Headers | None = None
    preset: Annotated[
        PresetName | None,
        Field(description="The policy begins as this preset, and not as it is. Null: as the default one."),
    ] = None
    policy: Annotated[
        PolicyParts | None,
        Field(
            description="Each part that is given (`schedule`, `limits`, `timeout_s`, …) replaces that part; what is "
            "left out inside a part has its default. Null: the default policy, or the preset's if one is named."
        ),
    ] = None


class SecretIn(BaseModel):
    """A rotation."""

    model_config = IN

    secret: Annotated[Secret | None, Field(description="Left out: a symmetric one is generated.")] = None


HoldCause = Literal["paused", "tenant_paused", "everything_paused", "disabled", "breaker", "retry_after"]


class Hold(BaseModel):
    """Why an endpoint's deliveries wait although they are due."""

    by: Annotated[
        HoldCause,
        Field(
            description="paused, tenant_paused, everything_paused: by somebody, until resumed. disabled: until "
            "enabled. breaker: open, or half-open with its probe under way; a trickle holds nothing, it is only slow. "
            "retry_after: the receiver asked for it."
        ),
    ]
    since: Instant | None = None
    until: Annotated[
        Instant | None, Field(description="When it ends by itself; for a breaker, when a probe may go.")
    ] = None
    reason: str | None = None


class Circuit(BaseModel):
    """An endpoint's circuit: its breaker, and all else that holds its deliveries."""

    state: Annotated[
        BreakerState,
        Field(
            description="closed: deliveries go. open: none goes. half_open_probe: one is tried. half_open_trickle: few "
            "go, and more with every success."
        ),
    ]
    since: Instant
    reason: Annotated[str | None, Field(description="Why the breaker is in this state; null before its first change.")]
    failures: Annotated[int, Field(description="Failures in a row that count for the breaker.")]
    next_probe_at: Annotated[
        Instant | None,
        Field(
            description="Open: when a probe may go. half_open_probe: when another may, should this one not be "
            "answered. Otherwise null."
        ),
    ]
    allows: Annotated[
        int | None,
        Field(
            description="How many requests to the endpoint may be in flight now: none while the breaker is open, one "
            "as its probe, as many as the trickle has grown to, or what the adaptive concurrency allows. Null: any "
            "number."
        ),
    ]
    retries: Annotated[
        int | None,
        Field(
            description="How many retries the budget lets go now. 0: those that are due wait for its next token, and "
            "first attempts go. Null: any number."
        ),
    ]
    held: Annotated[list[Hold], Field(description="What holds the deliveries now; empty: nothing does.")]


class Count(BaseModel):
    """A number that is counted up to a bound."""

    count: int
    more: Annotated[bool, Field(description="Whether there are more than `count`.")]


class SuccessRate(BaseModel):
    """How many of the latest attempts succeeded.

    The window: the attempts, at most 1,000 and the newest, of the 500 newest finished deliveries and of as many
    unfinished ones.
    """

    rate: Annotated[float | None, Field(ge=0, le=1, description="Successes per attempt; null: there was no attempt.")]
    attempts: Annotated[int, Field(description="Attempts in the window.")]
    successes: int
    since: Annotated[Instant | None, Field(description="When the window's first attempt began.")]


class RetryAfterTally(BaseModel):
    """What became of the receiver's Retry-After headers, in the window of the success rate."""

    seen: Annotated[int, Field(description="Attempts whose answer carried one that can be understood.")]
    honoured: Annotated[int, Field(description="Of these, how many the next attempt waited for.")]


class CircuitReading(Circuit):
    """A circuit with what goes through it."""

    pending: Annotated[
        Count, Field(description="Deliveries that wait, up to 10,000; all of them are held while `held` is not empty.")
    ]
    in_flight: Annotated[int, Field(description="Deliveries being sent now.")]
    success_rate: SuccessRate
    retry_after: RetryAfterTally


class EndpointOut(BaseModel):
    """An endpoint."""

    id: EndpointId
    tenant: str
    url: str
    event_types: list[str]
    description: str
    headers: Annotated[
        dict[str, str] | None,
        Field(
            description="Null: they cannot be opened. Their key is away for the moment, or they were altered: then set "
            "them anew."
        ),
    ]
    preset: Annotated[
        PresetName | None, Field(description="The preset that the policy equals; null: it equals none, it is its own.")
    ]
    policy: Policy
    created_at: Instant
    updated_at: Instant
    circuit: Circuit


class EndpointReading(EndpointOut):
    """An endpoint, and how it is doing."""

    circuit: CircuitReading


class LiveSecret(BaseModel):
    """A secret that signs."""

    secret: str
    public_key: Annotated[
        str | None, Field(description="For a `whsk_` key: what receivers verify with (`whpk_…`). Otherwise null.")
    ]
    created_at: Instant


class EarlierSecret(LiveSecret):
    """A secret that was rotated and still signs."""

    expires_at: Instant


class Secrets(LiveSecret):
    """An endpoint's secret, and the earlier ones that sign beside it until they expire."""

    earlier: Annotated[list[EarlierSecret], Field(description="The latest first.")]


class EndpointCreated(EndpointOut):
    """A new endpoint with its secret, which is not shown again but by GET /v1/endpoints/{id}/secret."""

    secret: str
    public_key: Annotated[str | None, Field(description="For a `whsk_` key: what receivers verify with (`whpk_…`).")]


class EndpointPage(BaseModel):
    """Some endpoints, the newest first."""

    items: list[EndpointOut]
    next: Annotated[str | None, Field(description="The `cursor` of the next page; null: this is the last.")]


class DeliveryAccepted(BaseModel):
    """An event for one endpoint that is on its way, like any other."""

    event_id: EventId
    delivery_id: DeliveryId


class BackfillIn(BaseModel):
    """Which events an endpoint is to get that it did not get, of those that it subscribes to."""

    model_config = IN

    since: Annotated[Time, Field(description="Events from then on.")]
    until: Annotated[Time | None, Field(description="Events before then; left out: until now.")] = None
    types: Annotated[
        list[Pattern] | None,
        Field(min_length=1, max_length=100, description="Only these; left out: all that the endpoint subscribes to."),
    ] = None

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.until is not None and self.since >= self.until:
            raise ValueError("since must be before until")
        return self


class BackfillAccepted(BaseModel):
    """A backfill that is under way; its progress is read as a replay's."""

    id: ReplayId
