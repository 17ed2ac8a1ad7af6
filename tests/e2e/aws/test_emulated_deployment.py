"""The stack from an empty account to an empty account: the real command line, bundle and handlers, in an emulator.

What is left out of it stands in `left_out.py`. Not run by a plain `pytest`; it needs the package indexes of Python and
npm, and prints what it left out and how long each step took.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from standardwebhooks import Webhook

from forbear.ids import Prefix, encode
from infra.local.postgres import EmbeddedPostgres
from tests.e2e.aws.cdk_cli import ARCHITECTURE, Cdk
from tests.e2e.aws.deployed import Caller, Deployed, holdings
from tests.e2e.aws.emulated_app import DATABASE, LEFT_OUT
from tests.e2e.aws.emulator import ACCOUNT, REGION, MiniStack
from tests.e2e.aws.steps import Steps
from tests.e2e.world import QUICK, Receipt, Receiver, until
from tests.functions.builders import post

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

EVENT = {"tenant": "acme", "type": "order.paid", "payload": {"id": 1}}


@pytest.fixture
def cdk(emulator: MiniStack, aurora: EmbeddedPostgres, tmp_path: Path) -> Cdk:
    """The CDK's command line, for the account and the database."""
    told = {DATABASE: f"127.0.0.1:{aurora.port}/forbear", LEFT_OUT: str(tmp_path / "left-out")}
    return Cdk(tmp_path, emulator.environment | told)


async def test_the_stack_is_deployed_works_is_updated_and_leaves_nothing_but_a_snapshot_and_its_key(
    cdk: Cdk, emulator: MiniStack, aurora: EmbeddedPostgres, receiver: tuple[Receiver, int], steps: Steps
) -> None:
    received, port = receiver
    chosen = {
        "profile": "small",
        "functions.architecture": ARCHITECTURE,
        "delivery.allow_networks": "127.0.0.0/8",
        "delivery.allow_http": "true",
        "network.receiver_ports": f"443,{port}",
    }
    with steps("cdk bootstrap"):
        await cdk.bootstrap(ACCOUNT, REGION)
    before = holdings(emulator)
    with steps("cdk deploy"):
        stack = Deployed(emulator, await cdk.deploy(chosen))
    async with emulator.http() as http:
        stranger = Caller(stack, http)
        producer = Caller(stack, http, stack.user("producer", "ProducerPolicy"))
        operator = Caller(stack, http, stack.user("operator", "OperatorPolicy"))
        with steps("who may do what"):
            await only_those_who_may(stranger, producer)
        with steps("a signed event becomes a webhook"):
            endpoint = await an_event_is_delivered(producer, operator, received, port)
        with steps("a dead delivery comes back by the function URL"):
            await a_dead_delivery_comes_back(producer, operator, received, endpoint)
        with steps("the claimer switches its schedule off"):
            await until(lambda: stack.tick()["State"] == "DISABLED")
        forgotten = forgotten_event(aurora)
        stack.switch_on()
        more = {"functions.memory_mb.ingest": "1024", "delivery.retention_days": "7", "api.keys": "true"}
        with steps("cdk deploy, an update"):
            stack.outputs = await cdk.deploy({**chosen, **more})
        with steps("an API key posts an event, and nobody else gets in there"):
            await api_keys_are_taken(stranger, operator, received)
        assert stack.function("ingest")["MemorySize"] == 1024
        assert stack.function("maintain")["Environment"]["Variables"]["FORBEAR_RETENTION_DAYS"] == "7"
        with steps("the schedule's tick finds an event that nobody told of"):
            await webhook(received, forgotten)
        with steps("the updated stack delivers"):
            await delivered(producer, received)
        stack.dismiss("producer", "operator")
    with steps("cdk destroy"):
        await cdk.destroy()
    left = holdings(emulator) - before
    for line in sorted(left):
        steps.tell(f"left after destroy: {line}")
    # As database.final_snapshot promises: the database, and the key of the secrets in it.
    assert sorted(line.partition(" ")[0] for line in left) == ["keys", "snapshots"]


async def only_those_who_may(stranger: Caller, producer: Caller) -> None:
    """Nobody without a signature, and a producer to events only."""
    assert (await stranger.call("GET", "/v1/health")).status_code == 200
    assert (await stranger.call("POST", "/v1/events", EVENT)).status_code == 403
    assert (await stranger.call("GET", "/v1/endpoints")).status_code == 403
    assert (await stranger.replay("GET")).status_code == 403
    assert (await producer.call("GET", "/v1/endpoints")).status_code == 403
    assert (await producer.replay("GET")).status_code == 403


