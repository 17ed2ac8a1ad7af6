"""Every operation, tried by every kind of caller, on one tenant's things and on another's.

The table says what must come of it; nothing in it is derived from the rules that the code goes by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from forbear.ids import Prefix, encode
from forbear.routes import ROUTES
from forbear.settings import settings
from tests.conftest import Connection
from tests.functions.access.asking import URL, Answer, Request, ask
from tests.functions.builders import make_endpoint, one, post
from tests.functions.finished import make_finished
from tests.functions.keys import KeyMaker

OURS, THEIRS = "ours", "theirs"
SCOPES = ("ingest", "manage", "read", "replay")
PAST = datetime(2020, 1, 1, tzinfo=UTC)
SOON = (datetime.now(UTC) + timedelta(days=1)).isoformat()


@dataclass(frozen=True)
class Things:
    """What a tenant has: ids as they are shown."""

    tenant: str
    endpoint: str
    event: str
    pending: str
    dead: str
    replay: str
    key: str

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.endpoint, self.event, self.pending, self.dead, self.replay, self.key)


@dataclass(frozen=True)
class Row:
    """What must come of a route.

    Attributes:
        keys: the scopes whose keys may; ANY, NONE or EVERYBODY instead.
        other: what a key of one tenant is told about another's things: 404 as if there were none; 403; SHORT, the list
            is without them; SAME, they are nobody's.
        ok: the status of success.
        changes: whether it changes the database.
        request: what is asked, about a tenant's things.
        own: what a key of one tenant is told about its own things, if not the same as a key of all.
    """

    keys: tuple[str, ...]
    other: int | str
    ok: int
    changes: bool
    request: Callable[[Things], Request]
    own: int | None = None


ANY, NONE, EVERYBODY = ("any",), ("none",), ("everybody",)
SHORT, SAME = "short", "same"
READ, MANAGE, INGEST, REPLAY = ("read", "manage"), ("manage",), ("ingest",), ("replay",)


def event(things: Things) -> dict[str, Any]:
    return {"tenant": things.tenant, "type": "order.paid", "payload": 1}


def nothing(_: Things) -> Request:
    return Request()


def endpoint(things: Things) -> Request:
    return Request({"id": things.endpoint})


def patch(things: Things) -> Request:
    return Request({"id": things.endpoint}, body={"description": "changed"})


def tenant(things: Things) -> Request:
    return Request({"tenant": things.tenant})


def backfill(things: Things) -> Request:
    return Request({"id": things.endpoint}, body={"since": "2024-01-01T00:00:00Z"})


def new_endpoint(things: Things) -> Request:
    return Request(body={"tenant": things.tenant, "url": "https://example.com/"})


def replay_one(things: Things) -> Request:
    return Request(body={"deliveries": [things.dead]})


def which_replay(things: Things) -> Request:
    return Request(query={"id": things.replay})


TABLE = {
    "POST /v1/events": Row(INGEST, 403, 202, True, lambda things: Request(body=event(things))),
    "POST /v1/events/batch": Row(INGEST, SHORT, 207, True, lambda things: Request(body={"events": [event(things)]})),
    "GET /v1/events": Row(READ, SHORT, 200, False, nothing),
    "GET /v1/events/{id}": Row(READ, 404, 200, False, lambda things: Request({"id": things.event})),
    "POST /v1/endpoints": Row(MANAGE, 403, 201, True, new_endpoint),
    "GET /v1/endpoints": Row(READ, SHORT, 200, False, nothing),
    "GET /v1/endpoints/{id}": Row(READ, 404, 200, False, endpoint),
    "PATCH /v1/endpoints/{id}": Row(MANAGE, 404, 200, True, patch),
    "DELETE /v1/endpoints/{id}": Row(MANAGE, 404, 204, True, endpoint),
    "POST /v1/endpoints/{id}/pause": Row(MANAGE, 404, 200, True, endpoint),
    "POST /v1/endpoints/{id}/resume": Row(MANAGE, 404, 200, True, endpoint),
    "POST /v1/endpoints/{id}/enable": Row(MANAGE, 404, 200, True, endpoint),
    "POST /v1/endpoints/{id}/reset-breaker": Row(MANAGE, 404, 200, True, endpoint),
    "POST /v1/endpoints/{id}/rotate-secret": Row(MANAGE, 404, 200, True, endpoint),
    "POST /v1/endpoints/{id}/test": Row(MANAGE, 404, 202, True, endpoint),
    "POST /v1/endpoints/{id}/backfill": Row(REPLAY, 404, 202, True, backfill),
    "GET /v1/endpoints/{id}/secret": Row(MANAGE, 404, 200, False, endpoint),
    "GET /v1/presets": Row(ANY, SAME, 200, False, nothing),
    "POST /v1/tenants/{tenant}/pause": Row(MANAGE, 403, 200, True, tenant),
    "POST /v1/tenants/{tenant}/resume": Row(MANAGE, 403, 200, True, tenant),
    "POST /v1/pause": Row(MANAGE, 403, 200, True, nothing, own=403),
    "POST /v1/resume": Row(MANAGE, 403, 200, True, nothing, own=403),
    "GET /v1/deliveries": Row(READ, SHORT, 200, False, nothing),
    "GET /v1/deliveries/{id}": Row(READ, 404, 200, False, lambda things: Request({"id": things.dead})),
    "POST /v1/deliveries/cancel": Row(
        MANAGE, 404, 200, True, lambda things: Request(body={"deliveries": [things.pending]})
    ),
    "POST /v1/keys": Row(NONE, 403, 201, True, lambda _: Request(body={"name": "x", "scopes": ["read"]})),
    "GET /v1/keys": Row(NONE, 403, 200, False, nothing),
    "DELETE /v1/keys/{id}": Row(NONE, 403, 204, True, lambda things: Request({"id": things.key})),
    "GET /v1/health": Row(EVERYBODY, SAME, 200, False, nothing),
    "GET /v1/openapi.json": Row(ANY, SAME, 200, False, nothing),
    "POST /v1/replays": Row(REPLAY, 404, 202, True, replay_one),
    "GET /v1/replays": Row(REPLAY, 404, 200, False, which_replay),
    "DELETE /v1/replays": Row(REPLAY, 404, 200, True, which_replay),
    f"{URL} POST": Row(NONE, 403, 202, True, replay_one),
    f"{URL} GET": Row(NONE, 403, 200, False, which_replay),
    f"{URL} DELETE": Row(NONE, 403, 200, True, which_replay),
}


@dataclass(frozen=True)
class Caller:
    """A kind of caller. `scope`: of its key, if that is valid. `bound`: whether that is a key of OURS only."""

    name: str
    token: str | None = None
    signed: bool = False
    open: bool = False
    scope: str | None = None
    bound: bool = False

    def may(self, row: Row) -> bool:
        """Whether it may call a route, whomever it is about."""
        if row.keys == EVERYBODY or self.signed or (self.open and self.token is None):
            return True
        return self.scope is not None and (row.keys == ANY or self.scope in row.keys)

    def verdict(self, row: Row, about: Things) -> int | str:
        """What must come of its call: a status, or SHORT."""
        if not self.may(row):
            return 401 if self.scope is None else 403
        if not self.bound or row.other == SAME:
            return row.ok
        if about.tenant == OURS:
            return row.own or row.ok
        return row.other


def make_callers(keys: KeyMaker) -> list[Caller]:
    known = uuid4()
    keys.make(*SCOPES, key_id=known)
    whole = keys.make(*SCOPES)
    return [
        Caller("signed", signed=True),
        Caller("of an open stack", open=True),
        Caller("nobody"),
        Caller("malformed key", whole[:-1]),
        Caller("forged key", keys.forged()),
        Caller("unknown key", keys.unknown()),
        Caller("another secret for a known key", keys.unknown(known)),
        Caller("revoked key", keys.make(*SCOPES, revoked=True)),
        Caller("expired key", keys.make(*SCOPES, expires_at=PAST)),
        Caller("malformed key at an open stack", f"{whole}a", open=True),
        Caller("read key at an open stack", keys.make("read"), open=True, scope="read"),
        *(Caller(f"{scope} key", keys.make(scope), scope=scope) for scope in SCOPES),
        *(Caller(f"{scope} key of {OURS}", keys.make(scope, tenant=OURS), scope=scope, bound=True) for scope in SCOPES),
    ]


def make_things(connection: Connection, keys: KeyMaker, tenant: str) -> Things:
    """Things of a tenant on which every operation has something to do; nothing is paused, and no claimer is called."""
    connection.execute("DELETE FROM forbear.claimers")
    connection.execute("UPDATE forbear.control SET paused_at = NULL")
    connection.execute("UPDATE forbear.tenants SET paused_at = NULL")
    endpoint_id = make_endpoint(connection, tenant=tenant)
    (event_id,) = post(connection, b"1", tenant=tenant)
    pending = one(
        connection, "SELECT id FROM forbear.queue WHERE event_id = %s AND endpoint_id = %s", event_id, endpoint_id
    )
    (dead,) = make_finished(connection, endpoint_id, 1, state="dead", reason="exhausted")
    # Disabled and behind an open breaker: whatever ends one of these has an effect. Resuming calls a claimer.
    connection.execute(
        "UPDATE forbear.lanes SET disabled_at = forbear.now(), disabled_reason = 'x',"
        " breaker_state = 'open', breaker_until = forbear.now() + interval '1 day' WHERE endpoint_id = %s",
        (endpoint_id,),
    )
    replay_id = one(
        connection,
        "INSERT INTO forbear.replays (kind, tenant, endpoint_id, status, step_at)"
        " VALUES ('replay', %s, %s, 'delivered', forbear.now() + interval '1 day') RETURNING id",
        tenant,
        endpoint_id,
    )
    key_id = one(connection, "SELECT forbear.new_id()")
    keys.make("read", key_id=key_id, tenant=tenant)
    return Things(
        tenant,
        encode(Prefix.ENDPOINT, endpoint_id),
        encode(Prefix.EVENT, event_id),
        encode(Prefix.DELIVERY, pending),
        encode(Prefix.DELIVERY, dead),
        encode(Prefix.REPLAY, replay_id),
        encode(Prefix.API_KEY, key_id),
    )


def everything(connection: Connection) -> list[tuple[str, str]]:
    """All rows of all tables, each table as a hash."""
    tables = [
        row[0]
        for row in connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'forbear'::regnamespace"
            " AND relkind IN ('r', 'p') AND NOT relispartition"
        )
    ]
    parts = (
        f"SELECT '{table}', md5(coalesce(string_agg(t::text, '|' ORDER BY t::text), '')) FROM {table} t"
        for table in tables
    )
    return sorted((name, digest) for name, digest in connection.execute(" UNION ALL ".join(parts)).fetchall())


@pytest.fixture
def send(functions: pytest.MonkeyPatch) -> Callable[[str, Row, Caller, Things], Answer]:
    """Calls a route as somebody, about somebody's things."""

    def call(route: str, row: Row, caller: Caller, about: Things) -> Answer:
        functions.setenv("FORBEAR_OPEN", str(caller.open).lower())
        settings.cache_clear()
        return ask(route, row.request(about), token=caller.token, signed=caller.signed)

    return call


