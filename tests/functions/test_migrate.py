"""The migrate function, called as CloudFormation calls it, on a server that is like Aurora where it matters."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import psycopg
import pytest
from moto import mock_aws

import migrate
from forbear.custom_resource import RESERVE_S, Foreseen, respond
from forbear.migrations import Migration, Phase, known_migrations
from forbear.vault import make_key_file
from infra.local.postgres import EmbeddedPostgres
from tests.functions.bare_server import WITHOUT_MASTER, Bare, made_bare, own_server
from tests.functions.builders import one
from tests.functions.conftest import forget
from tests.functions.kms import Key, kms_key

CONTRACT = Migration(9000, "contract", "DROP INDEX forbear.queue_replay", Phase.POST)
BROKEN = Migration(9001, "broken", "CREATE TABLE forbear.half_done (); SELECT 1 / 0 AS topsecret")
OLD = {"ServiceToken": "arn:aws:lambda:eu-west-1:1:function:migrate", "Phase": "pre", "Migrations": "0" * 64}
NEW = OLD | {"Migrations": "1" * 64}


@dataclass
class Answers:
    """Where CloudFormation's answers go: an HTTP server that keeps what was PUT.

    Attributes:
        url: the address for answers, signed.
        losses: how many acknowledgements get lost, the answers themselves being taken.
        got: the answers, with their headers.
    """

    url: str = ""
    losses: int = 0
    got: list[tuple[dict[str, str], Any]] = field(default_factory=list)
    came: threading.Event = field(default_factory=threading.Event)

    @property
    def only(self) -> Any:
        ((_, answer),) = self.got
        return answer


@pytest.fixture
def answers() -> Iterator[Answers]:
    kept = Answers()

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            assert self.path == "/bucket/answer?X-Amz-Signature=abc"
            kept.got.append(({name.lower(): value for name, value in self.headers.items()}, json.loads(body)))
            if kept.losses:
                kept.losses -= 1
                self.close_connection = True
            else:
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()
            kept.came.set()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        kept.url = f"http://127.0.0.1:{server.server_port}/bucket/answer?X-Amz-Signature=abc"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield kept
        server.shutdown()


@dataclass(frozen=True)
class Context:
    """AWS's, with so many seconds left."""

    seconds: float = 120.0

    def get_remaining_time_in_millis(self) -> int:
        return round(self.seconds * 1000)


def event(answers: Answers, kind: str = "Create", properties: Any = OLD) -> dict[str, Any]:
    """What CloudFormation sends."""
    return {
        "RequestType": kind,
        "ServiceToken": OLD["ServiceToken"],
        "ResponseURL": answers.url,
        "StackId": "arn:aws:cloudformation:eu-west-1:1:stack/Forbear/1",
        "RequestId": "b1f2",
        "LogicalResourceId": "MigrateBefore",
        "ResourceType": "AWS::CloudFormation::CustomResource",
        "ResourceProperties": dict(properties),
        **({} if kind == "Create" else {"PhysicalResourceId": "forbear-migrations-pre"}),
        **({"OldResourceProperties": dict(OLD)} if kind == "Update" else {}),
    }


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    with own_server() as one_server:
        yield one_server


@pytest.fixture
def bare(server: EmbeddedPostgres) -> Iterator[Bare]:
    with made_bare(server) as one_bare:
        yield one_bare


