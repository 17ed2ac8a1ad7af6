"""What each route takes and gives, for the API's description.

Owns the table; the routes themselves are `routes`'s, their models `models`'s. Knows no OpenAPI and runs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Final

from pydantic import BaseModel, Field

from forbear.models import deliveries, endpoints, events, keys, policies, queries, readings, replays

type Models = tuple[type[BaseModel], ...]


@dataclass(frozen=True, slots=True)
class Described:
    """An operation.

    Attributes:
        name: its operationId.
        summary: what it does, in a sentence.
        answers: the models of each status of success; none: no body.
        problems: the statuses that it answers with a problem document, besides 500 and 503.
        query: the model of its query parameters; None: it looks at none.
        body: the model of its body.
        body_needed: whether there must be a body.
        headers: the model of its headers, all of them optional.
        raw: whether the body may also be anything at all, with those headers.
        details: more about it.
    """

    name: str
    summary: str
    answers: Mapping[int, Models]
    problems: tuple[int, ...] = (404, 422)
    query: type[BaseModel] | None = queries.Scope
    body: type[BaseModel] | None = None
    body_needed: bool = True
    headers: type[BaseModel] | None = None
    raw: bool = False
    details: str = ""


class _KeyHeader(BaseModel):
    """A header of posts."""

    key: Annotated[
        events.Key | None,
        Field(alias="idempotency-key", description="A key of the tenant, kept for 24 hours; the `id` of an event."),
    ] = None


class _EventHeaders(events.EventHeaders, _KeyHeader):
    """The headers of an event's post."""


_EVENT: Final = {202: (events.EventAccepted,)}
_ENDPOINT: Final = {200: (endpoints.EndpointOut,)}
_PAUSED: Final = {200: (readings.Pause,)}
_TENANT_PAUSED: Final = {200: (readings.TenantPause,)}

REPLAY: Final[Mapping[str, Described]] = {
    "POST": Described(
        "replay",
        "Replay deliveries: a new generation with the whole schedule",
        {200: (replays.DryRun,), 202: (replays.ReplayAccepted,)},
        (400, 404, 405, 409, 422),
        replays.ReplayScope,
        replays.ReplayIn,
        details="200: a dry run. What is unfinished stays as it is.",
    ),
    "GET": Described(
        "read_replays",
        "Read a replay's or backfill's progress, or the newest ones",
        {200: (replays.ReplayReading, replays.ReplayList)},
        (404, 422),
        replays.ReplayQuery,
    ),
    "DELETE": Described(
        "cancel_replay",
        "Cancel a replay or backfill",
        {200: (replays.ReplayReading,), 202: (replays.ReplayReading,)},
        (404, 422),
        replays.ReplayOne,
        details="202: it goes on in steps. What is being sent is sent.",
    ),
}
"""The replay function's operations, by method."""

