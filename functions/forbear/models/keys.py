"""API keys: how they are asked for, and how they are shown."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from forbear.models.events import TenantName, Time
from forbear.models.fields import IN, ApiKeyId, Instant, storable
from forbear.routes import KeyScope

Scopes = Annotated[
    list[KeyScope],
    Field(
        min_length=1,
        description="What the key is for. ingest: posting events. read: reading events, endpoints and deliveries. "
        "manage: that, and changing endpoints and deliveries, signing secrets included. replay: replays and backfills.",
    ),
    AfterValidator(lambda scopes: [scope for scope in KeyScope if scope in scopes]),
]


class ApiKeyIn(BaseModel):
    """A new API key."""

    model_config = IN

    name: Annotated[
        str, Field(min_length=1, max_length=100, description="For people: who has it."), AfterValidator(storable)
    ]
    scopes: Scopes
    tenant: Annotated[
        TenantName | None, Field(description="The only tenant that it can see and change. Left out: all of them.")
    ] = None
    expires_at: Annotated[Time | None, Field(description="When it ends. Left out: when it is revoked.")] = None


class ApiKeyOut(BaseModel):
    """An API key, without the key."""

    id: ApiKeyId
    name: str
    scopes: list[KeyScope]
    tenant: Annotated[str | None, Field(description="Null: of all tenants.")]
    created_at: Instant
    expires_at: Annotated[Instant | None, Field(description="Null: never.")]
    revoked_at: Instant | None


class ApiKeyCreated(ApiKeyOut):
    """A new API key, which is not shown again."""

    token: Annotated[str, Field(description="The key: `Authorization: Bearer fbk_…`.")]


class ApiKeyPage(BaseModel):
    """Some API keys, the newest first, revoked and expired ones among them."""

    items: list[ApiKeyOut]
    next: Annotated[str | None, Field(description="The `cursor` of the next page; null: this is the last.")]
