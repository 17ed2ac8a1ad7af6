"""The HTTP API's routes: what API Gateway (or its local stand-in) sends to which function."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Route:
    """A route: HTTP method, path template as API Gateway writes it, and the function that answers."""

    method: str
    path: str
    function: str

    @property
    def key(self) -> str:
        """The route key, as events of payload format 2.0 carry it."""
        return f"{self.method} {self.path}"


ROUTES = (
    Route("POST", "/v1/events", "ingest"),
    Route("POST", "/v1/events/batch", "ingest"),
    *(
        Route(method, path, "manage")
        for method, path in (
            ("GET", "/v1/events"),
            ("GET", "/v1/events/{id}"),
            ("POST", "/v1/endpoints"),
            ("GET", "/v1/endpoints"),
            ("GET", "/v1/endpoints/{id}"),
            ("PATCH", "/v1/endpoints/{id}"),
            ("DELETE", "/v1/endpoints/{id}"),
            ("POST", "/v1/endpoints/{id}/pause"),
            ("POST", "/v1/endpoints/{id}/resume"),
            ("POST", "/v1/endpoints/{id}/enable"),
            ("POST", "/v1/endpoints/{id}/reset-breaker"),
            ("POST", "/v1/endpoints/{id}/rotate-secret"),
            ("POST", "/v1/endpoints/{id}/test"),
            ("POST", "/v1/endpoints/{id}/backfill"),
            ("GET", "/v1/endpoints/{id}/secret"),
            ("GET", "/v1/presets"),
            ("POST", "/v1/tenants/{tenant}/pause"),
            ("POST", "/v1/tenants/{tenant}/resume"),
            ("POST", "/v1/pause"),
            ("POST", "/v1/resume"),
            ("GET", "/v1/deliveries"),
            ("GET", "/v1/deliveries/{id}"),
            ("POST", "/v1/deliveries/cancel"),
            ("GET", "/v1/health"),
            ("GET", "/v1/openapi.json"),
        )
    ),
)
