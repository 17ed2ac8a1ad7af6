"""The query parameters of the management API."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from forbear.models.events import TenantName, Time
from forbear.models.fields import IN, EndpointId, EventId, EventType
from forbear.policy.verdict import DeadReason
from forbear.states import DeliveryState

Tenant = Annotated[TenantName | None, Field(description="Only what is this tenant's; all else is not found.")]
Limit = Annotated[int, Field(ge=1, le=200, description="How many at most.")]
Cursor = Annotated[str | None, Field(description="The `next` of the page before.")]
Since = Annotated[Time | None, Field(description="Made from then on (RFC 3339).")]
Until = Annotated[Time | None, Field(description="Made before then (RFC 3339).")]


class Scope(BaseModel):
    """Whose."""

    model_config = IN

    tenant: Tenant = None


class Nothing(BaseModel):
    """No query parameters."""

    model_config = IN


class Page(Scope):
    """Part of a list."""

    limit: Limit = 50
    cursor: Cursor = None


class EndpointQuery(Page):
    """Part of the endpoints: fewer at once, for each may be large."""

    limit: Annotated[int, Field(ge=1, le=100, description="How many at most.")] = 50


class Attempts(Scope):
    """Part of a delivery's attempts."""

    cursor: Cursor = None


class EventQuery(Page):
    """Which events to list."""

    type: Annotated[EventType | None, Field(description="Of this type.")] = None
    since: Since = None
    until: Until = None


class DeliveryQuery(Page):
    """Which deliveries to list."""

    endpoint: Annotated[EndpointId | None, Field(description="To this endpoint, a deleted one included.")] = None
    event: Annotated[EventId | None, Field(description="Of this event.")] = None
    status: DeliveryState | None = None
    type: Annotated[EventType | None, Field(description="Of events of this type.")] = None
    reason: Annotated[DeadReason | None, Field(description="Dead for this reason.")] = None
    since: Since = None
    until: Until = None
