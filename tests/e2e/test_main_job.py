"""The main job, end to end: the real handlers in their own processes, PostgreSQL, and HTTP on both sides."""

from __future__ import annotations

import hashlib
from typing import Any

from standardwebhooks import Webhook

from tests.e2e.world import QUICK, World, until

AWKWARD = (
    b'{"z":1,"a":2,"m":{"y":1,"b":2}}',
    b'{"a": 1.0}',
    b"1e400",
    b'{"a":1,"a":2}',
    b'{"n":123456789012345678901234567890}',
    '{"e":"🙂 é"}'.encode(),
    b'{"e":"\\ud83d\\ude00"}',
    b'{"s":"\\ud800"}',
    b'{"s":"a\\u0000b"}',
    b'{ "a" :\t1 ,\r\n "b":[ ] }',
    b'""',
    b"null",
    b"[]",
    b"0",
)


async def test_an_event_is_delivered_with_its_headers_and_a_signature_that_verifies(world: World) -> None:
    endpoint = await world.endpoint(headers={"X-Customer": "blue"})
    event_id = await world.post({"id": 1})
    delivery = await world.ended(event_id, "delivered")
    (receipt,) = world.receiver.receipts
    assert receipt.body == b'{"id":1}'
    Webhook(endpoint["secret"]).verify(receipt.body, receipt.headers)
    assert receipt.event_id == event_id
    assert receipt.headers["idempotency-key"] == delivery["id"]
    assert receipt.headers["forbear-attempt"] == "1"
    assert receipt.headers["forbear-type"] == "order.paid"
    assert receipt.headers["content-type"] == "application/json"
    assert receipt.headers["x-customer"] == "blue"
    assert receipt.headers["user-agent"].startswith("Forbear/")
    (attempt,) = delivery["attempts"]
    assert (attempt["status"], attempt["verdict"]) == (204, "success")
    assert "blue" not in str(attempt["request_headers"])


async def test_payloads_go_out_as_they_stood_in_the_envelope(world: World) -> None:
    await world.endpoint()
    wanted = {}
    for payload in AWKWARD:
        document = b'{"tenant":"acme","type":"order.paid","payload":%b}' % payload
        response = await world.client.post(
            f"{world.stack.api_url}/v1/events", content=document, headers={"content-type": "application/json"}
        )
        assert response.status_code == 202, (payload, response.text)
        wanted[response.json()["id"]] = payload
    await until(lambda: len(world.receiver.receipts) == len(AWKWARD))
    assert {receipt.event_id: receipt.body for receipt in world.receiver.receipts} == wanted


async def test_raw_bodies_go_out_as_they_came(world: World) -> None:
    await world.endpoint()
    wanted = {}
    for body in (b"", b"\x00\xff\xfe not text", b"a=1&b=2", b"not json {", b"\x1f\x8b\x08"):
        response = await world.client.post(
            f"{world.stack.api_url}/v1/events",
            content=body,
            headers={"content-type": "application/x-thing", "forbear-tenant": "acme", "forbear-type": "order.paid"},
        )
        assert response.status_code == 202, response.text
        wanted[response.json()["id"]] = body
    await until(lambda: len(world.receiver.receipts) == len(wanted))
    assert {receipt.event_id: receipt.body for receipt in world.receiver.receipts} == wanted
    assert {receipt.headers["content-type"] for receipt in world.receiver.receipts} == {"application/x-thing"}


async def test_what_fails_twice_is_retried_with_the_same_id_and_body(world: World) -> None:
    world.receiver.answer = lambda _receipt, time: 503 if time <= 2 else 200
    await world.endpoint()
    delivery = await world.ended(await world.post({"n": 1}), "delivered")
    receipts = world.receiver.receipts
    assert [receipt.headers["forbear-attempt"] for receipt in receipts] == ["1", "2", "3"]
    assert len({(r.event_id, r.body, r.headers["idempotency-key"]) for r in receipts}) == 1
    assert [attempt["number"] for attempt in delivery["attempts"]] == [3, 2, 1]


async def test_what_never_succeeds_becomes_a_dead_letter_and_a_replay_delivers_it(world: World) -> None:
    world.receiver.answer = lambda _receipt, _time: 500
    endpoint = await world.endpoint(policy={**QUICK, "breaker": {"failures": 100}})
    event_id = await world.post({"n": 1})
    dead = await world.ended(event_id, "dead")
    assert dead["reason"] == "exhausted"
    assert len(world.receiver.receipts) == 4
    world.receiver.answer = lambda _receipt, _time: 200
    assert (await world.replay({"filter": {"endpoint": endpoint["id"]}, "dry_run": True}))["matched"] == 1
    replay = await world.replay({"filter": {"endpoint": endpoint["id"]}})
    delivered = await world.ended(event_id, "delivered")
    assert delivered["generation"] == 2
    assert [attempt["number"] for attempt in delivered["attempts"]] == [5, 4, 3, 2, 1]
    last = world.receiver.receipts[-1]
    assert (last.event_id, last.headers["forbear-replay"]) == (event_id, replay["id"])
    assert last.body == world.receiver.receipts[0].body


async def test_410_ends_the_delivery_and_disables_the_endpoint_until_it_is_enabled(world: World) -> None:
    world.receiver.answer = lambda _receipt, _time: 410
    endpoint = await world.endpoint()
    assert (await world.ended(await world.post(), "dead"))["reason"] == "gone"
    read = await world.call("GET", f"/v1/endpoints/{endpoint['id']}")
    assert [hold["by"] for hold in read["circuit"]["held"]] == ["disabled"]
    held = await world.post()
    assert (await world.one_delivery(held))["status"] == "pending"
    world.receiver.answer = lambda _receipt, _time: 200
    await world.call("POST", f"/v1/endpoints/{endpoint['id']}/enable")
    await world.ended(held, "delivered")


