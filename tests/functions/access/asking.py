"""Asks the entry points as API Gateway and the function URL do, with or without credentials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from forbear.routes import ROUTES
from tests.functions.events import body_of, http_event
from tests.functions.keys import bearer

FUNCTIONS = {route.key: route.function for route in ROUTES}
URL = "replay URL"
"""How the routes of the replay function's URL begin here: `replay URL POST`."""


@dataclass(frozen=True)
class Request:
    """A request, but for its route and its credentials."""

    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: Any

    @property
    def text(self) -> str:
        return json.dumps([self.headers, self.body])


def ask(route: str, request: Request, *, token: str | None = None, signed: bool = False) -> Answer:
    """Make a request.

    Args:
        route: a route key, or `replay URL` and a method.
        request: what to ask.
        token: an API key to send.
        signed: whether the gateway has admitted it.
    """
    by_url = route.startswith(URL)
    method, path = (route.rpartition(" ")[2], "/") if by_url else route.split(" ")
    event = http_event(
        method,
        path,
        path=request.path,
        query=request.query,
        headers={"content-type": "application/json", **request.headers, **(bearer(token) if token else {})},
        body=request.body
        if isinstance(request.body, bytes)
        else json.dumps(request.body).encode()
        if request.body is not None
        else b"",
        signed=signed,
    )
    if by_url:
        event["routeKey"] = "$default"
    result = import_module("replay" if by_url else FUNCTIONS[route]).handler(event, None)
    return Answer(result["statusCode"], result["headers"], body_of(result))
