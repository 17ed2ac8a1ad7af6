"""API keys: how they are presented, what they cost, and that they end at once and leave no trace."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

import manage
from forbear import access, vault
from forbear.api import respond
from forbear.ids import Prefix, encode
from forbear.settings import settings
from tests.conftest import Connection
from tests.functions.access.asking import Answer, Request, ask
from tests.functions.builders import make_endpoint, move_clock, one
from tests.functions.conftest import forget
from tests.functions.events import IAM, http_event
from tests.functions.keys import KeyMaker
from tests.functions.wire import SYNC, Wire, wire

EVENT = {"tenant": "acme", "type": "order.paid", "payload": {}}
POST, BATCH = "POST /v1/events", "POST /v1/events/batch"
LIST = "GET /v1/endpoints"
NONE = UUID(int=1)


def post(token: str | None, *, tenant: str = "acme") -> Answer:
    return ask(POST, Request(body={**EVENT, "tenant": tenant}), token=token)


def events(connection: Connection) -> int:
    return int(one(connection, "SELECT count(*) FROM forbear.events"))


def created(**given: Any) -> Any:
    """Make a key by the API, as somebody whom the gateway admitted."""
    answer = ask("POST /v1/keys", Request(body={"name": "shop", "scopes": ["ingest"], **given}), signed=True)
    assert answer.status == 201, answer
    return answer.body


def revoke(key_id: str) -> None:
    assert ask("DELETE /v1/keys/{id}", Request({"id": key_id}), signed=True).status == 204


# --- the life of a key


def test_a_key_is_shown_once_and_works_until_it_is_revoked(connection: Connection) -> None:
    made = created()
    assert post(made["token"]).status == 202
    (listed,) = ask("GET /v1/keys", Request(), signed=True).body["items"]
    assert listed == {name: value for name, value in made.items() if name != "token"}
    revoke(made["id"])
    assert post(made["token"]).status == 401
    assert events(connection) == 1
    (listed,) = ask("GET /v1/keys", Request(), signed=True).body["items"]
    first = listed["revoked_at"]
    assert first is not None
    revoke(made["id"])
    assert ask("GET /v1/keys", Request(), signed=True).body["items"][0]["revoked_at"] == first


def test_the_answer_that_shows_a_key_is_kept_by_nobody() -> None:
    answer = ask("POST /v1/keys", Request(body={"name": "shop", "scopes": ["read"]}), signed=True)
    assert answer.headers["cache-control"] == "no-store"


def test_the_database_has_nothing_that_a_key_could_be_made_from(connection: Connection) -> None:
    token = created()["token"]
    rows = str(connection.execute("SELECT k::text FROM forbear.api_keys k").fetchall())
    assert token not in rows
    assert token[30:60] not in rows


def test_a_key_ends_at_its_time_by_forbears_clock(connection: Connection) -> None:
    at = one(connection, "SELECT forbear.now()") + timedelta(hours=1)
    token = created(expires_at=at.isoformat())["token"]
    assert post(token).status == 202
    move_clock(connection, minutes=61)
    assert post(token).status == 401


def test_a_key_that_has_expired_already_is_not_made(connection: Connection) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC).isoformat()
    answer = ask("POST /v1/keys", Request(body={"name": "x", "scopes": ["read"], "expires_at": past}), signed=True)
    assert answer.status == 422
    assert answer.body["errors"][0]["field"] == "expires_at"
    assert one(connection, "SELECT count(*) FROM forbear.api_keys") == 0


@pytest.mark.parametrize(
    "given",
    [
        {"scopes": []},
        {"scopes": ["admin"]},
        {"scopes": "read"},
        {"name": ""},
        {"name": "a\0b"},
        {"name": "x" * 101},
        {"tenant": "a b"},
        {"tenant": ""},
        {"expires_at": 1},
        {"token": "fbk_mine"},
        {"id": "key_01h455vb4pex5vsknk084sn02q"},
    ],
)
def test_a_wrong_order_for_a_key_is_told_what_is_wrong(given: dict[str, Any], connection: Connection) -> None:
    answer = ask("POST /v1/keys", Request(body={"name": "shop", "scopes": ["read"], **given}), signed=True)
    assert answer.status == 422, answer
    assert one(connection, "SELECT count(*) FROM forbear.api_keys") == 0


def test_scopes_are_a_set() -> None:
    assert created(scopes=["read", "ingest", "read"])["scopes"] == ["ingest", "read"]


def test_keys_are_listed_the_newest_first_page_by_page_and_by_tenant() -> None:
    made = [created(name=str(number), tenant="a" if number % 2 else None)["id"] for number in range(5)]
    seen, cursor = [], None
    while True:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = ask("GET /v1/keys", Request(query=query), signed=True).body
        seen += [item["id"] for item in page["items"]]
        cursor = page["next"]
        if cursor is None:
            break
    assert seen == made[::-1]
    bound = ask("GET /v1/keys", Request(query={"tenant": "a"}), signed=True).body["items"]
    assert [item["id"] for item in bound] == [made[3], made[1]]


@pytest.mark.parametrize("key_id", [encode(Prefix.API_KEY, NONE), "key_x", "fbk_x", encode(Prefix.EVENT, NONE)])
def test_a_key_that_is_not_there_cannot_be_revoked(key_id: str) -> None:
    assert ask("DELETE /v1/keys/{id}", Request({"id": key_id}), signed=True).status == 404


# --- how it is presented


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
def test_the_scheme_is_written_in_any_case(scheme: str, keys: KeyMaker) -> None:
    token = keys.make("read")
    assert ask(LIST, Request(headers={"authorization": f"{scheme} {token}"})).status == 200


@pytest.mark.parametrize(
    "form",
    [
        "{}",
        "Basic {}",
        "Token {}",
        "Bearer {},Bearer {}",
        "Bearer {} x",
        "Bearer {}\n",
        "Bearer",
        "Bearer ",
        "",
        "AWS4-HMAC-SHA256 Credential=x/20300101/r/execute-api/aws4_request",
        "Bearer eyJhbGciOiJub25lIn0.e30.",
        "Bearer fbk_" + "A" * 76,
        "Bearer fbk_" + "\u0665" * 76,
    ],
)
def test_what_is_not_a_key_in_its_place_lets_nobody_in(form: str, keys: KeyMaker) -> None:
    answer = ask(LIST, Request(headers={"authorization": form.replace("{}", keys.make("read"))}))
    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("place", ["query", "header", "cookie", "body"])
def test_a_key_elsewhere_is_none(place: str, keys: KeyMaker) -> None:
    token = keys.make("read", "ingest")
    request = {
        "query": Request(query={"api_key": token, "access_token": token, "authorization": f"Bearer {token}"}),
        "header": Request(headers={"x-api-key": token, "proxy-authorization": f"Bearer {token}"}),
        "cookie": Request(headers={"cookie": f"authorization=Bearer {token}"}),
        "body": Request(body={"access_token": token}),
    }[place]
    assert ask(LIST, request).status == 401


def test_a_key_is_checked_even_where_the_gateway_vouches_for_the_caller(keys: KeyMaker) -> None:
    """Who sends a key means to be no more than it."""
    assert ask(LIST, Request(), token=keys.forged(), signed=True).status == 401
    assert ask(LIST, Request(), token=keys.make("ingest"), signed=True).status == 403


def test_every_bad_key_gets_the_same_answer(connection: Connection, keys: KeyMaker) -> None:
    """Whether a key was ever there is nobody's business."""
    known = uuid4()
    good = keys.make("read", key_id=known)
    bad = [
        good[:-1],
        good + "A",
        "fbk_",
        keys.forged(),
        keys.unknown(),
        keys.unknown(known),
        keys.make("read", revoked=True),
        keys.make("read", expires_at=one(connection, "SELECT forbear.now()")),
    ]
    answers = {(answer.status, answer.text) for answer in (ask(LIST, Request(), token=token) for token in bad)}
    assert len(answers) == 1
    ((status, text),) = answers
    assert status == 401
    assert "not valid" in text
    assert {answer.text for answer in (post(token) for token in bad)} == {text}


