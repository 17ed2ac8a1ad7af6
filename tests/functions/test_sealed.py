"""Secrets and headers at rest: nobody reads them in the database, and nobody moves them to another endpoint."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import standardwebhooks
from psycopg.sql import SQL, Identifier

import manage
from forbear.sender import Request
from forbear.signing import generate_secret
from tests.functions.builders import make_endpoint, one, post, run
from tests.functions.events import http_event
from tests.functions.manage.calling import ENDPOINT, JSON, call, create, ep_id, ok
from tests.functions.queue.leasing import attempts, endings, fetch
from tests.functions.scripted import Claimer, ScriptedSender, always, answer

type Connection = psycopg.Connection[tuple[Any, ...]]

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
HEADERS = {"authorization": "Bearer t0ps3cretvalue"}
MORE = "an0thersecretvalue"
URL = "https://example.com/"
SWAP = """
    UPDATE forbear.secrets s SET secret = o.secret FROM forbear.secrets o
    WHERE o.endpoint_id <> s.endpoint_id AND s.endpoint_id = ANY (%s) AND o.endpoint_id = ANY (%s)
"""
ALTER = "UPDATE forbear.secrets SET secret = overlay(secret PLACING 'AAAA' FROM 20) WHERE endpoint_id = %s"
ALTER_HEADERS = "UPDATE forbear.endpoints SET headers = overlay(headers PLACING 'AAAA' FROM 20) WHERE id = %s"


@pytest.fixture
def role() -> str:
    return "forbear_manage"


@pytest.fixture
def _manage(handlers: pytest.MonkeyPatch) -> None:
    """The manage function works on this test's database, as its own role."""


def dump(connection: Connection) -> str:
    """All that is in the database's tables, as COPY writes it: binary as hexadecimal digits."""
    tables = "SELECT relname FROM pg_class WHERE relnamespace = 'forbear'::regnamespace AND relkind = 'r'"
    lines = []
    for (table,) in connection.execute(tables).fetchall():
        with connection.cursor().copy(SQL("COPY forbear.{} TO STDOUT").format(Identifier(table))) as rows:
            lines += [bytes(part).decode() for part in rows]
    return "".join(lines)


def traces(value: str, text: str) -> list[str]:
    """What of a value, or of the key that a secret holds, stands in a text in any form that it may have there."""
    forms = [value, value.encode().hex(), base64.b64encode(value.encode()).decode().rstrip("=")[:-1]]
    if value.startswith("whsec_"):
        bare = value.removeprefix("whsec_")
        forms += [bare, base64.b64decode(bare).hex(), base64.b64decode(bare).hex().upper()]
    return [form for form in forms if form in text]


def signed_by(secret: str, request: Request) -> bool:
    """Whether a receiver with this secret takes a request for ours."""
    headers = {name.decode(): value.decode() for name, value in request.headers}
    try:
        standardwebhooks.Webhook(secret).verify(request.body, headers)
    except standardwebhooks.WebhookVerificationError:
        return False
    return True


@pytest.mark.usefixtures("_manage")
class TestNobodyReadsThem:
    def test_in_the_database_after_all_that_happens_to_an_endpoint(
        self, connection: Connection, database_url: str
    ) -> None:
        made = create(secret=SECRET, headers=HEADERS, url=URL)
        rotated = ok(call("POST", f"{ENDPOINT}/rotate-secret", made["id"], body={"secret": OTHER}))
        ok(call("PATCH", ENDPOINT, made["id"], body={"headers": HEADERS | {"x-more": MORE}}))
        generated = ok(call("POST", f"{ENDPOINT}/rotate-secret", made["id"]))["secret"]
        post(connection, b"1", b"2", b"3")
        claimer = Claimer(database_url, ScriptedSender(lambda _, n: answer((500, 200, 404)[n % 3])))
        run(claimer.run())
        lying = dump(connection)
        assert URL in lying
        assert b"webhook-signature: v1,".hex() in lying, "attempts are among it"
        for value in (SECRET, OTHER, generated, HEADERS["authorization"], "t0ps3cretvalue", MORE):
            assert traces(value, lying) == []
        assert rotated["earlier"][0]["secret"] == SECRET, "who asks gets them"
        assert all(signed_by(secret, claimer.sender.requests[0]) for secret in (SECRET, OTHER, generated))

    def test_in_logs_of_ours_or_of_postgres_whatever_fails(
        self, connection: Connection, caplog: pytest.LogCaptureFixture
    ) -> None:
        """Even where PostgreSQL logs each statement, and each that fails, with its parameters."""
        caplog.set_level(logging.DEBUG)
        # The server's log is shared with other tests: what is searched for must be nobody else's.
        first, other, value, more = generate_secret(), generate_secret(), uuid4().hex, uuid4().hex
        database = SQL("ALTER DATABASE {} SET ").format(Identifier(one(connection, "SELECT current_database()")))
        connection.execute(database + SQL("log_min_duration_statement = 0"))
        connection.execute(database + SQL("log_parameter_max_length_on_error = -1"))
        connection.execute(database + SQL("log_error_verbosity = 'default'"))
        made = create(secret=first, headers={"x-own": value})
        connection.execute("ALTER TABLE forbear.secrets ADD CHECK (created_at < '2000-01-01') NOT VALID")
        connection.execute("ALTER TABLE forbear.endpoints ADD CHECK (description <> 'fail') NOT VALID")
        for method, template, body in (
            ("POST", "/v1/endpoints", {"tenant": "acme", "url": URL, "secret": other, "headers": {"x-own": value}}),
            ("POST", f"{ENDPOINT}/rotate-secret", {"secret": other}),
            ("PATCH", ENDPOINT, {"description": "fail", "headers": {"x-own": more}}),
        ):
            content = json.dumps(body).encode()
            request = http_event(method, template, path={"id": made["id"]}, headers=JSON, body=content)
            assert manage.handler(request, None)["statusCode"] == 500
        assert caplog.text.count("violates check constraint") >= 3
        log = (Path(one(connection, "SHOW data_directory")) / "server.log").read_text(errors="replace")
        assert str(ep_id(made["id"])) in log, "parameters are"
        for kept in (first, other, value, more):
            assert traces(kept, caplog.text) == []
            assert traces(kept, log) == []

    def test_for_an_endpoint_without_headers_nothing_is_sealed(self, connection: Connection) -> None:
        made = create()
        assert one(connection, "SELECT headers FROM forbear.endpoints") is None
        ok(call("PATCH", ENDPOINT, made["id"], body={"headers": HEADERS}))
        assert one(connection, "SELECT headers FROM forbear.endpoints") is not None
        assert ok(call("PATCH", ENDPOINT, made["id"], body={"headers": None}))["headers"] == {}
        assert one(connection, "SELECT headers FROM forbear.endpoints") is None


