"""The demo's receivers: six on one loopback port, each with its own manners.

Owns how each answers and what it got; verifies every request with the `standardwebhooks` package, as a customer would.
"""

import asyncio
import hashlib
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from standardwebhooks import Webhook, WebhookVerificationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

SLOW_S = 2.0
RETRY_AFTER_S = 2


@dataclass(frozen=True, slots=True)
class Receipt:
    """A request that a receiver got, and the status that it answered."""

    receiver: str
    event_id: str
    attempt: int
    status: int
    at: float
    digest: str
    replayed: bool


@dataclass(slots=True)
class Receivers:
    """An ASGI application: the path's first segment names the receiver.

    Attributes:
        on_receipt: told of every request as it is answered.
        secrets: each receiver's signing secret, by its name.
        receipts: what came in, in order.
        forged: requests whose signature did not verify.
        repaired: whether the broken one works by now.
    """

    on_receipt: Callable[[Receipt], None]
    secrets: dict[str, str] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)
    forged: list[Receipt] = field(default_factory=list)
    repaired: bool = False
    _seen: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        name = request.url.path.strip("/").partition("/")[0]
        body = await request.body()
        event_id = request.headers.get("webhook-id", "")
        self._seen[name, event_id] += 1
        status, headers = await self._manners(name, self._seen[name, event_id])
        receipt = Receipt(
            receiver=name,
            event_id=event_id,
            attempt=int(request.headers.get("forbear-attempt", "0")),
            status=status,
            at=time.monotonic(),
            digest=hashlib.sha256(body).hexdigest(),
            replayed="forbear-replay" in request.headers,
        )
        self.receipts.append(receipt)
        try:
            Webhook(self.secrets[name]).verify(body, dict(request.headers))
        except (WebhookVerificationError, KeyError):
            self.forged.append(receipt)
        self.on_receipt(receipt)
        await Response(status_code=status, headers=headers)(scope, receive, send)

    async def _manners(self, name: str, time_seen: int) -> tuple[int, dict[str, str]]:
        if name == "flaky":
            return (503 if time_seen <= 2 else 200), {}
        if name == "broken":
            return (200 if self.repaired else 500), {}
        if name == "slow":
            await asyncio.sleep(SLOW_S)
        if name == "throttled" and time_seen == 1:
            return 429, {"retry-after": str(RETRY_AFTER_S)}
        return (410 if name == "gone" else 204), {}