OPERATIONS: Final[Mapping[str, Described]] = {
    "POST /v1/events": Described(
        "post_event",
        "Post an event",
        _EVENT,
        (400, 409, 413, 415, 422),
        None,
        events.EventIn,
        headers=_EventHeaders,
        raw=True,
        details="As JSON, or raw: with `forbear-tenant` and `forbear-type` among the headers, the body is the payload "
        "as it is, of the type that `content-type` says. It is stored with its deliveries when this answers. A repeat "
        "under the same key within 24 hours answers with the first event's id and `duplicate`; 409: the key was used "
        "for another event. 413: the payload is over 1 MiB.",
    ),
    "POST /v1/events/batch": Described(
        "post_events",
        "Post several events, each accepted or refused for itself",
        {207: (events.BatchAccepted,)},
        (400, 413, 415, 422),
        None,
        events.BatchIn,
        headers=_KeyHeader,
        details="Up to 500 events and 4.5 MB. An event without an `id` gets the key, a slash and its index.",
    ),
    "GET /v1/events": Described(
        "list_events", "List events, the newest first", {200: (readings.EventPage,)}, (400, 422), queries.EventQuery
    ),
    "GET /v1/events/{id}": Described(
        "read_event", "Read an event, and where each delivery stands", {200: (readings.EventReading,)}
    ),
    "POST /v1/endpoints": Described(
        "create_endpoint",
        "Create an endpoint",
        {201: (endpoints.EndpointCreated,)},
        (400, 422),
        queries.Nothing,
        endpoints.EndpointIn,
        details="Its secret is shown here, and by GET /v1/endpoints/{id}/secret. The endpoint of a paused tenant is "
        "held until the tenant is resumed. Its policy is the preset's, with the parts given instead of the preset's.",
    ),
    "GET /v1/endpoints": Described(
        "list_endpoints",
        "List endpoints, the newest first",
        {200: (endpoints.EndpointPage,)},
        (400, 422),
        queries.EndpointQuery,
    ),
    "GET /v1/endpoints/{id}": Described(
        "read_endpoint", "Read an endpoint, and how it is doing", {200: (endpoints.EndpointReading,)}
    ),
    "PATCH /v1/endpoints/{id}": Described(
        "change_endpoint",
        "Change an endpoint",
        _ENDPOINT,
        (400, 404, 422),
        body=endpoints.EndpointPatch,
        details="What is in flight goes on as it was. The breaker stays as it is: reset it to have another URL tried "
        "at once.",
    ),
    "DELETE /v1/endpoints/{id}": Described(
        "delete_endpoint",
        "Delete an endpoint, and cancel what is unfinished",
        {204: ()},
        details="The first 1,000 deliveries are cancelled when this answers, the rest soon after. All of its "
        "deliveries stay readable.",
    ),
    "POST /v1/endpoints/{id}/pause": Described(
        "pause_endpoint", "Hold an endpoint's deliveries until it is resumed", _ENDPOINT
    ),
    "POST /v1/endpoints/{id}/resume": Described(
        "resume_endpoint", "End an endpoint's pause: what was held goes out", _ENDPOINT
    ),
    "POST /v1/endpoints/{id}/enable": Described(
        "enable_endpoint", "Enable a disabled endpoint: what was held goes out", _ENDPOINT
    ),
    "POST /v1/endpoints/{id}/reset-breaker": Described(
        "reset_breaker",
        "Close the breaker as if nothing had failed",
        _ENDPOINT,
        details="Its failures and openings are forgotten, and so is the wait that a Retry-After asked for.",
    ),
    "GET /v1/endpoints/{id}/secret": Described(
        "read_secret",
        "Show an endpoint's secret, and the earlier ones that still sign",
        {200: (endpoints.Secrets,)},
        (404, 409, 422),
        details="409: what is kept of one of them was altered and cannot be opened. Rotate it.",
    ),
    "POST /v1/endpoints/{id}/rotate-secret": Described(
        "rotate_secret",
        "Give an endpoint a new secret",
        {200: (endpoints.Secrets,)},
        (400, 404, 409, 422),
        body=endpoints.SecretIn,
        body_needed=False,
        details="The one before signs for 24 hours more, beside the new one; what was altered and cannot be opened is "
        "dropped. 409: five sign already, or the secret is "
        "one of them.",
    ),
    "POST /v1/endpoints/{id}/test": Described(
        "send_test",
        "Send an endpoint an event of type forbear.test",
        {202: (endpoints.DeliveryAccepted,)},
        details="It goes through the queue like any other, and to this endpoint only, whatever it subscribes to.",
    ),
    "POST /v1/endpoints/{id}/backfill": Described(
        "backfill",
        "Give an endpoint the events that it did not get",
        {202: (endpoints.BackfillAccepted,)},
        (400, 404, 422),
        body=endpoints.BackfillIn,
    ),
    "GET /v1/presets": Described(
        "list_presets",
        "List the policies that go by a name",
        {200: (policies.PresetList,)},
        (422,),
        queries.Nothing,
    ),
    "POST /v1/tenants/{tenant}/pause": Described(
        "pause_tenant",
        "Hold the deliveries of all of a tenant's endpoints",
        _TENANT_PAUSED,
        (422,),
        queries.Nothing,
        details="Endpoints that are made later are held too.",
    ),
    "POST /v1/tenants/{tenant}/resume": Described(
        "resume_tenant",
        "End a tenant's pause",
        _TENANT_PAUSED,
        (422,),
        queries.Nothing,
        details="Endpoints that are paused for themselves stay so.",
    ),
    "POST /v1/pause": Described(
        "pause_everything", "Send nothing any more but what is in flight", _PAUSED, (422,), queries.Nothing
    ),
    "POST /v1/resume": Described("resume_everything", "Send again", _PAUSED, (422,), queries.Nothing),
    "GET /v1/deliveries": Described(
        "list_deliveries",
        "List deliveries, the newest first",
        {200: (deliveries.DeliveryPage,)},
        (400, 422),
        queries.DeliveryQuery,
    ),
    "GET /v1/deliveries/{id}": Described(
        "read_delivery",
        "Read a delivery with its attempts",
        {200: (deliveries.DeliveryReading,)},
        (400, 404, 422),
        queries.Attempts,
    ),
    "POST /v1/deliveries/cancel": Described(
        "cancel_deliveries",
        "Cancel deliveries that have not ended",
        {200: (deliveries.Cancelled,)},
        (400, 404, 422),
        body=deliveries.CancelIn,
        details="One that is being sent is cancelled too: it is not tried again, and what its attempt comes to is kept "
        "as evidence. By filter, a call ends after some 20,000 and says where to go on.",
    ),
    "POST /v1/keys": Described(
        "create_key",
        "Create an API key",
        {201: (keys.ApiKeyCreated,)},
        (400, 422),
        queries.Nothing,
        keys.ApiKeyIn,
        details="Its token is shown here and nowhere else: Forbear keeps a keyed hash. What a key may do cannot be "
        "changed: make another and revoke it.",
    ),
    "GET /v1/keys": Described(
        "list_keys", "List API keys, the newest first", {200: (keys.ApiKeyPage,)}, (400, 422), queries.Page
    ),
    "DELETE /v1/keys/{id}": Described(
        "revoke_key",
        "Revoke an API key, at once and for good",
        {204: ()},
        query=queries.Nothing,
        details="Requests with it are refused from the next one on. It stays in the list.",
    ),
    "GET /v1/health": Described(
        "health", "Say that the service runs, without touching the database", {200: (readings.Health,)}, (), None
    ),
    "GET /v1/openapi.json": Described("openapi", "This description", {200: (readings.Document,)}, (), None),
} | {
    # What the replay function's URL does by method.
    f"{method} /v1/replays": replace(described, name=name, problems=tuple(sorted({*described.problems} - {405})))
    for (method, described), name in zip(REPLAY.items(), ("post_replay", "get_replays", "delete_replay"), strict=True)
}
"""The HTTP API's operations, by route key."""
