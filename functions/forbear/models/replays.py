"""Replays and backfills: how they are asked for, and how they are read."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, PlainSerializer, model_validator

from forbear.models.events import TenantName, Time
from forbear.models.fields import IN, DeliveryId, EndpointId, Instant, Pattern, ReplayId, show_time
from forbear.policy.verdict import DeadReason

# A time that callers write, and that is shown to them as all others are.
Bound = Annotated[Time, PlainSerializer(show_time, return_type=str)]


class ReplayFilter(BaseModel):
    """Which finished deliveries to replay: those for which all of this is true.

    A tenant or an endpoint must be named. Everybody's deliveries are replayed only if `all` says so.
    """

    model_config = IN

    tenant: TenantName | None = None
    endpoint: EndpointId | None = None
    all: Annotated[bool, Field(strict=True, description="Of all tenants.")] = False
    type: Annotated[Pattern | None, Field(description="Of events of this type, or of types below a prefix.")] = None
    status: Annotated[Literal["dead", "delivered", "cancelled"], Field(description="How they ended.")] = "dead"
    reason: Annotated[DeadReason | None, Field(description="Why they are dead.")] = None
    since: Annotated[Bound | None, Field(description="Made (not: ended) from then on.")] = None
    until: Annotated[Bound | None, Field(description="Made before then.")] = None

    @model_validator(mode="after")
    def _deliberate(self) -> Self:
        if self.all and (self.tenant is not None or self.endpoint is not None):
            raise ValueError("all stands for every tenant and endpoint: leave it out, or leave them out")
        if not self.all and self.tenant is None and self.endpoint is None:
            raise ValueError('name a tenant or an endpoint, or say "all": true')
        if self.reason is not None and self.status != "dead":
            raise ValueError("only dead deliveries have a reason")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError("since must be before until")
        return self


class ReplayIn(BaseModel):
    """A replay: of deliveries by their ids, or of those that a filter takes."""

    model_config = IN

    deliveries: Annotated[list[DeliveryId] | None, Field(min_length=1, max_length=1000)] = None
    filter: ReplayFilter | None = None
    dry_run: Annotated[bool, Field(strict=True, description="Only count; nothing is changed.")] = False
    rate: Annotated[
        float | None,
        Field(ge=0.001, le=100_000, description="Deliveries a second that become due; left out: all at once."),
    ] = None
    at: Annotated[Bound | None, Field(description="When to start, and to select. Left out: now.")] = None

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.deliveries is None) == (self.filter is None):
            raise ValueError("give either deliveries or a filter")
        return self


class ReplayScope(BaseModel):
    """Query parameters of every call: whose."""

    model_config = IN

    tenant: Annotated[TenantName | None, Field(description="Only what is this tenant's; all else is not found.")] = None


class ReplayOne(ReplayScope):
    """Query parameters that name a replay."""

    id: ReplayId


class ReplayQuery(ReplayScope):
    """Query parameters for reading: one replay, or the newest."""

    id: ReplayId | None = None
    limit: Annotated[int, Field(ge=1, le=100, description="How many of the newest, without an id.")] = 20


class BackfillSelection(BaseModel):
    """What a backfill takes: events of the endpoint's tenant."""

    tenant: str
    endpoint: EndpointId
    types: list[Pattern] | None
    since: Bound | None
    until: Bound | None


class ReplayOut(BaseModel):
    """A replay or a backfill, and how far it has come."""

    id: ReplayId
    kind: Literal["replay", "backfill"]
    state: Annotated[
        Literal["waiting", "running", "cancelling", "done", "cancelled"],
        Field(description="waiting: for its time. running, cancelling: in steps. done: all that it takes is pending."),
    ]
    deliveries: Annotated[int | None, Field(description="How many were named by their ids; null: a filter takes them.")]
    filter: ReplayFilter | BackfillSelection | None
    rate: float | None
    at: Annotated[Instant | None, Field(description="When the next step is due; null when it has ended.")]
    matched: Annotated[int, Field(description="Deliveries made pending so far.")]
    unchanged: Annotated[
        int,
        Field(
            description="Deliveries that it takes and that stay as they are: pending already, or not to be sent again "
            "(endpoint deleted, event gone). Of a backfill: events that have a delivery already, or are stale."
        ),
    ]
    cancelled: Annotated[int, Field(description="Of those made pending, how many its cancelling took back.")]
    created_at: Instant
    started_at: Instant | None
    ended_at: Instant | None


class StillPending(BaseModel):
    """A number that is counted up to a bound."""

    count: int
    more: Annotated[bool, Field(description="Whether there are more than `count`.")]


class ReplayReading(ReplayOut):
    """A replay with what is left to send."""

    still_pending: Annotated[StillPending, Field(description="Of those made pending, how many have not ended again.")]


class Unchanged(BaseModel):
    """A delivery that is left as it is."""

    id: DeliveryId
    because: Annotated[
        Literal["pending", "endpoint_deleted", "event_gone"],
        Field(description="pending: or being sent just now. event_gone: retention has dropped its event."),
    ]


class ReplayAccepted(ReplayReading):
    """A replay that was asked for. The lists are empty for a filter, and the second one when it starts later."""

    unknown: Annotated[list[DeliveryId], Field(description="By ids: those that there are not.")]
    unchanged_deliveries: Annotated[list[Unchanged], Field(description="By ids: those that stay as they are, and why.")]


class DryRun(BaseModel):
    """What a replay would do."""

    dry_run: Literal[True] = True
    matched: int
    more: Annotated[bool, Field(description="Whether there may be more: counting stopped at a bound.")]
    unknown: list[DeliveryId]
    unchanged_deliveries: list[Unchanged]


class ReplayList(BaseModel):
    """Replays and backfills, the newest first."""

    items: list[ReplayOut]
