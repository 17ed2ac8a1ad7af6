"""Endpoints: what their owners say about them, and how they are doing."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from forbear import headers, signing
from forbear.models.events import TenantName, Time
from forbear.models.fields import IN, DeliveryId, EndpointId, EventId, Instant, Pattern, Patterns, ReplayId, storable
from forbear.policy.model import Policy

EVERYTHING = ["*"]


def _check_headers(given: dict[str, str]) -> dict[str, str]:
    headers.validate(given)
    return given


def _check_secret(secret: str) -> str:
    signing.parse_secret(secret)
    return secret


def _without_defaults(schema: dict[str, Any]) -> None:
    """What is left out stays as it is, so the schema names no defaults."""
    for field in schema["properties"].values():
        field.pop("default", None)


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
    policy: Annotated[Policy, Field(description="What is left out has its default.")] = Policy()
    secret: Annotated[Secret | None, Field(description="Left out: a symmetric one is generated.")] = None
    paused: Annotated[bool, Field(strict=True, description="Whether it starts paused.")] = False


class EndpointPatch(BaseModel):
    """What to change about an endpoint: members left out stay as they are, null sets the default (a URL has none).

    Lists and headers are replaced as a whole. Of a policy, the parts given are replaced as a whole, the others stay.
    """

    model_config = ConfigDict(**IN, json_schema_extra=_without_defaults)

    url: Url = ""
    event_types: Subscriptions | None = None
    description: Description | None = None
    headers: Headers | None = None
    policy: Annotated[
        Policy | None,
        Field(
            description="Each part that is given (`schedule`, `limits`, `timeout_s`, …) replaces that part; what is "
            "left out inside a part has its default. Null: the default policy."
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
            "enabled. breaker: open, or half-open with its probe under way. retry_after: the receiver asked for it."
        ),
    ]
    since: Instant | None = None
    until: Annotated[
        Instant | None, Field(description="When it ends by itself; for a breaker, when a probe may go.")
    ] = None
    reason: str | None = None


class Circuit(BaseModel):
    """An endpoint's circuit: its breaker, and all else that holds its deliveries."""

    state: Literal["closed", "open", "half_open"]
    since: Instant
    reason: Annotated[str | None, Field(description="Why the breaker is in this state; null before its first change.")]
    failures: Annotated[int, Field(description="Failures in a row that count for the breaker.")]
    next_probe_at: Annotated[
        Instant | None,
        Field(
            description="Open: when a probe may go. Half-open: when another may, should this one not be answered. "
            "Closed: null."
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
    headers: dict[str, str]
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