def test_a_key_that_lacks_a_scope_is_told_which(keys: KeyMaker) -> None:
    answer = ask(LIST, Request(), token=keys.make("ingest", "replay"))
    assert answer.status == 403
    assert "lacks the scope read" in answer.body["detail"]
    assert answer.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="read"'
    answer = post(keys.make("read"))
    assert "lacks the scope ingest" in answer.body["detail"]


def test_manage_reads_too_and_no_scope_does_another_ones(keys: KeyMaker) -> None:
    assert ask(LIST, Request(), token=keys.make("manage")).status == 200
    assert ask("GET /v1/replays", Request(), token=keys.make("manage", "read", "ingest")).status == 403


# --- ingest


def test_a_batch_stores_what_is_the_keys_tenants_and_refuses_the_rest_for_itself(
    connection: Connection, keys: KeyMaker
) -> None:
    entries = [{**EVENT, "tenant": tenant} for tenant in ("acme", "other", "acme", "third")]
    entries.insert(1, {"tenant": "acme"})
    answer = ask(BATCH, Request(body={"events": entries}), token=keys.make("ingest", tenant="acme"))
    assert answer.status == 207
    results = answer.body["results"]
    assert [result["status"] for result in results] == [202, 422, 403, 202, 403]
    assert "for the tenant acme" in results[2]["detail"]
    assert connection.execute("SELECT tenant, count(*) FROM forbear.events GROUP BY 1").fetchall() == [("acme", 2)]


