"""Where a claimer sends to is asked by its own settings, whatever the endpoint was made under."""

from __future__ import annotations

import asyncio
import random
from ipaddress import ip_network
from typing import Any

import psycopg
import pytest

import claimer
from forbear.attempting import Attempted, attempt
from forbear.guard import Guard
from forbear.sender.lean import LeanSender
from forbear.store import Store
from infra.local.deployment import url_as
from tests.functions.builders import data_keys, make_endpoint, post

type Connection = psycopg.Connection[Any]


@pytest.mark.parametrize(
    ("environment", "guard"),
    [
        ({}, Guard()),
        (
            {"ALLOW_HTTP": "true", "PORTS": "443,8080", "ALLOW_NETWORKS": "10.0.0.0/8"},
            Guard((ip_network("10.0.0.0/8"),), allow_http=True, ports=frozenset({443, 8080})),
        ),
    ],
)
def test_the_claimers_guard_is_what_its_settings_say(
    handlers: pytest.MonkeyPatch, environment: dict[str, str], guard: Guard
) -> None:
    for name, value in environment.items():
        handlers.setenv(f"FORBEAR_{name}", value)
    claimer._sender.cache_clear()
    try:
        assert claimer._sender()._dialer._guard == guard
    finally:
        claimer._sender.cache_clear()


def test_an_endpoint_made_before_http_was_forbidden_fails_with_a_reason_and_is_retried(
    connection: Connection, database_url: str
) -> None:
    """Nothing is lost by tightening a setting: the attempt says what to do, and the delivery waits for it."""
    make_endpoint(connection, url="http://127.0.0.1:9/")
    post(connection, b"1")

    async def attempted() -> Attempted:
        store = Store(url_as(database_url, "forbear_claimer"), data_keys())
        sender = LeanSender(Guard((ip_network("127.0.0.0/8"),)))
        try:
            (lease,) = await store.claim(1, 1 << 20)
            return await attempt(lease, sender, store.now, random.Random(1))
        finally:
            await sender.aclose()
            await store.aclose()

    result = asyncio.run(attempted()).result
    assert result.outcome == "retry"
    assert result.attempt is not None
    assert (result.attempt.error, result.attempt.error_detail) == ("blocked", "http is not allowed here: use https")