async def api_keys_are_taken(stranger: Caller, operator: Caller, received: Receiver) -> None:
    """At the second API, which anybody reaches: from a key's making to its end, by KMS and each function's rights."""
    made = await operator.call("POST", "/v1/keys", {"name": "shop", "scopes": ["ingest"], "tenant": "acme"})
    assert made.status_code == 201, made.text
    token, key_id = made.json()["token"], made.json()["id"]

    async def call(method: str, path: str, body: Any = None, token: str = "") -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        url = stranger.stack.api(path, "KeysApiUrl")
        return await stranger.http.request(method, url, json=body, headers=headers)

    assert (await call("GET", "/v1/health")).status_code == 200
    for path in ("/v1/endpoints", "/v1/keys", "/v1/openapi.json"):
        assert (await call("GET", path)).status_code == 401, path
    assert (await call("POST", "/v1/events", EVENT)).status_code == 401
    assert (await call("POST", "/v1/events", EVENT, f"fbk_{'A' * 76}")).status_code == 401
    posted = await call("POST", "/v1/events", EVENT, token)
    assert posted.status_code == 202, posted.text
    await webhook(received, posted.json()["id"])
    assert (await call("GET", "/v1/endpoints", None, token)).status_code == 403
    assert (await operator.call("DELETE", f"/v1/keys/{key_id}")).status_code == 204
    assert (await call("POST", "/v1/events", EVENT, token)).status_code == 401


async def an_event_is_delivered(producer: Caller, operator: Caller, received: Receiver, port: int) -> dict[str, Any]:
    """From an endpoint's creation to a webhook whose signature verifies. Gives the endpoint."""
    body = {"tenant": "acme", "url": f"http://127.0.0.1:{port}/hook", "policy": QUICK}
    created = await operator.call("POST", "/v1/endpoints", body)
    assert created.status_code == 201, created.text
    endpoint: dict[str, Any] = created.json()
    receipt = await delivered(producer, received)
    Webhook(endpoint["secret"]).verify(receipt.body, receipt.headers)
    assert json.loads(receipt.body) == EVENT["payload"]
    return endpoint


async def delivered(producer: Caller, received: Receiver) -> Receipt:
    """Post an event and wait for its webhook."""
    answer = await producer.call("POST", "/v1/events", EVENT)
    assert answer.status_code == 202, answer.text
    return await webhook(received, answer.json()["id"])


async def webhook(received: Receiver, event_id: str) -> Receipt:
    """The webhook of an event, once it has come. A tick may take a minute and the emulator's ten seconds."""
    async with asyncio.timeout(90):
        while True:
            for receipt in received.receipts:
                if receipt.event_id == event_id:
                    return receipt
            await asyncio.sleep(0.05)


async def a_dead_delivery_comes_back(
    producer: Caller, operator: Caller, received: Receiver, endpoint: dict[str, Any]
) -> None:
    """Every attempt fails; then a replay, signed for the function URL, delivers it with the same id."""
    received.answer = lambda _receipt, _time: 500
    answer = await producer.call("POST", "/v1/events", EVENT)
    event_id = answer.json()["id"]

    async def status() -> str:
        read = (await operator.call("GET", f"/v1/events/{event_id}")).json()
        return str(read["deliveries"]["items"][0]["status"])

    async def is_dead() -> bool:
        return await status() == "dead"

    async def is_delivered() -> bool:
        return await status() == "delivered"

    await until(is_dead)
    received.answer = lambda _receipt, _time: 204
    replay = await operator.replay("POST", {"filter": {"endpoint": endpoint["id"]}})
    assert replay.status_code == 202, replay.text
    await until(is_delivered)
    last = received.receipts[-1]
    assert (last.event_id, last.headers["forbear-replay"]) == (event_id, replay.json()["id"])


def forgotten_event(aurora: EmbeddedPostgres) -> str:
    """An event whose producer died before it called a claimer. Gives its id."""
    with psycopg.connect(aurora.url("forbear"), autocommit=True) as connection:
        (event_id,) = post(connection, b"{}")
    return encode(Prefix.EVENT, event_id)
