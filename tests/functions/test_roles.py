"""Who may do what in the database, and how the roles come to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import psycopg
import pytest

from forbear.data_keys import make_data_keys
from forbear.migrations import known_migrations, migrate
from forbear.roles import ROLES, RolesError, are_made, make_roles, owning
from forbear.vault import wrapping
from infra.local.postgres import EmbeddedPostgres
from tests.functions.bare_server import Bare, made_bare, own_server
from tests.functions.builders import key_file, make_endpoint, move_clock, one, post

type Connection = psycopg.Connection[tuple[Any, ...]]
type As = Callable[[str], Connection]

FUNCTIONS = ("forbear_ingest", "forbear_claimer", "forbear_replay", "forbear_manage")
EVERYBODY = (*FUNCTIONS, "nobody_of_ours")
MAY_NOT = {
    "forbear_ingest": {
        "read an event's payload": "SELECT payload FROM forbear.events",
        "read any event": "SELECT id FROM forbear.events",
        "read secrets": "SELECT secret FROM forbear.secrets",
        "read endpoints": "SELECT url FROM forbear.endpoints",
        "read what receivers answered": "SELECT response_body FROM forbear.history_attempts",
        "change a delivery": "UPDATE forbear.queue SET due_at = due_at",
        "delete a delivery": "DELETE FROM forbear.queue",
        "subscribe anybody": "INSERT INTO forbear.subscriptions VALUES ('t', '*', gen_random_uuid())",
        "claim": "SELECT forbear.claim(1, 1, 1)",
        "cancel": "SELECT forbear.finish(ARRAY[gen_random_uuid()], ARRAY['cancelled'], ARRAY[NULL]::text[], now())",
        "forget keys": "DELETE FROM forbear.idempotency_keys",
        "make an API key": "INSERT INTO forbear.api_keys (id, name, hash, scopes) VALUES"
        " (uuidv7(), 'x', sha256(''), '{manage}')",
        "revoke an API key": "UPDATE forbear.api_keys SET revoked_at = now()",
        "read who has API keys": "SELECT name FROM forbear.api_keys",
        "make a data key": "INSERT INTO forbear.data_keys (purpose, wrapped) VALUES ('api_keys', '')",
        "pause everything": "UPDATE forbear.control SET paused_at = now()",
    },
    "forbear_claimer": {
        "change an endpoint": "UPDATE forbear.endpoints SET url = 'https://elsewhere.example/'",
        "change a secret": "UPDATE forbear.secrets SET secret = 'x'",
        "change a payload": "UPDATE forbear.events SET payload = ''",
        "delete an event": "DELETE FROM forbear.events",
        "pause everything": "UPDATE forbear.control SET paused_at = now()",
        "say that maintenance was done": "UPDATE forbear.control SET maintained_at = now()",
        "begin a replay": "INSERT INTO forbear.replays (kind, step_at) VALUES ('replay', now())",
        "read keys": "SELECT key FROM forbear.idempotency_keys",
        "put in a data key": "INSERT INTO forbear.data_keys (purpose, wrapped) VALUES ('secrets', '')",
        "read API keys": "SELECT hash FROM forbear.api_keys",
    },
    "forbear_replay": {
        "make an API key": "INSERT INTO forbear.api_keys (id, name, hash, scopes) VALUES"
        " (uuidv7(), 'x', sha256(''), '{manage}')",
        "widen an API key": "UPDATE forbear.api_keys SET scopes = '{manage}'",
        "read secrets": "SELECT secret FROM forbear.secrets",
        "read an event's payload": "SELECT payload FROM forbear.events",
        "read an endpoint's headers": "SELECT headers FROM forbear.endpoints",
        "change an endpoint": "UPDATE forbear.endpoints SET url = 'https://elsewhere.example/'",
        "change a lane's breaker": "UPDATE forbear.lanes SET breaker_state = 'closed'",
        "claim": "SELECT forbear.claim(1, 1, 1)",
        "make events": "INSERT INTO forbear.events VALUES (uuidv7(), 't', 'a', 'b', '')",
    },
    "forbear_manage": {
        "delete what has ended": "DELETE FROM forbear.history",
        "change what has ended": "UPDATE forbear.history SET state = 'delivered'",
        "delete attempts of what has ended": "DELETE FROM forbear.history_attempts",
        "change attempts": "UPDATE forbear.queue_attempts SET status = 200",
        "delete an event": "DELETE FROM forbear.events",
        "change a payload": "UPDATE forbear.events SET payload = ''",
        "delete an endpoint's row": "DELETE FROM forbear.endpoints",
        "change a secret in place": "UPDATE forbear.secrets SET secret = 'x'",
        "claim": "SELECT forbear.claim(1, 1, 1)",
        "read keys": "SELECT key FROM forbear.idempotency_keys",
        "switch the schedule's note": "UPDATE forbear.control SET schedule = 'off'",
        "take a data key away": "DELETE FROM forbear.data_keys",
        "widen an API key": "UPDATE forbear.api_keys SET scopes = '{manage}', tenant = NULL",
        "forget an API key": "DELETE FROM forbear.api_keys",
        "change a data key": "UPDATE forbear.data_keys SET wrapped = ''",
    },
    "nobody_of_ours": {
        "read anything": "SELECT FROM forbear.clock",
        "call anything": "SELECT forbear.now()",
    },
}
NOBODY_MAY = {
    "alter a table": "ALTER TABLE forbear.queue ADD x int",
    "drop a table": "DROP TABLE forbear.queue",
    "empty a table": "TRUNCATE forbear.queue",
    "make a table": "CREATE TABLE forbear.mine ()",
    "make a function": "CREATE FUNCTION forbear.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "replace a function": "CREATE OR REPLACE FUNCTION forbear.now() RETURNS timestamptz LANGUAGE sql AS 'SELECT now()'",
    "make partitions of any days": "SELECT forbear.make_partitions(now(), 1000000)",
    "move the clock": "UPDATE forbear.clock SET shift = '1 day'",
    "change the ledger": "DELETE FROM forbear.migrations",
    "become the owner": "SET ROLE forbear_owner",
}
GRANTS = """
    WITH object (what, acl, owner) AS (
        SELECT 'schema ' || nspname, coalesce(nspacl, acldefault('n', nspowner)), nspowner
        FROM pg_namespace WHERE nspname = 'forbear'
        UNION ALL
        SELECT 'relation ' || relname, coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char",
                                                                    relowner)), relowner
        FROM pg_class WHERE relnamespace = 'forbear'::regnamespace AND relkind IN ('r', 'p', 'v', 'S')
        UNION ALL
        SELECT 'column ' || c.relname || '.' || a.attname, a.attacl, c.relowner
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relnamespace = 'forbear'::regnamespace AND a.attacl IS NOT NULL
        UNION ALL
        SELECT 'function ' || oid::regprocedure, coalesce(proacl, acldefault('f', proowner)), proowner
        FROM pg_proc WHERE pronamespace = 'forbear'::regnamespace
    )
    SELECT g.grantee::regrole::text, o.what, g.privilege_type, g.is_grantable
    FROM object o CROSS JOIN LATERAL aclexplode(o.acl) g
    WHERE g.grantee <> o.owner
