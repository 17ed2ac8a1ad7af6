"""How a connection signs in: by what its URL says, or by a token made from the function's own AWS credentials."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import psycopg
import pytest
import trustme
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from forbear import db, settings
from forbear.db import VERIFIED, Database, Target
from forbear.rds_token import Credentials, rds_token
from forbear.settings import InvalidSettings, Settings
from forbear.store import Store
from tests.functions.builders import data_keys, one, run
from tests.functions.gate import gate
from tests.functions.test_database_tls import served_as

type Connection = psycopg.Connection[Any]

URL = "postgresql://forbear_ingest@forbear.cluster-c0ffee.eu-central-1.rds.amazonaws.com:5433/forbear"
LAMBDAS = {
    "AWS_ACCESS_KEY_ID": "ASIAEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "AWS_SESSION_TOKEN": "session/+=",
    "AWS_REGION": "eu-central-1",
}
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """An environment without credentials anywhere."""
    for name in (*LAMBDAS, "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    settings._botocore_session.cache_clear()
    yield monkeypatch
    settings._botocore_session.cache_clear()


@pytest.fixture
def in_lambda(environment: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name, value in LAMBDAS.items():
        environment.setenv(name, value)
    return environment


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return NOW

    monkeypatch.setattr(db, "datetime", Stopped)


def key_in(arguments: dict[str, Any]) -> str:
    """The access key that a token was made with."""
    return str(arguments["password"].partition("X-Amz-Credential=")[2].partition("%2F")[0])


def test_without_iam_the_url_is_all() -> None:
    target = Target.of(Settings(database_url="postgresql://a:b@localhost/c"))
    assert target.arguments() == {"conninfo": "postgresql://a:b@localhost/c"} | db.CONNECTION_OPTIONS
    assert target.arguments(options="-c x=1")["options"] == "-c x=1"


@pytest.mark.usefixtures("in_lambda", "stopped_clock")
def test_with_iam_the_password_is_a_token_for_the_host_port_and_user_of_the_url() -> None:
    target = Target.of(Settings(database_url=URL, database_iam=True))
    credentials = Credentials("ASIAEXAMPLE", "secret", "session/+=")
    host = str(conninfo_to_dict(URL)["host"])
    assert target.arguments()["password"] == rds_token(
        host, 5433, "forbear_ingest", credentials=credentials, region="eu-central-1", now=NOW
    )


@pytest.mark.usefixtures("in_lambda")
def test_a_token_goes_only_to_who_is_verified_unless_the_url_says_otherwise() -> None:
    assert Target(URL, iam=True).arguments().items() >= VERIFIED.items()
    own = Target(f"{URL}?sslrootcert=/own.pem", iam=True).arguments()
    assert (own["sslmode"], own["sslrootcert"]) == ("verify-full", "/own.pem")


@pytest.mark.usefixtures("stopped_clock")
def test_the_token_is_what_signs_in(
    in_lambda: pytest.MonkeyPatch, database_url: str, connection: Connection, tmp_path: Path
) -> None:
    """Through TLS, to a server on which this minute's token is the user's password: both kinds of connection."""
    ca, user = trustme.CA(), f"forbear_{uuid4().hex}"
    (tmp_path / "roots.pem").write_bytes(ca.cert_pem.bytes())
    in_lambda.setitem(VERIFIED, "sslrootcert", str(tmp_path / "roots.pem"))
    with gate(database_url, tls=served_as(ca, "localhost"), host="localhost") as server:
        old = conninfo_to_dict(database_url)
        url = server.url.replace(f"{old['user']}:{old['password']}@", f"{user}@")
        target = Target(url, iam=True)
        made = sql.SQL("CREATE ROLE {} LOGIN SUPERUSER PASSWORD {}")
        connection.execute(made.format(sql.Identifier(user), target.arguments()["password"]))
        try:
            database = Database(target)
            assert database.run(lambda mine: one(mine, "SELECT current_user"), repeatable=True) == user
            database.close()

            async def claim() -> int:
                store = Store(target, data_keys())
                leases = await store.claim(1, 1)
                await store.aclose()
                return len(leases)

            assert run(claim()) == 0
        finally:
            connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(user)))


def test_a_function_that_signs_in_by_iam_does_not_wait_for_botocore() -> None:
    script = f"""
import sys
from forbear.db import Target
assert Target({URL!r}, iam=True).arguments()["password"]
assert not {{"botocore.session", "boto3"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, env=LAMBDAS)  # noqa: S603 - our own interpreter and script


def test_where_credentials_are_not_in_variables_they_are_fetched(environment: pytest.MonkeyPatch) -> None:
    """As for a function that SnapStart restored: from an address, with a token that says who may."""
    asked = []

    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["authorization"])
            answer = {"AccessKeyId": "ASIARESTORED", "SecretAccessKey": "s", "Token": "t"}
            answer["Expiration"] = "2099-01-01T00:00:00Z"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's
            pass

    with HTTPServer(("127.0.0.1", 0), Endpoint) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        environment.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"http://127.0.0.1:{server.server_port}/credentials")
        environment.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "let-me-in")
        environment.setenv("AWS_REGION", "eu-central-1")
        assert [key_in(Target(URL, iam=True).arguments()) for _ in range(2)] == ["ASIARESTORED"] * 2
        server.shutdown()
        thread.join()
    assert asked == ["let-me-in"], "they are kept until they expire"


@pytest.mark.parametrize(
    ("url", "lacking", "complaint"),
    [
        (URL, "AWS_ACCESS_KEY_ID", "no AWS credentials"),
        (URL, "AWS_REGION", "no AWS region"),
        ("postgresql://forbear@/forbear", None, "<user>@<host>"),
        ("postgresql://host/forbear", None, "<user>@<host>"),
    ],
)
def test_what_lacks_for_a_token_is_named(
    url: str, lacking: str | None, complaint: str, in_lambda: pytest.MonkeyPatch
) -> None:
    if lacking is not None:
        in_lambda.delenv(lacking)
    with pytest.raises(InvalidSettings, match=complaint):
        Target(url, iam=True).arguments()