def test_a_batch_with_nothing_to_store_is_checked_all_the_same(keys: KeyMaker) -> None:
    body = {"events": [{"tenant": "acme"}]}
    assert ask(BATCH, Request(body=body), token=keys.make("ingest")).status == 207
    assert ask(BATCH, Request(body=body), token=keys.make("ingest", revoked=True)).status == 401
    assert ask(BATCH, Request(body=body), token=keys.make("read")).status == 403


def test_a_raw_event_is_held_to_the_keys_tenant(connection: Connection, keys: KeyMaker) -> None:
    token = keys.make("ingest", tenant="acme")
    raw = {"forbear-type": "order.paid", "content-type": "text/plain"}
    asked = {
        tenant: ask(POST, Request(headers={**raw, "forbear-tenant": tenant}, body=b"hello"), token=token).status
        for tenant in ("acme", "other")
    }
    assert asked == {"acme": 202, "other": 403}
    assert one(connection, "SELECT array_agg(tenant) FROM forbear.events") == ["acme"]


def test_an_idempotency_key_of_another_tenant_tells_nothing(keys: KeyMaker) -> None:
    """A refused event neither takes a key nor shows that there is one."""
    named = Request(body={**EVENT, "tenant": "other", "id": "k"})
    free = Request(body={**EVENT, "tenant": "other", "id": "free"})
    assert ask(POST, named, signed=True).status == 202
    token = keys.make("ingest", tenant="acme")
    assert ask(POST, named, token=token) == ask(POST, free, token=token)
    assert ask(POST, free, signed=True).body["duplicate"] is False


class Line:
    """The ingest function behind a line that a test can watch, with its data key read."""

    def __init__(self, proxy: Wire, keys: KeyMaker) -> None:
        self.wire = proxy
        assert post(keys.make("ingest")).status == 202
        proxy.watch()

    def executed(self) -> tuple[int, set[bytes]]:
        """How many statements went out before the first wait for an answer, and what kinds of message after it."""
        kinds = [kind for kind, _ in self.wire.sent]
        end = kinds.index(SYNC) + 1
        assert {answered for _, answered in self.wire.sent[:end]} == {0}
        return kinds[:end].count(b"E"), set(kinds[end:]) - {b"H"}  # a Flush asks for nothing


@pytest.fixture
def line(url_of: Callable[[str], str], functions: pytest.MonkeyPatch, keys: KeyMaker) -> Iterator[Line]:
    with wire(url_of("forbear_ingest")) as (proxy, url):
        functions.setenv("FORBEAR_DATABASE_URL", url)
        forget()
        yield Line(proxy, keys)
        forget()


@pytest.mark.parametrize("tenant", [None, "acme"])
@pytest.mark.parametrize("route", [POST, BATCH])
def test_ingest_with_a_key_is_one_round_trip_with_one_statement_more(
    line: Line, keys: KeyMaker, route: str, tenant: str | None
) -> None:
    token = keys.make("ingest", tenant=tenant)
    line.wire.hold_answers = True
    body = EVENT if route == POST else {"events": [EVENT] * 50}
    assert ask(route, Request(body=body), token=token).status in {202, 207}
    assert line.executed() == (5, set()), "BEGIN, the check, the statement, COMMIT, the question"


