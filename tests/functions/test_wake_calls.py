"""The call that wakes a claimer comes after the commit: whatever becomes of it, the answer is 202, and in time."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg
import pytest

import ingest
from forbear import waking
from forbear.api import MARGIN_S
from forbear.settings import settings
from tests.functions.builders import make_endpoint, one
from tests.functions.conftest import forget
from tests.functions.events import Context, http_event
from tests.functions.gate import Shut, gate

type Connection = psycopg.Connection[tuple[Any, ...]]

BODY = b'{"tenant":"acme","type":"order.paid","payload":{}}'


@pytest.fixture
def lambda_at(handlers: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Ingest calls a claimer at AWS_ENDPOINT_URL_LAMBDA, which a test sets."""
    handlers.setenv("FORBEAR_CLAIMER_FUNCTION", "claimer")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        handlers.setenv(name, "testing")
    handlers.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    forget_clients = waking._client.cache_clear
    forget_clients()
    yield handlers
    forget_clients()


class Lambda:
    """Lambda's Invoke: answers with each of these statuses in turn, and then with 202."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.calls: list[Any] = []

    @contextmanager
    def serving(self) -> Iterator[str]:
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                service.calls.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                self.send_response(service.statuses.pop(0) if service.statuses else 202)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            yield f"http://127.0.0.1:{server.server_port}"
            server.shutdown()


def post(time_s: float = 20.0) -> int:
    """Post an event; the answer comes while there is time."""
    context = Context(time_s)
    answer = ingest.handler(http_event("POST", "/v1/events", body=BODY), context)
    assert context.get_remaining_time_in_millis() > 0
    return int(answer["statusCode"])


def test_a_service_that_does_not_answer_is_asked_once_and_not_waited_for(
    lambda_at: pytest.MonkeyPatch, connection: Connection
) -> None:
    make_endpoint(connection)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        lambda_at.setenv("AWS_ENDPOINT_URL_LAMBDA", f"http://127.0.0.1:{silent.getsockname()[1]}")
        waking.prepare(settings())
        assert post(MARGIN_S + 3) == 202
        silent.settimeout(0.01)
        silent.accept()[0].close()
        with pytest.raises(TimeoutError):
            silent.accept()
    assert one(connection, "SELECT count(*) FROM forbear.events") == 1
    # The next event calls again.
    assert one(connection, "SELECT count(*) FROM forbear.claimers") == 0


def test_a_call_that_is_refused_is_made_again(
    lambda_at: pytest.MonkeyPatch, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "PAUSES_S", (0.0, 0.0))
    make_endpoint(connection)
    service = Lambda(429, 500)
    with service.serving() as url:
        lambda_at.setenv("AWS_ENDPOINT_URL_LAMBDA", url)
        assert post() == 202
    assert service.calls == [{"forbear": "wake"}] * 3
    assert one(connection, "SELECT count(*) FROM forbear.claimers") == 1


def test_what_goes_wrong_after_the_commit_is_not_the_producers_affair(
    lambda_at: pytest.MonkeyPatch, connection: Connection
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of order")

    make_endpoint(connection)
    lambda_at.setattr(ingest, "write", fail)
    lambda_at.setattr(waking, "_client", fail)
    lambda_at.setattr(ingest.database(), "run", run_once(ingest.database().run))
    assert post() == 202
    assert one(connection, "SELECT count(*) FROM forbear.events") == 1


def run_once(run: Any) -> Any:
    """The first unit of work succeeds; all after it fail, as if rights had been taken away."""
    works = iter([run])

    def running(work: Any, *, repeatable: bool) -> Any:
        try:
            return next(works)(work, repeatable=repeatable)
        except StopIteration:
            raise psycopg.errors.InsufficientPrivilege("permission denied") from None

    return running


def test_somebodys_lock_on_the_mark_does_not_hold_back_the_answer(
    lambda_at: pytest.MonkeyPatch, connection: Connection
) -> None:
    """The event is committed, and whether a claimer was called is not known in time: it is called."""
    make_endpoint(connection)
    service = Lambda()
    with service.serving() as url:
        lambda_at.setenv("AWS_ENDPOINT_URL_LAMBDA", url)
        with connection.transaction():
            connection.execute("LOCK forbear.claimers IN ACCESS EXCLUSIVE MODE")
            assert post() == 202
    assert len(service.calls) == 1


def test_while_a_database_wakes_the_call_is_prepared(
    lambda_at: pytest.MonkeyPatch, database_url: str, connection: Connection
) -> None:
    """boto3's import takes a second or two of a small function's time, which passes anyhow."""
    make_endpoint(connection)
    prepared: list[str] = []
    with gate(database_url, Shut.REFUSES) as closed:

        def make_client(service: str) -> None:
            prepared.append(service)
            closed.open()

        lambda_at.setattr(waking, "_client", make_client)
        lambda_at.setenv("FORBEAR_DATABASE_URL", closed.url)
        forget()
        lambda_at.setattr("forbear.waking.invoke_claimer", lambda *_: True)
        assert post() == 202
        forget()
    assert prepared == ["lambda"]
