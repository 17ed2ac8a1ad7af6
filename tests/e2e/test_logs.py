"""What must not be logged is not: a whole run with marks in all that is secret, and failures of every kind."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import httpx
import psycopg
import pytest

from infra.config_parts import DatabaseConfig
from infra.database import parameters
from infra.local.deployment import bring_up
from infra.local.postgres import EmbeddedPostgres
from tests.e2e.world import QUICK, Answer, Receipt, World, running, until
from tests.functions.builders import key_file

MARK: Final = "zq7x"
"""In everything secret, and in no log."""

JSON: Final = {"content-type": "application/json"}
SECRET: Final = f"whsec_{base64.b64encode(f'{MARK}-signing-secret-of-the-run'.encode()).decode()}"
PAYLOAD: Final = {"card": f"{MARK}-payload"}


@pytest.fixture
def server() -> Iterator[tuple[EmbeddedPostgres, Path]]:
    """A server that logs as the one in AWS does, but every statement as a slow one; and its log."""
    logged = {name: value for name, value in parameters(DatabaseConfig()).items() if name.startswith("log_")}
    assert logged["log_error_verbosity"] == "terse"  # the embedded server's default, too, but Aurora has to be told
    options = [f"-c {name}={value}" for name, value in (logged | {"log_min_duration_statement": "0"}).items()]
    with TemporaryDirectory(prefix="forbear-logs-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        one = EmbeddedPostgres(Path(folder), durable=False, options=tuple(" ".join(options).split()))
        one.start()
        try:
            bring_up(one.url(), key_file())
            yield one, one.data / "server.log"
        finally:
            one.stop()


@asynccontextmanager
async def logging_to(lines: list[str], url: str) -> AsyncIterator[World]:
    def keep(function: str, line: str) -> None:
        lines.append(f"{function}: {line}")

    async with running(url, on_line=keep) as world:
        yield world


def answered(receipt: Receipt, time: int) -> Answer:
    """By the path: what the endpoint is made for."""
    headers = {"x-answer": f"{MARK}-answer-header", "set-cookie": f"session={MARK}-cookie"}
    if "gone" in receipt.path:
        return 410, headers
    if "fails" in receipt.path:
        return 500, headers
    return (503 if time == 1 else 200), headers


async def ask(world: World, method: str, path: str, content: bytes = b"", **headers: str) -> int:
    """Any request, whatever comes of it. Gives the status."""
    response: httpx.Response = await world.client.request(
        method, f"{world.stack.api_url}{path}", content=content, headers=JSON | headers
    )
    return response.status_code


async def bad_input(world: World) -> list[int]:
    """Requests that are refused, with marks where they are wrong."""
    mark = MARK.encode()
    return [
        await ask(world, "POST", "/v1/events", b'{"tenant":"acme","type":"a","payload":"%s' % mark),
        await ask(world, "POST", "/v1/events", b'{"tenant":"%s !","type":"a b","payload":1}' % mark),
        await ask(world, "POST", "/v1/events", b'{"tenant":"acme","type":"a","payload":1,"%s":2}' % mark),
        await ask(world, "POST", "/v1/events", b'"%s"' % (mark * 400_000)),
        await ask(world, "POST", "/v1/events", b"{}", **{"content-type": f"text/{MARK}"}),
        await ask(world, "POST", "/v1/events/batch", b'{"events":[{"%s":1}]}' % mark),
        await ask(world, "POST", "/v1/endpoints", b'{"tenant":"acme","url":"https://u:%s@x/"}' % mark),
        await ask(world, "POST", "/v1/endpoints", b'{"tenant":"acme","url":"https://x/","secret":"whsec_%s"}' % mark),
        await ask(
            world, "POST", "/v1/endpoints", b'{"tenant":"acme","url":"https://x/","headers":{"a b":"%s"}}' % mark
        ),
        await ask(world, "GET", f"/v1/deliveries?cursor={MARK}&limit=0"),
        await ask(world, "GET", f"/v1/endpoints/{MARK}"),
        await ask(world, "GET", f"/{MARK}?token={MARK}"),
        await ask(world, "POST", "/v1/deliveries/cancel", b'{"deliveries":["%s"]}' % mark),
    ]


async def good_and_bad_ends(world: World) -> None:
    """Deliveries that succeed, are retried, die, cannot be sent, and are replayed."""
    marked: dict[str, Any] = {"headers": {"X-Api-Key": f"{MARK}-header"}, "description": f"{MARK}-description"}
    once: dict[str, Any] = {"policy": {**QUICK, "schedule": {**QUICK["schedule"], "gaps_s": [0.01]}}}

    async def endpoint(path: str, tenant: str, **more: Any) -> dict[str, Any]:
        return await world.endpoint(f"/{path}/{MARK}-path?token={MARK}-query", tenant=tenant, **marked, **more)

    world.receiver.answer = answered
    made = await endpoint("hook", "acme", secret=SECRET)
    event_id = await world.post(PAYLOAD)
    await world.ended(event_id, "delivered")
    await world.call("POST", f"/v1/endpoints/{made['id']}/rotate-secret", {"secret": SECRET[:-4] + "AAAA"})
    await world.call("GET", f"/v1/endpoints/{made['id']}/secret")
    status = await ask(
        world, "POST", "/v1/events", f"{MARK}-raw".encode(),
        **{"forbear-tenant": "acme", "forbear-type": "a.b", "idempotency-key": f"{MARK}-key"},
    )  # fmt: skip
    assert status == 202
    assert 409 == await ask(  # noqa: SIM300 - the call is long
        world, "POST", "/v1/events", f"{MARK}-raw-other".encode(),
        **{"forbear-tenant": "acme", "forbear-type": "a.b", "idempotency-key": f"{MARK}-key"},
    )  # fmt: skip
    for path, tenant in (("gone", "t-gone"), ("fails", "t-fails")):
        await endpoint(path, tenant, **once)
        await world.ended(await world.post(PAYLOAD, tenant=tenant), "dead")
    # No name, nothing listening, no TLS there, and an address that is refused when it is sent to.
    for number, url in enumerate(
        (
            f"https://{MARK}.invalid/{MARK}?{MARK}",
            f"http://127.0.0.1:9/{MARK}?{MARK}",
            world.receiver_url.replace("http:", "https:") + f"/{MARK}?{MARK}",
        )
    ):
        await world.endpoint(tenant=f"t-{number}", **marked, **once)
        (row,) = (await world.call("GET", f"/v1/endpoints?tenant=t-{number}"))["items"]
        await world.call("PATCH", f"/v1/endpoints/{row['id']}", {"url": url})
        await world.ended(await world.post(PAYLOAD, tenant=f"t-{number}"), "dead")
    await world.replay({"filter": {"tenant": "t-fails"}})


async def what_the_database_refuses(world: World, url: str) -> None:
    """Rows that break a constraint which nobody foresaw: of events, of endpoints, of results."""
    await world.endpoint(f"/hook/{MARK}?{MARK}", tenant="t-refused", headers={"X-Api-Key": MARK}, policy=QUICK)
    with psycopg.connect(url, autocommit=True) as connection:
        for table, check in (
            ("events", "type <> 'log.refused'"),
            ("endpoints", "description NOT LIKE '%refused%'"),
            ("history_attempts", "status IS DISTINCT FROM 299"),
        ):
            connection.execute(f"ALTER TABLE forbear.{table} ADD CONSTRAINT unforeseen CHECK ({check}) NOT VALID")
    event = b'{"tenant":"acme","type":"log.refused","payload":"%s"}' % MARK.encode()
    assert await ask(world, "POST", "/v1/events", event) == 500
    batch = b'{"events":[%s]}' % event
    assert await ask(world, "POST", "/v1/events/batch", batch, **{"idempotency-key": MARK}) == 500
    body = b'{"tenant":"acme","url":"https://example.com/%s","description":"refused"}' % MARK.encode()
    assert await ask(world, "POST", "/v1/endpoints", body) == 500
    world.receiver.answer = lambda _receipt, _time: (299, {"x-answer": f"{MARK}-answer-header"})
    await world.post(PAYLOAD, tenant="t-refused")


@pytest.mark.timeout(300)
async def test_no_payload_secret_or_credential_is_logged(
    server: tuple[EmbeddedPostgres, Path], caplog: pytest.LogCaptureFixture
) -> None:
    postgres, database_log = server
    url = postgres.url()
    lines: list[str] = []
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.WARNING, "httpx")  # the test's own client
    async with logging_to(lines, url) as world:
        statuses = await bad_input(world)
        assert set(statuses) <= {207, *range(400, 500)}, statuses
        await good_and_bad_ends(world)
        await what_the_database_refuses(world, url)
        await until(lambda: any("cannot be recorded" in line for line in lines))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename LIKE 'forbear_%'")
        await ask(world, "GET", "/v1/deliveries")
        assert world.receiver.receipts
    logs = {
        "functions": "\n".join(lines),
        "database": database_log.read_text(errors="replace"),
        "stack": caplog.text,
    }
    # The run did log, and what it was to fail on.
    assert "unforeseen error" in logs["functions"]
    assert "unforeseen" in logs["database"]
    assert "duration:" in logs["database"]
    encoded = [MARK, MARK.encode().hex(), *(base64.b64encode(b"_" * n + MARK.encode())[2:-2].decode() for n in (0, 1))]
    leaks = {
        (where, line[:400])
        for where, text in logs.items()
        for line in text.splitlines()
        if any(one in line for one in (*encoded, SECRET))
    }
    assert leaks == set()