"""


def grants(connection: Connection) -> set[tuple[Any, ...]]:
    """What anybody but the owner may, by the catalog: (who, what on, which right, whether to hand on)."""
    return set(connection.execute(GRANTS).fetchall())


@pytest.fixture
def as_role(connect: Callable[[], Connection], url_of: Callable[[str], str]) -> Iterator[As]:
    """Opens connections to this test's database as a role; one that is not ours sees it from outside."""
    opened: list[Connection] = []

    def open_one(role: str) -> Connection:
        if role in ROLES:
            opened.append(psycopg.connect(url_of(role), autocommit=True))
        else:
            opened.append(connect())
            opened[-1].execute("SET SESSION AUTHORIZATION pg_read_all_stats")
        return opened[-1]

    yield open_one
    for connection in opened:
        connection.close()


@pytest.mark.parametrize(
    ("role", "deed"),
    [(role, deed) for role in EVERYBODY for deed in (*MAY_NOT[role], *NOBODY_MAY)],
)
def test_a_role_may_not(as_role: As, role: str, deed: str) -> None:
    """What a function's code does not do, its role cannot do."""
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        as_role(role).execute((MAY_NOT[role] | NOBODY_MAY)[deed])


@pytest.mark.parametrize("role", FUNCTIONS)
def test_whoever_meets_a_missing_partition_makes_those_of_the_coming_days(
    as_role: As, connection: Connection, role: str
) -> None:
    move_clock(connection, days=400)
    as_role(role).execute("SELECT forbear.make_partitions()")
    day = one(connection, "SELECT to_char(forbear.now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
    owner = one(connection, "SELECT tableowner FROM pg_tables WHERE tablename = %s", f"events_{day}")
    assert owner == "forbear_owner"


def test_the_helper_that_lends_the_owners_rights_uses_no_schema_of_its_callers(
    as_role: As, connection: Connection
) -> None:
    connection.execute("CREATE SCHEMA trap AUTHORIZATION forbear_ingest")
    ingest = as_role("forbear_ingest")
    ingest.execute("GRANT USAGE ON SCHEMA trap TO PUBLIC")
    ingest.execute(
        "CREATE FUNCTION trap.date_trunc(text, timestamptz) RETURNS timestamptz"
        " LANGUAGE sql AS 'SELECT (1 / 0)::text::timestamptz'"
    )
    ingest.execute("SET search_path = trap, pg_catalog")
    move_clock(connection, days=400)
    ingest.execute("SELECT forbear.make_partitions()")
    connection.execute("ALTER FUNCTION forbear.make_partitions() RESET search_path")
    with pytest.raises(psycopg.errors.DivisionByZero):  # the trap is one
        ingest.execute("SELECT forbear.make_partitions()")


@pytest.mark.parametrize("kind", ["replay", "backfill", "cancelled replay"])
def test_the_claimer_may_run_every_kind_of_step(as_role: As, connection: Connection, kind: str) -> None:
    endpoint_id = make_endpoint(connection)
    post(connection, b"1", b"2")
    claimer = as_role("forbear_claimer")
    _finish_all(claimer)
    if kind == "backfill":
        endpoint_id = make_endpoint(connection)
    selection = "'waiting', 'acme', NULL" if kind == "backfill" else "'waiting', 'acme', 'delivered'"
    move_clock(connection, hours=1)
    connection.execute(
        "INSERT INTO forbear.replays (kind, state, tenant, status, endpoint_id, step_at)"
        f" VALUES (%s, {selection}, %s, forbear.now())",
        (kind.removeprefix("cancelled "), endpoint_id),
    )
    while one(claimer, "SELECT forbear.replay_step(1000)") is not None:
        pass
    if kind == "cancelled replay":
        connection.execute(
            "UPDATE forbear.replays SET state = 'running', cancelled_at = forbear.now(), ended_at = NULL,"
            " step_at = forbear.now(), cursor = '00000000-0000-0000-0000-000000000000'"
        )
        assert one(claimer, "SELECT forbear.replay_step(1000)") == 2
    assert one(connection, "SELECT matched FROM forbear.replays") == 2
    assert one(connection, "SELECT count(*) FROM forbear.queue") == (0 if kind == "cancelled replay" else 2)


@pytest.mark.parametrize("why", ["deleted", "dead-lettered", "lapsed"])
def test_the_claimer_may_end_what_it_cannot_send(as_role: As, connection: Connection, why: str) -> None:
    make_endpoint(connection)
    post(connection, b"1")
    claimer = as_role("forbear_claimer")
    if why == "deleted":
        connection.execute("UPDATE forbear.lanes SET deleted_at = forbear.now(), ready_at = forbear.now()")
    elif why == "dead-lettered":
        connection.execute(
            "UPDATE forbear.lanes SET dead_letter = true, breaker_state = 'open',"
            " breaker_until = forbear.now() + interval '1 hour'"
        )
    else:
        for _ in range(4):
            _lapse(claimer, connection)
        claimer.execute("SELECT forbear.claim(10, 1000000, 10)")
        move_clock(connection, minutes=5)
    claimer.execute("SELECT forbear.reap(500)" if why == "lapsed" else "SELECT forbear.claim(10, 1000000, 10)")
    ended = {"deleted": ("cancelled", None), "dead-lettered": ("dead", "circuit_open"), "lapsed": ("dead", "lost")}
    assert connection.execute("SELECT state, reason FROM forbear.history").fetchall() == [ended[why]]


def _lapse(claimer: Connection, connection: Connection) -> None:
    claimer.execute("SELECT forbear.claim(10, 1000000, 10)")
    move_clock(connection, minutes=5)
    assert one(claimer, "SELECT forbear.reap(500)") == 1


def _finish_all(claimer: Connection) -> list[UUID]:
    """Claim what is due and end it as delivered. Gives the ids."""
    ids = [row[0] for row in claimer.execute("SELECT delivery_id FROM forbear.claim(10, 1000000, 10)").fetchall()]
    claimer.execute(
        "SELECT forbear.finish(%s::uuid[], array_fill('delivered'::text, ARRAY[%s]),"
        " array_fill(NULL::text, ARRAY[%s]), forbear.now())",
        (ids, len(ids), len(ids)),
    )
    return ids


def test_the_claimer_sees_how_long_others_have_been_at_it(as_role: As, connect: Callable[[], Connection]) -> None:
    with connect().transaction() as transaction:
        transaction.connection.execute("SELECT count(*) FROM forbear.queue")
        seen = one(as_role("forbear_claimer"), "SELECT count(*) FROM pg_stat_activity WHERE xact_start < now()")
    assert seen >= 1


def test_everybody_has_no_rights_in_the_schema(connection: Connection) -> None:
    assert {who for who, *_ in grants(connection)} == set(FUNCTIONS)


def test_rights_are_exactly_what_the_file_says_after_a_migration(connection: Connection) -> None:
    """Whatever was given besides is taken back: tables, columns, functions, sequences, to roles and to everybody."""
    meant = grants(connection)
    connection.execute(
        """
        GRANT ALL ON ALL TABLES IN SCHEMA forbear TO forbear_ingest, PUBLIC;
        GRANT SELECT (secret) ON forbear.secrets TO forbear_replay;
        GRANT ALL ON SCHEMA forbear TO forbear_manage WITH GRANT OPTION;
        GRANT USAGE ON SCHEMA forbear TO PUBLIC;
        GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA forbear TO PUBLIC, forbear_claimer;
        GRANT USAGE ON ALL SEQUENCES IN SCHEMA forbear TO forbear_claimer;
        REVOKE SELECT ON forbear.events FROM forbear_claimer;
        """
    )
    assert grants(connection) != meant
    with owning(connection):
        migrate(connection)
    assert grants(connection) == meant


def test_before_the_functions_switch_nothing_is_taken_from_the_old_code(connection: Connection) -> None:
    connection.execute("GRANT SELECT ON forbear.tenants TO forbear_ingest")
    connection.execute("REVOKE SELECT ON forbear.events FROM forbear_claimer")
    right = ("forbear_ingest", "relation tenants", "SELECT", False)
    with owning(connection):
        migrate(connection, phase=known_migrations()[0].phase)
        assert ("forbear_claimer", "relation events", "SELECT", False) in grants(connection)
        assert right in grants(connection)
        migrate(connection)
        assert right not in grants(connection)


# --- making them: on a server of one's own, since roles are the whole server's


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with own_server() as one_server:
        yield one_server


@pytest.fixture
def bare(server: EmbeddedPostgres) -> Iterator[Bare]:
    with made_bare(server) as one_bare:
        yield one_bare


def test_a_master_who_is_no_superuser_makes_the_roles_and_the_owner_migrates(bare: Bare) -> None:
    with psycopg.connect(bare.url("app", "master"), autocommit=True) as master:
        assert not are_made(master)
        make_roles(master)
        assert are_made(master)
        make_roles(master)
    with psycopg.connect(bare.url("app"), autocommit=True) as connection:
        connection.execute("SET SESSION AUTHORIZATION forbear_owner")
        assert len(migrate(connection)) == len(known_migrations())
        assert {who for who, *_ in grants(connection)} == set(FUNCTIONS)
        iam = "SELECT count(*) FROM pg_roles WHERE rolname = ANY (%s) AND pg_has_role(oid, 'rds_iam', 'USAGE')"
        assert one(connection, iam, list(ROLES)) == len(ROLES)


def test_the_master_is_no_member_of_the_roles_that_it_makes_beyond_what_postgres_gives_it(bare: Bare) -> None:
    """As a member of the owner it would be one of rds_iam, and could not log in by its password any more."""
    with psycopg.connect(bare.url("app", "master"), autocommit=True) as master:
        make_roles(master)
        used = (
            "SELECT count(*) FROM pg_auth_members WHERE member = 'master'::regrole AND (inherit_option OR set_option)"
        )
        assert one(master, used) == 0


@pytest.mark.parametrize("user", [None, "master"])
def test_what_one_user_had_made_alone_is_handed_to_the_owner(bare: Bare, user: str | None) -> None:
    """A restore without owners, or a `forbear up` of a database that was used as one user before."""
    with psycopg.connect(bare.url("app", user), autocommit=True) as connection:
        migrate(connection)
        make_roles(connection)
    with psycopg.connect(bare.url("app"), autocommit=True) as connection:
        connection.execute("SET SESSION AUTHORIZATION forbear_owner")
        assert migrate(connection) == []
        for table, column in (("pg_class", "relowner"), ("pg_proc", "proowner"), ("pg_type", "typowner")):
            namespace = column.removesuffix("owner") + "namespace"
            others = (
                f"SELECT count(*) FROM {table}"
                f" WHERE {namespace} = 'forbear'::regnamespace AND {column} <> 'forbear_owner'::regrole"
            )
            assert one(connection, others) == 0, table


def test_whoever_may_not_make_roles_is_told_who_may(bare: Bare) -> None:
    with (
        psycopg.connect(bare.url("app", "plain"), autocommit=True) as plain,
        pytest.raises(RolesError, match=r"the user plain may not make .* must be a superuser, or have CREATEROLE"),
    ):
        make_roles(plain)
    with psycopg.connect(bare.url("app"), autocommit=True) as connection:
        assert one(connection, "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'forbear\\_%%'") == 0


def test_a_user_who_may_nothing_but_make_a_schema_works_alone(bare: Bare) -> None:
    with psycopg.connect(bare.url("app"), autocommit=True) as connection:
        connection.execute("GRANT CREATE ON DATABASE app TO plain")
    with psycopg.connect(bare.url("app", "plain"), autocommit=True) as plain:
        assert len(migrate(plain)) == len(known_migrations())
        make_data_keys(plain, wrapping(str(key_file())))
        make_endpoint(plain)
        post(plain, b"1")
        assert len(_finish_all(plain)) == 1


def test_several_may_make_the_roles_at_once(bare: Bare) -> None:
    """In one database and in another: roles are the server's."""

    def make(database: str) -> bool:
        with psycopg.connect(bare.url(database), autocommit=True) as connection:
            make_roles(connection)
            return are_made(connection)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(make, ["app", "app", "other", "app"]))