def test_the_table_has_every_route() -> None:
    assert {route for route in TABLE if not route.startswith(URL)} == {route.key for route in ROUTES}


@pytest.mark.parametrize("route", TABLE)
def test_who_may_do_what(
    route: str, connection: Connection, keys: KeyMaker, send: Callable[[str, Row, Caller, Things], Answer]
) -> None:
    """What is not allowed is refused and changes nothing, and tells nothing about another tenant's things."""
    row = TABLE[route]
    callers = make_callers(keys)
    ours, theirs = (make_things(connection, keys, tenant) for tenant in (OURS, THEIRS))
    before = everything(connection)
    for caller in callers:
        for about in (ours, theirs):
            expected = caller.verdict(row, about)
            if expected == row.ok and row.changes:
                about = make_things(connection, keys, about.tenant)  # noqa: PLW2901 - each its own, to change
                before = everything(connection)
            answer = send(route, row, caller, about)
            what = (route, caller.name, about.tenant, answer)
            assert answer.status == (row.ok if expected == SHORT else expected), what
            now = everything(connection)
            assert (now != before) == (row.changes and expected == row.ok), what
            before = now
            if answer.status == 401:
                assert answer.headers["www-authenticate"].startswith("Bearer"), what
            if caller.bound and answer.status < 300:
                assert not [one_id for one_id in theirs.ids if one_id in answer.text], what
            if expected == SHORT and route.endswith("/batch"):
                assert [result["status"] for result in answer.body["results"]] == [403], what
            if caller.token is not None:
                assert caller.token not in answer.text, what


