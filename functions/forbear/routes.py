"""The HTTP API's routes: what API Gateway (or its local stand-in) sends to which function, and who may call it.

Owns the rule of each route. How a rule is enforced is `access`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class KeyScope(StrEnum):
    """What an API key may be for."""

    INGEST = "ingest"
    MANAGE = "manage"
    READ = "read"
    REPLAY = "replay"


class Needs(StrEnum):
    """What a route asks of its caller where that is not one scope."""

    NOTHING = "nothing"
    """Nobody is asked who it is."""
    ANY_KEY = "any_key"
    """A key with whatever scope."""
    NO_KEY = "no_key"
    """A caller whom the gateway vouches for; no key will do."""


class Held(StrEnum):
    """Where a key that is bound to a tenant is held to it."""

    QUERY = "query"
    """The query parameter `tenant` is the key's: what is another tenant's is not found."""
    PATH = "path"
    """The path names the tenant."""
    BODY = "body"
    """The body names the tenant; the operation sees to it (`Caller.hold`)."""
    EVENTS = "events"
    """The events name it; the statement that stores them checks the key, too, in its round trip."""
    NOWHERE = "nowhere"
    """Nothing here is any tenant's."""
    OUT = "out"
    """This is everybody's: a bound key may not."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may call a route. A caller whom the gateway admitted may call every one; a key, what this says."""

    needs: KeyScope | Needs
    held: Held


@dataclass(frozen=True, slots=True)
class Route:
    """A route: HTTP method, path template as API Gateway writes it, the function that answers, and who may call it."""

    method: str
    path: str
    function: str
    rule: Rule

    @property
    def key(self) -> str:
        """The route key, as events of payload format 2.0 carry it."""
        return f"{self.method} {self.path}"


_INGEST: Final = Rule(KeyScope.INGEST, Held.EVENTS)
_READ: Final = Rule(KeyScope.READ, Held.QUERY)
_MANAGE: Final = Rule(KeyScope.MANAGE, Held.QUERY)
_REPLAY: Final = Rule(KeyScope.REPLAY, Held.QUERY)
_TENANT: Final = Rule(KeyScope.MANAGE, Held.PATH)
_EVERYTHING: Final = Rule(KeyScope.MANAGE, Held.OUT)
_PUBLIC: Final = Rule(Needs.ANY_KEY, Held.NOWHERE)
_KEYS: Final = Rule(Needs.NO_KEY, Held.NOWHERE)

ROUTES: Final = (
    Route("POST", "/v1/events", "ingest", _INGEST),
    Route("POST", "/v1/events/batch", "ingest", _INGEST),
    *(
        Route(method, path, "manage", rule)
        for method, path, rule in (
            ("GET", "/v1/events", _READ),
            ("GET", "/v1/events/{id}", _READ),
            ("POST", "/v1/endpoints", Rule(KeyScope.MANAGE, Held.BODY)),
            ("GET", "/v1/endpoints", _READ),
            ("GET", "/v1/endpoints/{id}", _READ),
            ("PATCH", "/v1/endpoints/{id}", _MANAGE),
            ("DELETE", "/v1/endpoints/{id}", _MANAGE),
            ("POST", "/v1/endpoints/{id}/pause", _MANAGE),
            ("POST", "/v1/endpoints/{id}/resume", _MANAGE),
            ("POST", "/v1/endpoints/{id}/enable", _MANAGE),
            ("POST", "/v1/endpoints/{id}/reset-breaker", _MANAGE),
            ("POST", "/v1/endpoints/{id}/rotate-secret", _MANAGE),
            ("POST", "/v1/endpoints/{id}/test", _MANAGE),
            ("POST", "/v1/endpoints/{id}/backfill", _REPLAY),
            ("GET", "/v1/endpoints/{id}/secret", _MANAGE),
            ("GET", "/v1/presets", _PUBLIC),
            ("POST", "/v1/tenants/{tenant}/pause", _TENANT),
            ("POST", "/v1/tenants/{tenant}/resume", _TENANT),
            ("POST", "/v1/pause", _EVERYTHING),
            ("POST", "/v1/resume", _EVERYTHING),
            ("GET", "/v1/deliveries", _READ),
            ("GET", "/v1/deliveries/{id}", _READ),
            ("POST", "/v1/deliveries/cancel", _MANAGE),
            ("POST", "/v1/keys", _KEYS),
            ("GET", "/v1/keys", _KEYS),
            ("DELETE", "/v1/keys/{id}", _KEYS),
            ("GET", "/v1/health", Rule(Needs.NOTHING, Held.NOWHERE)),
            ("GET", "/v1/openapi.json", _PUBLIC),
        )
    ),
    *(Route(method, "/v1/replays", "replay", _REPLAY) for method in ("POST", "GET", "DELETE")),
)

RULES: Final[Mapping[str, Rule]] = {route.key: route.rule for route in ROUTES}
"""The rules by route key."""

FUNCTION_URL: Final = Rule(Needs.NO_KEY, Held.NOWHERE)
"""The rule of the replay function's URL, where AWS checks a signature and takes nothing else."""