class TestNobodyMovesThem:
    def test_two_endpoints_with_each_others_secrets_sign_nothing(
        self, connection: Connection, database_url: str
    ) -> None:
        """Otherwise who can write to the database has what his own endpoint gets signed for somebody else's."""
        both = [make_endpoint(connection, secret=secret) for secret in (SECRET, OTHER)]
        make_endpoint(connection, tenant="other", secret=SECRET)
        connection.execute(SWAP, (both, both))
        post(connection, b"{}")
        post(connection, b"{}", tenant="other")
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert endings(connection) == {"unsendable": 2, "delivered": 1}
        (request,) = claimer.sender.requests
        assert signed_by(SECRET, request)
        dead = connection.execute("SELECT id, endpoint_id FROM forbear.history WHERE state = 'dead'").fetchall()
        assert {endpoint_id for _, endpoint_id in dead} == set(both)
        for delivery_id, _ in dead:
            (attempt,) = attempts(connection, delivery_id)
            why = "it was altered, or belongs to something else"
            assert attempt.error_detail == f"the endpoint's signing secret cannot be opened ({why}): rotate it"

    def test_a_secret_is_no_headers(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection)
        connection.execute("UPDATE forbear.endpoints SET headers = (SELECT secret FROM forbear.secrets)")
        post(connection, b"1")
        run(Claimer(database_url, always(200)).run())
        (attempt,) = attempts(connection, fetch(connection, "SELECT id FROM forbear.history").id)
        assert attempt.error_detail.endswith("set them anew")

    @pytest.mark.usefixtures("_manage")
    def test_a_rotation_mends_an_altered_secret_at_once(self, connection: Connection, database_url: str) -> None:
        """It does not stay for 24 hours: it could sign nothing, and nothing could be sent."""
        made, fine = create(url=URL), create(tenant="other", url=URL)
        connection.execute(ALTER, (ep_id(made["id"]),))
        shown = call("GET", f"{ENDPOINT}/secret", made["id"])
        assert shown.status == 409
        assert shown.detail == "a secret of the endpoint cannot be opened, it was altered: rotate it"
        ok(call("GET", f"{ENDPOINT}/secret", fine["id"]))
        rotated = ok(call("POST", f"{ENDPOINT}/rotate-secret", made["id"], body={"secret": SECRET}))
        assert (rotated["secret"], rotated["earlier"]) == (SECRET, [])
        assert ok(call("GET", f"{ENDPOINT}/secret", made["id"])) == rotated
        post(connection, b"{}")
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert [signed_by(SECRET, request) for request in claimer.sender.requests] == [True]

    @pytest.mark.usefixtures("_manage")
    def test_altered_headers_hide_no_endpoint_and_are_mended_by_new_ones(
        self, connection: Connection, database_url: str
    ) -> None:
        made, fine = create(headers=HEADERS, url=URL), create(headers={"x-fine": "1"}, url=URL)
        connection.execute(ALTER_HEADERS, (ep_id(made["id"]),))
        page = ok(call("GET", "/v1/endpoints"))["items"]
        assert {item["id"]: item["headers"] for item in page} == {made["id"]: None, fine["id"]: {"x-fine": "1"}}
        assert ok(call("GET", ENDPOINT, made["id"]))["headers"] is None
        assert ok(call("PATCH", ENDPOINT, made["id"], body={"description": "seen"}))["headers"] is None
        assert ok(call("PATCH", ENDPOINT, made["id"], body={"headers": HEADERS}))["headers"] == HEADERS
        post(connection, b"1")
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        own = [name for request in claimer.sender.requests for name, _ in request.headers]
        assert (own.count(b"authorization"), own.count(b"x-fine")) == (1, 1)