LISTS = [route for route, row in TABLE.items() if row.other == SHORT and route.startswith("GET")]
BY_ID = [route for route, row in TABLE.items() if row.other == 404]
NOT_THERE = Things(
    THEIRS,
    *(
        encode(prefix, UUID(int=1))
        for prefix in (
            *(Prefix.ENDPOINT, Prefix.EVENT, Prefix.DELIVERY, Prefix.DELIVERY, Prefix.REPLAY, Prefix.API_KEY),
        )
    ),
)


@pytest.mark.parametrize("route", BY_ID)
def test_another_tenants_id_looks_as_if_it_had_never_been(
    route: str, connection: Connection, keys: KeyMaker, send: Callable[[str, Row, Caller, Things], Answer]
) -> None:
    """The answers are the same but for the id that was asked for."""
    row = TABLE[route]
    theirs = make_things(connection, keys, THEIRS)
    caller = Caller("all scopes", keys.make(*SCOPES, tenant=OURS), scope="all", bound=True)
    seen = []
    for things in (theirs, NOT_THERE):
        answer = send(route, row, caller, things)
        assert answer.status == 404
        text = answer.text
        for one_id in things.ids:
            text = text.replace(one_id, "ID")
        seen.append(text)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("route", LISTS)
def test_a_list_has_what_is_the_keys_tenants_and_all_of_it(
    route: str, connection: Connection, keys: KeyMaker, send: Callable[[str, Row, Caller, Things], Answer]
) -> None:
    ours, _ = (make_things(connection, keys, tenant) for tenant in (OURS, THEIRS))
    tenants = {}
    for caller in (Caller("read", keys.make("read")), Caller("bound", keys.make("read", tenant=OURS))):
        items = send(route, TABLE[route], caller, ours).body["items"]
        tenants[caller.name] = {item["tenant"] for item in items}
    assert tenants == {"read": {OURS, THEIRS}, "bound": {OURS}}


@pytest.mark.parametrize(
    "route", [route for route, row in TABLE.items() if row.other in {404, SHORT} and "batch" not in route]
)
def test_a_key_of_one_tenant_may_not_name_another_in_the_query(
    route: str, connection: Connection, keys: KeyMaker
) -> None:
    """Rather than find nothing there, it is told: a key in the wrong place shows."""
    token = keys.make(*SCOPES, tenant=OURS)
    for tenant, about in ((THEIRS, THEIRS), (f"{OURS},{THEIRS}", THEIRS), ("", OURS), ("!", OURS)):
        request = TABLE[route].request(make_things(connection, keys, about))
        before = everything(connection)
        asked = Request(request.path, {**request.query, "tenant": tenant}, request.headers, request.body)
        answer = ask(route, asked, token=token)
        assert answer.status == 403, tenant
        assert f"for the tenant {OURS}" in answer.body["detail"]
        assert everything(connection) == before
