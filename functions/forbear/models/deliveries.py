"""Deliveries and their attempts as they are read, and how deliveries are cancelled."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator

from forbear.models.endpoints import Hold
from forbear.models.events import TenantName, Time
from forbear.models.fields import IN, Content, DeliveryId, EndpointId, EventId, EventType, Instant, ReplayId
from forbear.policy.verdict import DeadReason, ErrorClass
from forbear.states import DeliveryState


class DeliveryOut(BaseModel):
    """A delivery: one event to one endpoint."""

    id: DeliveryId
    event_id: EventId
    endpoint_id: EndpointId
    tenant: str
    type: Annotated[str, Field(description="The event's type.")]
    status: DeliveryState
    reason: Annotated[DeadReason | None, Field(description="Why it is dead.")]
    generation: Annotated[int, Field(description="1, and one more with each replay.")]
    attempt_count: Annotated[int, Field(description="Attempts begun, in all generations.")]
    payload_bytes: int
    created_at: Instant
    due_at: Annotated[Instant | None, Field(description="When the next attempt is due; null when there is none.")]
    ended_at: Instant | None
    replay_id: Annotated[ReplayId | None, Field(description="The replay or backfill that this generation is from.")]
    held: Annotated[list[Hold], Field(description="What keeps a pending delivery from going, due or not.")]


class AttemptOut(BaseModel):
    """One HTTP request, with its evidence."""

    number: Annotated[int, Field(description="Counts on over all generations.")]
    generation: int
    started_at: Instant
    latency_ms: float
    url: str
    address: Annotated[str | None, Field(description="The IP address and port that it went to.")]
    request_headers: Annotated[Content, Field(description="As sent, the values of custom headers left out.")]
    status: Annotated[int | None, Field(description="The HTTP status; null: there was none.")]
    response_headers: Content
    response_body: Annotated[Content, Field(description="The first 16 KiB, not decoded.")]
    error: Annotated[ErrorClass | None, Field(description="Why there was no whole answer.")]
    error_detail: str
    verdict: Literal["success", "retry", "limited", "permanent", "gone", "lost"]
    retry_after_s: Annotated[float | None, Field(description="What the answer's Retry-After asked for, in seconds.")]
    retry_after_honoured: bool
    next_due_at: Annotated[Instant | None, Field(description="When the attempt after this one was due.")]
    late: Annotated[bool, Field(description="The result came after the lease had lapsed, and changed nothing.")]


class DeliveryReading(DeliveryOut):
    """A delivery with its attempts."""

    attempts: Annotated[list[AttemptOut], Field(description="The newest first, 40 at most.")]
    next: Annotated[str | None, Field(description="The `cursor` for the attempts before these; null: there is none.")]


class DeliveryPage(BaseModel):
    """Some deliveries, the newest first."""

    items: list[DeliveryOut]
    next: Annotated[
        str | None,
        Field(
            description="The `cursor` of the next page; null: this is the last. A page looks at so many deliveries and "
            "no more: with a filter it may hold fewer than `limit`, or none, and still have a next one."
        ),
    ]


class CancelFilter(BaseModel):
    """Which unfinished deliveries to cancel: an event's, an endpoint's or a tenant's."""

    model_config = IN

    tenant: TenantName | None = None
    endpoint: EndpointId | None = None
    event: Annotated[
        EventId | None, Field(description="All deliveries of this event; no other member goes with it.")
    ] = None
    type: Annotated[EventType | None, Field(description="Deliveries of events of this type.")] = None
    since: Annotated[Time | None, Field(description="Deliveries made from then on.")] = None
    until: Annotated[Time | None, Field(description="Deliveries made before then.")] = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.event is not None and self.model_fields_set - {"event"}:
            raise ValueError("no other member goes with event")
        if self.tenant is None and self.endpoint is None and self.event is None:
            raise ValueError("name a tenant, an endpoint or an event: everything at once is not cancelled")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError("since must be before until")
        return self


class CancelIn(BaseModel):
    """Deliveries to cancel: by their ids, or by a filter."""

    model_config = IN

    deliveries: Annotated[list[DeliveryId] | None, Field(min_length=1, max_length=1000)] = None
    filter: CancelFilter | None = None
    cursor: Annotated[str | None, Field(description="With a filter: the `next` of the call before.")] = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.deliveries is None) == (self.filter is None):
            raise ValueError("give either deliveries or a filter")
        if self.cursor is not None and self.filter is None:
            raise ValueError("a cursor goes with a filter")
        return self


class Cancelled(BaseModel):
    """What a call cancelled."""

    cancelled: int
    unchanged: Annotated[int, Field(description="By ids: those that had ended already.")]
    unknown: Annotated[list[DeliveryId], Field(description="By ids: those that there are not.")]
    next: Annotated[
        str | None, Field(description="Not null: there may be more; call again with the filter and this as `cursor`.")
    ]
