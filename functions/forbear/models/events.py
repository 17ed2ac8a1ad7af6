"""Events as producers post them, and the answers they get."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from forbear import event_types, rfc3339, tenants
from forbear.heads import MAX_BATCH_EVENTS, MAX_KEY_CHARS, validate_key, validate_type


def _parse_time(value: object) -> object:
    return rfc3339.parse(value) if isinstance(value, str) else value


TenantName = Annotated[
    str,
    AfterValidator(tenants.validate),
    WithJsonSchema({"type": "string", "pattern": f"^{tenants.PATTERN}$", "examples": ["acme"]}),
]
EventType = Annotated[
    str,
    AfterValidator(validate_type),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": f"^{event_types.NAME}$",
            "maxLength": event_types.MAX_LENGTH,
            "examples": ["invoice.paid"],
        }
    ),
]
Key = Annotated[
    str,
    AfterValidator(validate_key),
    WithJsonSchema({"type": "string", "pattern": "^[ -~]+$", "maxLength": MAX_KEY_CHARS}),
]
# Strict after the parser: what is no text (a number of seconds, say) is refused and not guessed at.
Time = Annotated[datetime, Field(strict=True), BeforeValidator(_parse_time)]

Tenant = Annotated[TenantName, Field(description="Whose event this is; only that tenant's endpoints get it.")]
Type = Annotated[EventType, Field(description="A dot-separated name that endpoints subscribe to.")]
ExpiresAt = Annotated[
    Time | None,
    Field(description="When the event is stale. What has not been delivered by then ends as dead (expired), unsent."),
]


class EventHead(BaseModel):
    """An event without its payload, whose exact bytes no model could keep."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tenant: Tenant
    type: Type
    id: Annotated[
        Key | None,
        Field(description="An idempotency key of the tenant, kept for 24 hours; same as the header Idempotency-Key."),
    ] = None
    expires_at: ExpiresAt = None


class EventIn(EventHead):
    """An event as JSON."""

    payload: Annotated[
        Any,
        Field(
            description="Any JSON value, up to 1 MiB. Receivers get its source text byte for byte, as application/json."
        ),
    ]


class EventHeaders(BaseModel):
    """The headers of a raw event, whose body is the payload as it is."""

    model_config = ConfigDict(frozen=True)

    tenant: Annotated[Tenant, Field(alias="forbear-tenant")]
    type: Annotated[Type, Field(alias="forbear-type")]
    expires_at: Annotated[ExpiresAt, Field(alias="forbear-expires-at")] = None


class EventAccepted(BaseModel):
    """An event that is stored."""

    id: Annotated[
        str, Field(description="The event's id, which is its webhook-id.", examples=["evt_01h455vb4pex5vsknk084sn02q"])
    ]
    deliveries: Annotated[int, Field(ge=0, description="How many endpoints get it.")]
    duplicate: Annotated[
        bool, Field(description="True: it was stored before under this idempotency key, and not stored again.")
    ]


class BatchIn(BaseModel):
    """Several events, each accepted or refused for itself."""

    model_config = ConfigDict(extra="forbid")

    events: Annotated[list[EventIn], Field(min_length=1, max_length=MAX_BATCH_EVENTS)]


class BatchItemAccepted(EventAccepted):
    """An event of a batch that is stored."""

    status: Literal[202]


class BatchItemRefused(BaseModel):
    """An event of a batch that is not stored: a problem document (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    status: Annotated[int, Field(ge=400, lt=500)]
    type: str
    title: str
    detail: str
    event_id: Annotated[str | None, Field(description="With 409: the event that was stored first under this key.")] = (
        None
    )


class BatchAccepted(BaseModel):
    """What became of each event of a batch, in its order."""

    results: list[BatchItemAccepted | BatchItemRefused]