def test_ingest_without_a_key_is_as_it_was(line: Line) -> None:
    line.wire.hold_answers = True
    assert ask(POST, Request(body=EVENT), signed=True).status == 202
    assert line.executed() == (4, set())


def test_ingest_without_a_key_loads_nothing_for_keys(url_of: Callable[[str], str]) -> None:
    """No data key, and nothing of what it takes to unwrap one."""
    event = http_event("POST", "/v1/events", body=json.dumps(EVENT).encode())
    script = f"import sys, ingest; print(ingest.handler({event!r}, None)['statusCode'], *sys.modules)"
    done = subprocess.run(  # noqa: S603 - our own interpreter and script
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={"FORBEAR_DATABASE_URL": url_of("forbear_ingest")},
    )
    status, *loaded = done.stdout.split()
    assert status == "202"
    assert not {"boto3", "botocore.session", "cryptography"} & set(loaded)


def test_a_refused_key_stores_nothing_and_the_connection_goes_on(
    connection: Connection, line: Line, keys: KeyMaker
) -> None:
    line.wire.hold_answers = True
    before = events(connection)
    assert post(keys.unknown()).status == 401
    assert line.executed() == (5, {b"Q"}), "the same five, and a rollback"
    assert events(connection) == before
    assert post(keys.make("ingest")).status == 202


def test_a_made_up_key_costs_no_database(line: Line, keys: KeyMaker) -> None:
    for token in (keys.forged(), "fbk_" + "A" * 76, "fbk_x"):
        assert post(token).status == 401
        assert ask(BATCH, Request(body={"events": [EVENT]}), token=token).status == 401
    assert line.wire.sent == []


# --- revocation


def test_a_key_that_was_revoked_is_refused_by_the_very_next_request(keys: KeyMaker) -> None:
    """Whichever function saw it before, nobody remembers that it was good."""
    made = created(scopes=["ingest", "read", "replay"])
    routes = {POST: Request(body=EVENT), LIST: Request(), "GET /v1/replays": Request()}
    for route, request in routes.items():
        assert ask(route, request, token=made["token"]).status in {200, 202}
    revoke(made["id"])
    for route, request in routes.items():
        assert ask(route, request, token=made["token"]).status == 401


# --- the data key


@pytest.mark.parametrize("trouble", ["no setting", "no file", "another file", "no data key"])
def test_without_the_data_key_only_who_sends_a_key_is_told_to_wait(
    trouble: str, functions: pytest.MonkeyPatch, connection: Connection, keys: KeyMaker, tmp_path: Path
) -> None:
    token = keys.make("ingest", "read")
    match trouble:
        case "no setting":
            functions.delenv("FORBEAR_KEY")
        case "no file":
            functions.setenv("FORBEAR_KEY", str(tmp_path / "none"))
        case "another file":
            vault.make_key_file(tmp_path / "another")
            functions.setenv("FORBEAR_KEY", str(tmp_path / "another"))
        case "no data key":
            connection.execute("DELETE FROM forbear.data_keys")
    settings.cache_clear()
    access.keyring.cache_clear()
    for answer in (post(token), ask(LIST, Request(), token=token)):
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        assert "nothing was done" in answer.body["detail"]
    assert ask("POST /v1/keys", Request(body={"name": "x", "scopes": ["read"]}), signed=True).status == 503
    assert events(connection) == 0
    assert ask(POST, Request(body=EVENT), signed=True).status == 202
    assert ask(LIST, Request(), signed=True).status == 200
    assert post(None).status == 401


def test_the_data_key_is_read_once(keys: KeyMaker, functions: pytest.MonkeyPatch) -> None:
    token, unwrapped = keys.make("ingest"), []
    real = vault.FileWrapping.unwrap

    def counted(self: vault.FileWrapping, wrapped: bytes, purpose: vault.Purpose) -> bytes:
        unwrapped.append(purpose)
        return real(self, wrapped, purpose)

    functions.setattr(vault.FileWrapping, "unwrap", counted)
    access.keyring.cache_clear()
    assert [post(token).status for _ in range(3)] == [202] * 3
    assert unwrapped == [vault.Purpose.API_KEYS]


# --- traces


