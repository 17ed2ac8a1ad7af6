"""Calls the manage function as API Gateway does, and plays a claimer's part."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row

import manage
from forbear.ids import Prefix, decode, encode
from forbear.leases import Lease
from forbear.operations import OPERATIONS, Described
from forbear.store import Attempt, LaneChange, Result, Settled, Store
from infra.local.deployment import url_as
from tests.functions.builders import data_keys, one
from tests.functions.events import body_of, http_event

GONE = "gone: the receiver answered 410"

type Connection = psycopg.Connection[Any]

JSON = {"content-type": "application/json"}
URL = "https://example.com/hooks"
ENDPOINT = "/v1/endpoints/{id}"
DELIVERY = "/v1/deliveries/{id}"
EVENT = "/v1/events/{id}"


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: dict[str, str]

    @property
    def detail(self) -> str:
        assert self.headers["content-type"] == "application/problem+json"
        assert self.body["status"] == self.status
        return str(self.body["detail"])


def call(
    method: str,
    path_template: str,
    item: str | UUID | None = None,
    *,
    body: Any = None,
    tenant: str | None = None,
    query: Mapping[str, str] | None = None,
) -> Answer:
    """Call an operation. `item` fills the path's parameter; `tenant` becomes a query parameter."""
    name = path_template.partition("{")[2].partition("}")[0]
    result = manage.handler(
        http_event(
            method,
            path_template,
            path=None if item is None else {name: str(item)},
            query={**({"tenant": tenant} if tenant else {}), **(query or {})},
            headers=JSON,
            body=body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode(),
        ),
        None,
    )
    answer = Answer(result["statusCode"], body_of(result), result["headers"])
    check_described(answer, OPERATIONS[f"{method} {path_template}"])
    return answer


def check_described(answer: Answer, described: Described) -> None:
    """Every answer is one that the API's description knows."""
    if answer.status in described.answers:
        models = described.answers[answer.status]
        if not models:
            assert answer.body is None
        elif models[0].model_config.get("extra") != "allow":
            assert set(answer.body) in [set(model.model_fields) for model in models]
    else:
        assert answer.status in {*described.problems, 503}


def ok(answer: Answer, status: int = 200) -> Any:
    """The body of an answer that must be a success."""
    assert answer.status == status, answer.body
    return answer.body


def create(**given: Any) -> Any:
    """Create an endpoint by the API. Gives its document."""
    return ok(call("POST", "/v1/endpoints", body={"tenant": "acme", "url": URL, **given}), 201)


def ep(value: UUID) -> str:
    return encode(Prefix.ENDPOINT, value)


def dlv(value: UUID) -> str:
    return encode(Prefix.DELIVERY, value)


def evt(value: UUID) -> str:
    return encode(Prefix.EVENT, value)


def ep_id(text: str) -> UUID:
    return decode(Prefix.ENDPOINT, text)


def rows(connection: Connection, sql: str, *parameters: object) -> list[dict[str, Any]]:
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(sql, parameters).fetchall()


class Claimer:
    """A claimer in the test's hand, on the very store that claimers use."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._store = Store(url_as(url, "forbear_claimer"), data_keys())

    def claim(self, slots: int = 400) -> list[Lease]:
        return self._runner.run(self._store.claim(slots, 100_000_000))

    def settle(
        self,
        lease: Lease,
        outcome: str,
        *,
        delay_s: float = 60.0,
        reason: str | None = None,
        wait_s: float | None = None,
        **evidence: Any,
    ) -> Settled:
        """Record a lease's attempt; `evidence` are fields of Attempt."""
        attempt = Attempt(
            **{
                "verdict": {"delivered": "success", "retry": "retry", "dead": "permanent"}[outcome],
                "began": time.monotonic() - 0.25,
                "latency_ms": 250.0,
                "url": URL,
                "address": "192.0.2.7:443",
                "request_headers": b"webhook-id: x\r\nx-key: ***",
                "status": 200 if outcome == "delivered" else 500,
                "response_headers": b"content-type: text/plain\r\n",
                "response_body": b"thanks",
                "error": None,
                "error_detail": "",
                "retry_after_s": None,
                "retry_after_honoured": False,
                **evidence,
            }
        )
        reason = reason or ("permanent" if outcome == "dead" else None)
        change = LaneChange(
            lease.lane.endpoint_id,
            lease.lane.control,
            wait_s=wait_s,
            disable=GONE if attempt.verdict == "gone" else None,
        )
        result = Result(lease, outcome, reason, delay_s, limited=False, attempt=attempt)
        return self._runner.run(self._store.settle([result], [change]))

    def finish(self, outcome: str = "delivered") -> list[UUID]:
        """Claim what is due and settle all of it alike. Gives the deliveries' ids."""
        leases = self.claim()
        for lease in leases:
            self.settle(lease, outcome)
        return [lease.delivery_id for lease in leases]

    def close(self) -> None:
        self._runner.run(self._store.aclose())
        self._runner.close()


def open_breaker(connection: Connection, endpoint_id: UUID, cooldown_s: float = 30) -> None:
    """Open an endpoint's breaker for so long."""
    connection.execute(
        "UPDATE forbear.lanes SET breaker_state = 'open', breaker_failures = 5, breaker_trips = 1, breaker_epoch = 1,"
        " breaker_since = forbear.now(), breaker_until = forbear.now() + %s * interval '1 second',"
        " breaker_reason = '5 failures in a row, the last: 500',"
        " ready_at = greatest(ready_at, forbear.now() + %s * interval '1 second') WHERE endpoint_id = %s",
        (cooldown_s, cooldown_s, endpoint_id),
    )


def wait_for_a_waiter(connection: Connection) -> None:
    """Until some statement in this database waits for a lock."""
    waiting = (
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')"
    )
    while not one(connection, waiting):
        pass