@pytest.fixture
def environment(bare: Bare, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """The function's environment; the master's password lies in the secret, and a key file is there."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("FORBEAR_DATABASE_URL", bare.url("app", "forbear_owner").replace(":forbear_owner%27s", ""))
    make_key_file(tmp_path / "key")
    monkeypatch.setenv("FORBEAR_KEY", str(tmp_path / "key"))
    monkeypatch.setattr(migrate, "PAUSE_S", 0.01)
    with mock_aws():
        secret = boto3.client("secretsmanager").create_secret(Name="master", SecretString=in_secret("master's"))
        monkeypatch.setenv("FORBEAR_MASTER_SECRET", secret["ARN"])
        forget()
        yield monkeypatch
    forget()


@pytest.fixture
def kms(environment: pytest.MonkeyPatch) -> Iterator[Key]:
    """The function's key is one in KMS."""
    with kms_key(environment) as key:
        environment.setenv("FORBEAR_KEY", key.arn)
        forget()
        yield key


@pytest.fixture
def impatient(environment: pytest.MonkeyPatch) -> None:
    """What fails once is not tried again."""
    environment.setattr(migrate, "PAUSE_S", 1000.0)


def in_secret(password: str) -> str:
    return json.dumps({"username": "master", "password": password, "engine": "postgres"})


@pytest.fixture
def superuser(bare: Bare) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(bare.url("app"), autocommit=True) as connection:
        yield connection


@pytest.fixture
def knowing(environment: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes the function know further migrations than ours."""

    def know(*more: Migration) -> None:
        environment.setattr("forbear.migrations.known_migrations", lambda: (*ours, *more))

    ours = known_migrations()
    return know


def call(answers: Answers, kind: str = "Create", properties: Any = OLD, seconds: float = 120.0) -> Any:
    """Call the function; gives its only answer."""
    answers.got.clear()
    assert migrate.handler(event(answers, kind, properties), Context(seconds)) == {}
    return answers.only


@pytest.mark.usefixtures("environment")
class TestDeployment:
    def test_the_first_one_makes_roles_and_schema_and_says_so(
        self, answers: Answers, superuser: psycopg.Connection[Any]
    ) -> None:
        answer = call(answers)
        applied = answer.pop("Data")["Applied"]
        assert answer == {
            "Status": "SUCCESS",
            "PhysicalResourceId": "forbear-migrations-pre",
            "StackId": "arn:aws:cloudformation:eu-west-1:1:stack/Forbear/1",
            "RequestId": "b1f2",
            "LogicalResourceId": "MigrateBefore",
        }
        assert applied.split(", ") == [str(migration) for migration in known_migrations()]
        owner = "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'forbear'"
        assert superuser.execute(owner).fetchall() == [("forbear_owner",)]
        assert one(superuser, "SELECT has_table_privilege('forbear_claimer', 'forbear.secrets', 'SELECT')")

    def test_the_first_one_makes_the_data_keys_and_later_ones_keep_them(
        self, answers: Answers, superuser: psycopg.Connection[Any]
    ) -> None:
        call(answers)
        made = superuser.execute("SELECT id, purpose, wrapped FROM forbear.data_keys ORDER BY id").fetchall()
        assert [purpose for _, purpose, _ in made] == ["secrets", "api_keys"]
        call(answers, "Update", NEW)
        call(answers, "Update", NEW | {"Phase": "post"})
        assert superuser.execute("SELECT id, purpose, wrapped FROM forbear.data_keys ORDER BY id").fetchall() == made

    def test_it_takes_no_right_to_unwrap_them(
        self, answers: Answers, kms: Key, superuser: psycopg.Connection[Any]
    ) -> None:
        assert call(answers)["Status"] == "SUCCESS"
        assert call(answers, "Update", NEW)["Status"] == "SUCCESS"
        assert kms.uses == ["generate_data_key"] * 2
        lengths = superuser.execute("SELECT octet_length(wrapped) > 32 FROM forbear.data_keys").fetchall()
        assert lengths == [(True,)] * 2

    def test_a_key_that_cannot_be_used_yet_is_waited_for(
        self, answers: Answers, kms: Key, environment: pytest.MonkeyPatch
    ) -> None:
        """A right that was given a moment ago is not known everywhere at once."""
        kms.switch(on=False)
        environment.setattr("migrate.time.sleep", lambda _: kms.switch(on=True))
        assert call(answers)["Status"] == "SUCCESS"

    def test_a_key_that_cannot_be_used_at_all_is_told(self, answers: Answers, environment: pytest.MonkeyPatch) -> None:
        environment.setattr(migrate, "HOPE_S", 0.05)
        environment.setenv("FORBEAR_KEY", "/nowhere/key")
        forget()
        assert call(answers)["Reason"].startswith(
            "the key file /nowhere/key cannot be read: No such file or directory. "
        )
        environment.delenv("FORBEAR_KEY")
        forget()
        assert call(answers)["Reason"].startswith("FORBEAR_KEY: it is missing; give the ARN of a KMS key")
        assert call(answers, "Update", NEW | {"Phase": "post"})["Status"] == "SUCCESS"

    def test_the_answer_is_a_put_without_a_content_type(self, answers: Answers) -> None:
        """The address is signed for an empty one; S3 refuses any other."""
        call(answers)
        assert answers.got[0][0]["content-type"] == ""

    def test_later_ones_do_without_the_master(self, answers: Answers, bare: Bare) -> None:
        """Who has made a role with IAM may be kept from logging in by password."""
        call(answers)
        bare.admit(WITHOUT_MASTER)
        assert call(answers, "Update", NEW)["Status"] == "SUCCESS"
        assert call(answers, "Update", NEW | {"Phase": "post"})["Status"] == "SUCCESS"

    def test_a_master_who_may_come_by_token_only_comes_by_token(
        self, answers: Answers, environment: pytest.MonkeyPatch, superuser: psycopg.Connection[Any]
    ) -> None:
        """A later version has a role more, and the master has made members of rds_iam before.

        The embedded server knows no tokens: here a token is a password that the secret does not hold.
        """
        call(answers)
        superuser.execute("ALTER ROLE master PASSWORD 'a token'")
        superuser.execute("ALTER ROLE forbear_replay NOLOGIN")
        environment.setattr("forbear.db.rds_token", lambda *_, **__: "a token")
        environment.setattr("forbear.db.VERIFIED", {"sslmode": "disable"})
        environment.setenv("AWS_REGION", "eu-west-1")
        environment.setenv("FORBEAR_DATABASE_IAM", "true")
        environment.setattr(migrate, "BY_TOKEN_ONLY", "password authentication failed")
        forget()
        assert call(answers, "Update", NEW)["Status"] == "SUCCESS"
        assert one(superuser, "SELECT rolcanlogin FROM pg_roles WHERE rolname = 'forbear_replay'")

    def test_a_database_from_a_snapshot_comes_up_paused_once(
        self, answers: Answers, superuser: psycopg.Connection[Any]
    ) -> None:
        """Somebody looks first: what is pending in it may have gone out since."""
        paused = "SELECT paused_at IS NOT NULL FROM forbear.control"
        call(answers, properties=OLD | {"Database": "cluster-1"})
        assert not one(superuser, paused)
        restored = NEW | {"Database": "cluster-2", "Restored": "arn:aws:rds:eu-west-1:1:cluster-snapshot:one"}
        call(answers, "Update", restored)
        assert one(superuser, paused)
        superuser.execute("UPDATE forbear.control SET paused_at = NULL")
        call(answers, "Update", restored | {"Phase": "post"})
        assert not one(superuser, paused)
        call(answers, "Update", restored | {"Database": "cluster-3"})
        assert one(superuser, paused)

    def test_without_the_masters_secret_it_says_what_is_missing(
        self, answers: Answers, environment: pytest.MonkeyPatch
    ) -> None:
        environment.delenv("FORBEAR_MASTER_SECRET")
        forget()
        assert "FORBEAR_MASTER_SECRET" in call(answers)["Reason"]

    def test_an_update_keeps_the_resources_id(self, answers: Answers) -> None:
        call(answers)
        assert call(answers, "Update", NEW)["PhysicalResourceId"] == "forbear-migrations-pre"

    def test_deleting_the_stack_touches_no_database(self, answers: Answers, environment: pytest.MonkeyPatch) -> None:
        environment.setattr(migrate, "_once", None)
        answer = call(answers, "Delete")
        assert (answer["Status"], answer["PhysicalResourceId"]) == ("SUCCESS", "forbear-migrations-pre")

    def test_a_roll_back_before_the_contracting_step_succeeds(
        self, answers: Answers, knowing: Callable[..., None]
    ) -> None:
        call(answers)
        knowing(Migration(9000, "more", "CREATE TABLE forbear.more ()"), CONTRACT)
        assert call(answers, "Update", NEW)["Data"] == {"Applied": "9000 (more)"}
        knowing()
        assert call(answers, "Update", OLD)["Status"] == "SUCCESS"
        assert call(answers, "Update", OLD | {"Phase": "post"})["Status"] == "SUCCESS"

    def test_a_broken_migration_fails_it_with_the_reason_and_changes_nothing(
        self, answers: Answers, knowing: Callable[..., None], superuser: psycopg.Connection[Any]
    ) -> None:
        call(answers)
        knowing(Migration(9000, "fine", "CREATE TABLE forbear.fine ()"), BROKEN)
        answer = call(answers, "Update", NEW)
        assert answer["Status"] == "FAILED"
        assert answer["Reason"].startswith("migration 9001 (broken) failed: division by zero. Nothing was changed")
        assert "topsecret" not in answer["Reason"]
        assert one(superuser, "SELECT to_regclass('forbear.fine')") is None
        knowing()
        assert call(answers, "Update", OLD)["Status"] == "SUCCESS"

    def test_code_that_the_database_has_outgrown_is_refused(
        self, answers: Answers, knowing: Callable[..., None]
    ) -> None:
        knowing(CONTRACT)
        assert call(answers)["Status"] == "SUCCESS"
        knowing()
        assert "has taken away what this version needs" in call(answers, "Update", NEW)["Reason"]

    def test_a_phase_that_there_is_not_is_refused(self, answers: Answers) -> None:
        answer = call(answers, properties=OLD | {"Phase": "x"})
        assert answer["Reason"] == "the property Phase is 'x': it takes pre or post"

    def test_what_nobody_foresaw_fails_it_without_its_message(
        self, answers: Answers, environment: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object) -> None:
            raise ValueError("topsecret")

        environment.setattr(migrate, "_once", fail)
        answer = call(answers)
        assert (answer["Status"], answer["Reason"].partition(",")[0]) == ("FAILED", "ValueError")
        assert "topsecret" not in json.dumps(answer)

    def test_what_waiting_does_not_mend_is_not_waited_for(
        self, answers: Answers, environment: pytest.MonkeyPatch
    ) -> None:
        environment.setattr(migrate, "HOPE_S", 0.05)
        boto3.client("secretsmanager").put_secret_value(SecretId="master", SecretString=in_secret("topsecret"))
        reason = call(answers, seconds=600)["Reason"]
        assert "password authentication failed" in reason
        assert "waiting does not mend it: see that the master's secret holds its password" in reason

    def test_a_wrong_password_in_the_secret_is_told_and_not_shown(self, answers: Answers, impatient: None) -> None:
        boto3.client("secretsmanager").put_secret_value(SecretId="master", SecretString=in_secret("topsecret"))
        answer = call(answers)
        assert answer["Status"] == "FAILED"
        assert "password authentication failed" in answer["Reason"]
        assert "topsecret" not in json.dumps(answer)

    @pytest.mark.parametrize("secret", ["no JSON", "{}", "[]"])
    def test_a_secret_that_is_none_is_told(self, answers: Answers, secret: str) -> None:
        boto3.client("secretsmanager").put_secret_value(SecretId="master", SecretString=secret)
        assert call(answers)["Reason"] == "the master's secret must be JSON with username and password"

    def test_a_secret_that_is_not_there_is_told(self, answers: Answers, environment: pytest.MonkeyPatch) -> None:
        environment.setenv("FORBEAR_MASTER_SECRET", "nowhere")
        forget()
        assert "the master's secret cannot be read" in call(answers)["Reason"]


@pytest.mark.usefixtures("environment")
class TestWaiting:
    def test_for_a_server_that_starts_later(
        self, answers: Answers, bare: Bare, environment: pytest.MonkeyPatch
    ) -> None:
        """A cluster takes half a minute to wake from a pause, and minutes to be made."""
        port = bare.server.port
        environment.setattr("infra.local.postgres._free_port", lambda: port)
        bare.server.stop()
        pauses = iter(range(100))

        def pause(_: float) -> None:
            if next(pauses) == 3:
                bare.server.start()

        environment.setattr("migrate.time.sleep", pause)
        assert call(answers)["Status"] == "SUCCESS"
        assert next(pauses) > 3

    def test_no_longer_than_the_function_may_run(self, answers: Answers, environment: pytest.MonkeyPatch) -> None:
        environment.setenv("FORBEAR_DATABASE_URL", "postgresql://forbear_owner:topsecret@127.0.0.1:1/app")
        forget()
        answer = call(answers, seconds=RESERVE_S + migrate.MARGIN_S + 0.3)
        assert answer["Status"] == "FAILED"
        assert answer["Reason"].startswith("the database cannot be reached: ")
        assert "topsecret" not in answer["Reason"]

    def test_for_a_lock_that_somebody_holds(
        self, answers: Answers, superuser: psycopg.Connection[Any], environment: pytest.MonkeyPatch
    ) -> None:
        call(answers)
        environment.setattr("forbear.migrations.LOCK_TIMEOUT", "1ms")
        superuser.execute("BEGIN")
        superuser.execute("LOCK TABLE forbear.migrations")
        with environment.context() as brief:
            brief.setattr(migrate, "PAUSE_S", 1000.0)
            reason = call(answers, "Update", NEW)["Reason"]
        assert reason.startswith("the database says: canceling statement due to lock timeout. Nothing was changed")
        environment.setattr("migrate.time.sleep", lambda _: superuser.execute("ROLLBACK"))
        assert call(answers, "Update", NEW)["Status"] == "SUCCESS"

    def test_ends_with_an_answer_even_if_the_work_does_not(self, answers: Answers) -> None:
        """One answer and no second one, when the work comes to its end after all."""

        def work(_: object) -> dict[str, str]:
            assert answers.came.wait(20)
            return {}

        respond(event(answers), work, name="any", time_left_s=RESERVE_S + 0.05)
        assert answers.only["Status"] == "FAILED"
        assert answers.only["Reason"].startswith("it took too long")


class TestAnswering:
    def test_goes_on_until_it_is_acknowledged(self, answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("forbear.custom_resource.PAUSE_S", 0.0)
        answers.losses = 2
        respond(event(answers), lambda _: {"Applied": "x"}, name="any", time_left_s=60)
        assert [answer for _, answer in answers.got] == [answers.got[0][1]] * 3

    def test_that_fails_fails_the_call_so_that_lambda_calls_again(
        self, answers: Answers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("forbear.custom_resource.PAUSE_S", 0.0)
        answers.losses = 3
        with pytest.raises(OSError, match=r".*"):
            respond(event(answers), lambda _: {}, name="any", time_left_s=60)

    def test_stays_under_what_cloudformation_takes(self, answers: Answers) -> None:
        def work(_: object) -> dict[str, str]:
            raise Foreseen("🙂" * 100_000)

        respond(event(answers), work, name="any", time_left_s=60)
        assert int(answers.got[0][0]["content-length"]) <= 4096


@pytest.mark.usefixtures("environment")
class TestByHand:
    @pytest.mark.parametrize("given", [{}, {"Phase": "pre"}])
    def test_it_gives_what_it_applied(self, given: dict[str, str]) -> None:
        applied = migrate.handler(given, Context())["applied"]
        assert applied == [str(migration) for migration in known_migrations()]
        assert migrate.handler(given, Context()) == {"applied": []}

    def test_a_failure_is_the_calls_own(self, knowing: Callable[..., None]) -> None:
        knowing(BROKEN)
        with pytest.raises(Foreseen, match="migration 9001"):
            migrate.handler({}, Context())