def test_no_key_is_in_logs_or_answers(
    keys: KeyMaker,
    connection: Connection,
    functions: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Whatever goes wrong: what was sent, and what the database is told, says nothing of the key."""
    caplog.set_level(logging.DEBUG)
    make_endpoint(connection, tenant="acme")
    tokens = [
        *(keys.make("ingest", "read", "manage"), keys.make("ingest", tenant="other"), keys.forged()),
        *(keys.unknown(), keys.make("read", revoked=True), keys.make("read")[:-1]),
    ]
    answers = []

    def ask_all() -> None:
        for token in tokens:
            answers.append(post(token).text)
            answers.append(ask(LIST, Request(), token=token).text)
            answers.append(ask("POST /v1/keys", Request(body=b"{"), token=token).text)

    ask_all()

    def broken(*_: object) -> Any:
        raise psycopg.errors.InternalError_("something else")

    functions.setattr("forbear.intake.commit_and_ask", broken)
    functions.setattr("forbear.manage.endpoints.EndpointPage", broken)
    ask_all()
    functions.setattr("forbear.access.keyring", lambda *_: (_ for _ in ()).throw(vault.KeyUnavailable("no key")))
    ask_all()
    out, err = capfd.readouterr()
    seen = "\n".join([caplog.text, out, err, json.dumps(answers)])
    assert "unforeseen error" in seen
    assert "encryption key unavailable" in seen
    for token in tokens:
        assert token not in seen
        assert token[4:60] not in seen


def test_a_route_without_a_rule_answers_nobody() -> None:
    """Whoever vouches for the caller."""
    event = {"requestContext": {"http": {"method": "GET"}, "authorizer": {"iam": IAM}}, "routeKey": "GET /v1/unruled"}
    answer = respond(event, {"GET /v1/unruled": manage.health}, None, manage.database)
    assert answer["statusCode"] == 500


@pytest.mark.parametrize(
    "authorizer",
    [None, {}, {"lambda": None}, {"iam": None}, {"jwt": None}, {"iam": {}}, {"lambda": {"principalId": "somebody"}}],
)
def test_an_event_that_names_nobody_was_admitted_by_nobody(authorizer: dict[str, Any] | None) -> None:
    """As events of routes without an authorizer look: the field is there, and holds no one."""
    assert listed_by(authorizer) == 401


@pytest.mark.parametrize("authorizer", [{"iam": IAM}, {"jwt": {"claims": {"sub": "somebody"}, "scopes": None}}])
def test_whom_the_gateway_names_it_has_admitted(authorizer: dict[str, Any]) -> None:
    assert listed_by(authorizer) == 200


def listed_by(authorizer: dict[str, Any] | None) -> int:
    """The status of a request with this in its event."""
    event = http_event("GET", "/v1/endpoints", signed=False)
    event["requestContext"]["authorizer"] = authorizer
    return int(manage.handler(event, None)["statusCode"])


def test_a_key_reads_the_names_of_custom_headers_and_no_value(connection: Connection, keys: KeyMaker) -> None:
    """They may be credentials for the receiver; whom the gateway admits sees them."""
    endpoint_id = encode(Prefix.ENDPOINT, make_endpoint(connection, headers={"x-token": "s3cret"}))
    token = keys.make("manage")
    for route, request in ((LIST, Request()), ("GET /v1/endpoints/{id}", Request({"id": endpoint_id}))):
        for caller, shown in ({"token": token}, "***"), ({"signed": True}, "s3cret"):
            body = ask(route, request, **caller).body
            assert body.get("items", [body])[0]["headers"] == {"x-token": shown}


@pytest.mark.parametrize("written", ['Bearer "{}"', "Bearer\t{}", "{}", "Token {}", "Bearer: {}", "Bearer Bearer {}"])
def test_a_key_that_is_written_wrongly_is_no_way_in_where_nobody_is_asked(
    functions: pytest.MonkeyPatch, keys: KeyMaker, written: str
) -> None:
    """What would be refused in AWS is refused on one machine, too."""
    functions.setenv("FORBEAR_OPEN", "true")
    settings.cache_clear()
    headers = {"authorization": written.format(keys.make("ingest"))}
    event = http_event("GET", "/v1/endpoints", headers=headers, signed=False)
    assert manage.handler(event, None)["statusCode"] == 401


def test_a_key_in_place_of_its_id_is_not_shown_back(keys: KeyMaker) -> None:
    token = keys.make("ingest")
    answer = ask("DELETE /v1/keys/{id}", Request({"id": token}), signed=True)
    assert (answer.status, token[:20] in str(answer)) == (404, False)
