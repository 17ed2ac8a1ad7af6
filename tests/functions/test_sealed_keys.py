"""The keys that open secrets: without them nothing is claimed and nothing dies; another one comes at any time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from forbear.data_keys import DataKeys
from forbear.vault import Keyring, KeyUnavailable, Purpose, make_key_file, wrapping
from tests.functions.builders import key_file, make_endpoint, move_clock, one, post, run
from tests.functions.conftest import forget
from tests.functions.kms import Key, kms_key
from tests.functions.manage.calling import ENDPOINT, call, create, ep_id, ok
from tests.functions.queue.leasing import endings
from tests.functions.scripted import QUICK, Claimer, always, header, running, until
from tests.functions.test_sealed import HEADERS, OTHER, SECRET, URL, dump

type Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.fixture
def role() -> str:
    return "forbear_manage"


@pytest.fixture
def _manage(handlers: pytest.MonkeyPatch) -> None:
    """The manage function works on this test's database, as its own role."""


@pytest.fixture
def key(connection: Connection, handlers: pytest.MonkeyPatch) -> Iterator[Key]:
    """KMS wraps the database's data keys, and the manage function is told so."""
    with kms_key(handlers) as one_key:
        one_key.wrap_data_keys_of(connection)
        handlers.setenv("FORBEAR_KEY", one_key.arn)
        forget()
        yield one_key


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is opened from now on: what each text is about."""
    abouts: list[str] = []
    original = Keyring.open

    def counting(ring: Keyring, sealed: str, about: str) -> str:
        abouts.append(about)
        return original(ring, sealed, about)

    monkeypatch.setattr(Keyring, "open", counting)
    return abouts


def by(key: object) -> DataKeys:
    """The data keys of a process of its own, by a key outside."""
    return DataKeys(Purpose.SECRETS, lambda: wrapping(str(key)))


def add_data_key(connection: Connection) -> None:
    """A rotation by hand."""
    wrapped = wrapping(str(key_file())).new_key(Purpose.SECRETS)
    connection.execute("INSERT INTO forbear.data_keys (purpose, wrapped) VALUES ('secrets', %s)", (wrapped,))


class TestAKeyThatCannotBeHad:
    def test_nothing_is_claimed_and_nothing_dies_until_it_can(
        self, connection: Connection, database_url: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
    ) -> None:
        """With a wrong key no secret can be opened; that is no reason to give a single delivery up."""
        make_endpoint(connection, headers=HEADERS)
        post(connection, *[b"1"] * 20)
        wrong = tmp_path / "key"
        make_key_file(wrong)
        claimer = Claimer(database_url, always(200), keys=by(wrong))

        async def work() -> Any:
            async with running(claimer) as task:
                await until(lambda: caplog.text.count("encryption key unavailable, nothing is claimed") >= 2)
                assert (claimer.store.claims, claimer.sender.requests) == (0, [])
                assert one(connection, "SELECT count(*) FROM forbear.queue WHERE attempts = 0") == 20
                marked = "SELECT count(*) FROM forbear.claimers WHERE awake_until > forbear.now()"
                assert one(connection, marked) == 1, "nobody need call another"
                assert "tick" in claimer.waking.calls, "should this one give up, another one tries"
                wrong.write_bytes(key_file().read_bytes())
            return task.result()

        assert run(work()).delivered == 20
        assert "is not the one that this database was made with: put the right one there" in caplog.text

    def test_a_claimer_is_patient_and_then_fails_with_what_to_do(
        self, connection: Connection, database_url: str
    ) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        with pytest.raises(KeyUnavailable, match="the key file /nowhere/key cannot be read"):
            run(Claimer(database_url, always(200), keys=by("/nowhere/key")).run(1.0))
        assert one(connection, "SELECT attempts FROM forbear.queue") == 0
        assert one(connection, "SELECT count(*) FROM forbear.claimers") == 0
        run(Claimer(database_url, always(200)).run())
        assert endings(connection) == {"delivered": 1}

    def test_what_needs_a_newer_one_that_cannot_be_had_waits(
        self, connection: Connection, database_url: str, caplog: pytest.LogCaptureFixture, tmp_path: Path
    ) -> None:
        """For half a minute or more, and without an attempt: nothing ends for want of a key."""
        outside = tmp_path / "key"
        outside.write_bytes(key_file().read_bytes())
        claimer = Claimer(database_url, always(200), linger_s=30.0, keys=by(outside))

        async def work() -> None:
            async with running(claimer):
                await claimer.look_again()
                outside.unlink()
                add_data_key(connection)
                make_endpoint(connection)
                post(connection, b"1", b"2")
                given_back = (
                    "SELECT count(*) FROM forbear.queue WHERE lease_token IS NULL AND attempts = 0"
                    " AND due_at > forbear.now() + interval '25 s'"
                )
                await until(lambda: one(connection, given_back) == 2)
                assert "put it back" in caplog.text
                assert claimer.sender.requests == []
                outside.write_bytes(key_file().read_bytes())
                move_clock(connection, seconds=61)
                await until(lambda: len(claimer.sender.requests) == 2)
                claimer.loop.stop()

        run(work())
        assert endings(connection) == {"delivered": 2}
        assert one(connection, "SELECT count(*) FROM forbear.attempts") == 2

    def test_what_needs_it_gets_503_from_manage_which_has_done_nothing(self, connection: Connection, key: Key) -> None:
        made = create(headers=HEADERS)
        everything = dump(connection)
        key.switch(on=False)
        forget()  # an environment that has had it goes on
        for method, path, body in (
            ("POST", "/v1/endpoints", {"tenant": "acme", "url": URL}),
            ("POST", f"{ENDPOINT}/rotate-secret", None),
            ("GET", f"{ENDPOINT}/secret", None),
            ("PATCH", ENDPOINT, {"headers": {"x-own": "another"}}),
        ):
            refused = call(method, path, made["id"] if "{" in path else None, body=body)
            assert refused.status == 503, path
            assert refused.detail == "the encryption key cannot be used now; nothing was done: try again"
            assert int(refused.headers["retry-after"]) > 0
        assert dump(connection) == everything

    def test_without_it_endpoints_are_changed_and_shown_but_for_their_headers(self, key: Key) -> None:
        """Whoever must stop traffic to an endpoint does not wait for another service."""
        made = create(headers=HEADERS)
        key.switch(on=False)
        forget()
        for method, path, body in (
            ("POST", f"{ENDPOINT}/pause", None),
            ("POST", f"{ENDPOINT}/resume", None),
            ("PATCH", ENDPOINT, {"description": "new"}),
            ("GET", ENDPOINT, None),
        ):
            assert ok(call(method, path, made["id"], body=body))["headers"] is None
        assert ok(call("GET", "/v1/endpoints"))["items"][0]["headers"] is None
        ok(call("GET", "/v1/deliveries"))
        ok(call("POST", "/v1/pause"))
        key.switch(on=True)
        shown = ok(call("GET", ENDPOINT, made["id"]))
        assert (shown["headers"], shown["description"]) == (HEADERS, "new")

    def test_a_claimer_without_kms_claims_nothing(self, connection: Connection, database_url: str, key: Key) -> None:
        create(url=URL)
        post(connection, b"1")
        key.switch(on=False)
        with pytest.raises(KeyUnavailable, match=r"Disabled.*be enabled, and let this function use it"):
            run(Claimer(database_url, always(200), keys=by(key.arn)).run(1.0))
        assert one(connection, "SELECT attempts FROM forbear.queue") == 0

    def test_kms_is_asked_once_in_the_life_of_an_environment(
        self, connection: Connection, database_url: str, key: Key
    ) -> None:
        key.uses.clear()
        for _ in range(3):
            create(headers=HEADERS, url=URL)
        ok(call("GET", "/v1/endpoints"))
        assert key.uses == ["decrypt"]
        keys = by(key.arn)
        post(connection, b"1")
        run(Claimer(database_url, always(200), keys=keys).run())
        assert key.uses == ["decrypt"] * 2
        key.switch(on=False)
        post(connection, b"1")
        run(Claimer(database_url, always(200), keys=keys).run())
        assert endings(connection) == {"delivered": 6}, "who has had it goes on"


class TestAnotherDataKey:
    @pytest.mark.usefixtures("_manage")
    def test_by_hand_seals_what_comes_and_what_was_there_still_opens(
        self, connection: Connection, database_url: str
    ) -> None:
        first = create(secret=SECRET, headers=HEADERS, url=URL)
        add_data_key(connection)
        second = create(secret=OTHER, url=URL)
        rotated = ok(call("POST", f"{ENDPOINT}/rotate-secret", first["id"]))
        assert rotated["earlier"][0]["secret"] == SECRET
        assert ok(call("GET", ENDPOINT, first["id"]))["headers"] == HEADERS
        ids = "SELECT id::text FROM forbear.data_keys WHERE purpose = 'secrets' ORDER BY id"
        before, after = [number for (number,) in connection.execute(ids).fetchall()]
        sealed = connection.execute(
            "SELECT e.id, split_part(s.secret, '.', 1), split_part(e.headers, '.', 1)"
            " FROM forbear.secrets s JOIN forbear.endpoints e ON e.id = s.endpoint_id ORDER BY s.created_at"
        ).fetchall()
        assert sealed == [
            (ep_id(first["id"]), before, before),
            (ep_id(second["id"]), after, None),
            (ep_id(first["id"]), after, before),
        ]
        post(connection, b"1")
        claimer = Claimer(database_url, always(200))
        run(claimer.run())
        assert sorted(header(one, b"webhook-signature").count("v1,") for one in claimer.sender.requests) == [1, 2]

    def test_is_read_by_a_claimer_that_is_at_work(self, connection: Connection, database_url: str) -> None:
        make_endpoint(connection)
        post(connection, b"1")
        claimer = Claimer(database_url, always(200), linger_s=30.0, keys=by(key_file()))

        async def work() -> None:
            async with running(claimer):
                await until(lambda: len(claimer.sender.requests) == 1)
                add_data_key(connection)
                make_endpoint(connection, tenant="newer")
                post(connection, b"1", tenant="newer")
                await until(lambda: len(claimer.sender.requests) == 2)
                claimer.loop.stop()

        run(work())
        assert endings(connection) == {"delivered": 2}

    def test_that_has_gone_lets_its_endpoints_wait_and_no_others(
        self, connection: Connection, database_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        make_endpoint(connection)
        add_data_key(connection)
        make_endpoint(connection)
        connection.execute("DELETE FROM forbear.data_keys WHERE id = (SELECT max(id) FROM forbear.data_keys)")
        post(connection, b"1")
        run(Claimer(database_url, always(200)).run())
        assert endings(connection) == {"delivered": 1}
        assert one(connection, "SELECT attempts FROM forbear.queue") == 0
        assert "put it back, or rotate the secret and set the headers anew" in caplog.text


class TestOpeningIsRare:
    def test_nothing_is_opened_again_for_the_next_delivery(
        self, connection: Connection, database_url: str, opened: list[str]
    ) -> None:
        endpoint_id = make_endpoint(connection, headers=HEADERS, policy=QUICK)
        for _ in range(5):
            post(connection, *[b"1"] * 3)
            run(Claimer(database_url, always(200)).run())
        assert endings(connection) == {"delivered": 15}
        assert sorted(opened) == [f"headers {endpoint_id}", f"secret {endpoint_id}"]

    def test_a_change_is_opened_once(self, connection: Connection, database_url: str, opened: list[str]) -> None:
        endpoint_id = make_endpoint(connection)
        for url in ("http://127.0.0.1:9/", "http://127.0.0.1:9/new"):
            connection.execute("UPDATE forbear.endpoints SET url = %s", (url,))
            for _ in range(2):
                post(connection, b"1")
                run(Claimer(database_url, always(200)).run())
        assert opened == [f"secret {endpoint_id}"] * 2

    def test_what_one_keyring_has_opened_does_not_answer_for_another(
        self, connection: Connection, database_url: str, opened: list[str]
    ) -> None:
        make_endpoint(connection)
        for _ in range(2):
            post(connection, b"1")
            run(Claimer(database_url, always(200), keys=by(key_file())).run())
        assert len(opened) == 2