async def test_retry_after_is_waited_for_by_the_whole_endpoint(world: World) -> None:
    world.receiver.answer = lambda _receipt, time: (429, {"retry-after": "2"}) if time == 1 else 200
    await world.endpoint()
    first = await world.post(1)
    await until(lambda: world.receiver.receipts)
    await until(_waits, world)
    second = await world.post(2)
    await world.ended(first, "delivered")
    await world.ended(second, "delivered")
    began = world.receiver.receipts[0].at
    assert all(receipt.at - began >= 2 for receipt in world.receiver.receipts[1:])


async def _waits(world: World) -> bool:
    (endpoint,) = (await world.call("GET", "/v1/endpoints?tenant=acme"))["items"]
    return any(hold["by"] == "retry_after" for hold in endpoint["circuit"]["held"])


async def test_a_breaker_opens_and_recovers_through_one_probe(world: World) -> None:
    broken = True
    world.receiver.answer = lambda _receipt, _time: 500 if broken else 200
    policy = {
        "schedule": {**QUICK["schedule"], "repeat_last": True, "retries": 50},
        "breaker": {"failures": 5, "cooldown_s": 2, "cooldown_multiplier": 1, "cooldown_cap_s": 2},
    }
    endpoint = await world.endpoint(policy=policy)
    events = [await world.post(n) for n in range(8)]

    async def state() -> str:
        read = await world.call("GET", f"/v1/endpoints/{endpoint['id']}")
        return str(read["circuit"]["state"])

    async def is_open() -> bool:
        return await state() == "open"

    await until(is_open)
    await until(lambda: world.receiver.in_flight == 0)
    sent = len(world.receiver.receipts)
    read = await world.call("GET", f"/v1/endpoints/{endpoint['id']}")
    assert read["circuit"]["next_probe_at"]
    assert "in a row" in read["circuit"]["reason"]
    await until(lambda: len(world.receiver.receipts) > sent)  # the first probe, which fails
    await until(is_open)
    assert len(world.receiver.receipts) == sent + 1
    broken = False
    for event in events:
        await world.ended(event, "delivered")
    # Eight deliveries do not fill the trickle; with time and a success it closes.
    assert await state() == "half_open_trickle"


async def test_a_paused_endpoint_holds_its_deliveries_and_resume_lets_them_go(world: World) -> None:
    endpoint = await world.endpoint()
    await world.call("POST", f"/v1/endpoints/{endpoint['id']}/pause")
    event_id = await world.post()
    other = await world.endpoint("/other", tenant="zeta")
    await world.ended(await world.post(tenant="zeta"), "delivered")  # time for a mistake to show
    assert other["id"] != endpoint["id"]
    assert world.receiver.at("/hook") == []
    await world.call("POST", f"/v1/endpoints/{endpoint['id']}/resume")
    await world.ended(event_id, "delivered")


async def test_tenants_do_not_see_each_other(world: World) -> None:
    endpoint = await world.endpoint("/a", tenant="acme")
    await world.endpoint("/z", tenant="zeta")
    event_id = await world.post(1, tenant="acme")
    delivery = await world.ended(event_id, "delivered")
    assert world.receiver.at("/z") == []
    for path in (f"endpoints/{endpoint['id']}", f"events/{event_id}", f"deliveries/{delivery['id']}"):
        await world.call("GET", f"/v1/{path}?tenant=zeta", expect=404)
        await world.call("GET", f"/v1/{path}?tenant=acme")
    assert await world.deliveries("tenant=zeta") == []


async def test_a_thousand_deliveries_arrive_once_each_and_verify(world: World) -> None:
    endpoint = await world.endpoint()
    webhook = Webhook(endpoint["secret"])
    digests: dict[str, str] = {}
    for batch in range(2):
        payloads = [f'{{"n" : {batch * 500 + n}, "x":"{"y" * 900}"}}' for n in range(500)]
        events = ",".join(f'{{"tenant":"acme","type":"order.paid","payload":{payload}}}' for payload in payloads)
        response = await world.client.post(
            f"{world.stack.api_url}/v1/events/batch",
            content=f'{{"events":[{events}]}}',
            headers={"content-type": "application/json"},
        )
        assert response.status_code == 207, response.text
        for payload, result in zip(payloads, response.json()["results"], strict=True):
            digests[result["id"]] = hashlib.sha256(payload.encode()).hexdigest()
    await until(lambda: len(world.receiver.receipts) >= 1000)
    await until(_all_delivered, world, endpoint["id"], 1000)
    assert len(world.receiver.receipts) == 1000
    assert {r.event_id: hashlib.sha256(r.body).hexdigest() for r in world.receiver.receipts} == digests
    for receipt in world.receiver.receipts:
        webhook.verify(receipt.body, receipt.headers)


async def _all_delivered(world: World, endpoint: str, number: int) -> bool:
    found, cursor = 0, ""
    while True:
        page: dict[str, Any] = await world.call(
            "GET", f"/v1/deliveries?endpoint={endpoint}&status=delivered&limit=200{cursor}"
        )
        found += len(page["items"])
        if not page["next"]:
            return found == number
        cursor = f"&cursor={page['next']}"


async def test_a_test_event_goes_to_its_endpoint_only(world: World) -> None:
    endpoint = await world.endpoint("/a")
    await world.endpoint("/b")
    made = await world.call("POST", f"/v1/endpoints/{endpoint['id']}/test")
    await world.ended(made["event_id"], "delivered")
    (receipt,) = world.receiver.receipts
    assert (receipt.path, receipt.headers["forbear-type"]) == ("/a", "forbear.test")
