"""The real handlers behind the local gateway and function URL, as one ASGI application in this process."""

from __future__ import annotations

import json
from typing import Any, cast

from starlette.types import Receive, Scope, Send

import ingest
import manage
import replay
from forbear.routes import ROUTES
from infra.local.function_url import FunctionUrl
from infra.local.functions import Functions
from infra.local.gateway import Gateway, Route
from infra.local.runtime_api import Outcome

HANDLERS = {"ingest": ingest.handler, "manage": manage.handler, "replay": replay.handler}


class InProcess:
    """Functions that are called where they stand. What one raises is its error, as in Lambda."""

    async def invoke(self, reference: str, payload: bytes, *, trace_id: str | None = None) -> Outcome:
        del trace_id
        try:
            result: dict[str, Any] = HANDLERS[reference](json.loads(payload), None)
            return Outcome(json.dumps(result).encode())
        except Exception as error:  # noqa: BLE001 - whatever a handler raises is the invocation's error
            return Outcome(json.dumps({"errorType": type(error).__name__}).encode(), "Unhandled")


class Served:
    """The HTTP API, and at `/` the replay function's URL."""

    def __init__(self) -> None:
        functions = cast("Functions", InProcess())
        self._api = Gateway([Route(one.method, one.path, one.function) for one in ROUTES], functions)
        self._replay = FunctionUrl("replay", functions)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._replay if scope["path"] == "/" else self._api)(scope, receive, send)
