"""Events as they are read, pauses, and the service itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from forbear.models.deliveries import DeliveryPage
from forbear.models.fields import Content, EventId, Instant


class EventOut(BaseModel):
    """An event."""

    id: EventId
    tenant: str
    type: str
    content_type: str
    payload_bytes: int
    created_at: Instant
    expires_at: Instant | None


class EventReading(EventOut):
    """An event with its payload, and where each of its deliveries stands."""

    payload: Annotated[Content, Field(description="The bytes as they came in.")]
    deliveries: Annotated[
        DeliveryPage, Field(description="The first 200; the next page is GET /v1/deliveries?event=…&cursor=….")
    ]


class EventPage(BaseModel):
    """Some events, the newest first."""

    items: list[EventOut]
    next: Annotated[
        str | None,
        Field(
            description="The `cursor` of the next page; null: this is the last. A page looks at so many events and no "
            "more: with a filter it may hold fewer than `limit`, or none, and still have a next one."
        ),
    ]


class Pause(BaseModel):
    """Whether something is paused."""

    paused: bool
    paused_at: Instant | None


class TenantPause(Pause):
    """Whether a tenant is paused."""

    tenant: str


class Health(BaseModel):
    """The service answers."""

    status: Literal["ok"]
    version: str


class Document(BaseModel):
    """An OpenAPI document."""

    model_config = ConfigDict(extra="allow")

    openapi: str


class FieldError(BaseModel):
    """What is wrong with a field."""

    field: Annotated[str, Field(description="Its path, the parts joined by dots; empty: the body as a whole.")]
    message: str


class ProblemDocument(BaseModel):
    """An error (RFC 9457). `detail` says what is wrong and what to do about it."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    errors: Annotated[list[FieldError] | None, Field(description="With 422: every field that is wrong.")] = None
