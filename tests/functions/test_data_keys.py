"""The data keys in the database: made once, unwrapped once, and not replaced when they are lost."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import psycopg
import pytest

from forbear.data_keys import DataKeys, make_data_keys
from forbear.roles import OWNER
from forbear.vault import KeyUnavailable, Purpose, Wrapping, make_key_file, wrapping
from infra.local.deployment import bring_up
from tests.functions.builders import key_file, keyring_of, make_endpoint, one

type Connection = psycopg.Connection[tuple[Any, ...]]

PURPOSES = "SELECT purpose FROM forbear.data_keys ORDER BY id"


class Counting:
    """A key outside that counts what it unwraps."""

    def __init__(self) -> None:
        self.unwrapped = 0
        self._inner = wrapping(str(key_file()))

    def new_key(self, purpose: Purpose) -> bytes:
        return self._inner.new_key(purpose)

    def unwrap(self, wrapped: bytes, purpose: Purpose) -> bytes:
        self.unwrapped += 1
        return self._inner.unwrap(wrapped, purpose)


@pytest.fixture
def bare(connection: Connection) -> Connection:
    """A connection, as the owner, to a database whose data keys are not made yet."""
    connection.execute("DELETE FROM forbear.data_keys")
    connection.execute(f"SET ROLE {OWNER}")
    return connection


def test_there_is_one_for_each_purpose(bare: Connection) -> None:
    make_data_keys(bare, Counting())
    make_data_keys(bare, Counting())
    assert [purpose for (purpose,) in bare.execute(PURPOSES)] == list(Purpose)


def _make(url: str, key: str, start: Barrier) -> None:
    class Together:
        def new_key(self, purpose: Purpose) -> bytes:
            start.wait(30)  # both have found that there is none
            return wrapping(key).new_key(purpose)

        def unwrap(self, wrapped: bytes, purpose: Purpose) -> bytes:
            raise NotImplementedError

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"SET ROLE {OWNER}")
        made: Wrapping = Together()
        make_data_keys(connection, made)


def test_two_processes_at_once_make_one(bare: Connection, database_url: str) -> None:
    bare.execute("INSERT INTO forbear.data_keys (purpose, wrapped) VALUES ('api_keys', '')")  # so that they meet once
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(2)
    both = [context.Process(target=_make, args=(database_url, str(key_file()), start)) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join(60)
    assert [process.exitcode for process in both] == [0, 0]
    assert [purpose for (purpose,) in bare.execute(PURPOSES)] == ["api_keys", "secrets"]


def test_each_is_unwrapped_once_however_often_it_is_asked_for(connection: Connection) -> None:
    outside = Counting()
    keys = DataKeys(Purpose.SECRETS, lambda: outside)
    ring = keys.ring(keys.rows(connection))
    assert keys.ring(keys.rows(connection)) is ring, "what was opened with it is kept by it"
    assert outside.unwrapped == 1
    connection.execute(
        "INSERT INTO forbear.data_keys (purpose, wrapped) VALUES ('secrets', %s)", (outside.new_key(Purpose.SECRETS),)
    )
    assert keys.ring(keys.rows(connection)) is not ring
    assert outside.unwrapped == 2


def test_another_one_by_hand_seals_what_comes_and_the_first_still_opens(connection: Connection) -> None:
    before = keyring_of(connection)
    sealed = before.seal("text", "a")
    wrapped = Counting().new_key(Purpose.SECRETS)
    connection.execute("INSERT INTO forbear.data_keys (purpose, wrapped) VALUES ('secrets', %s)", (wrapped,))
    after = keyring_of(connection)
    assert after.open(sealed, "a") == "text"
    assert not before.knows(after.seal("text", "a"))


def test_one_for_another_purpose_cannot_stand_in(connection: Connection) -> None:
    connection.execute("DELETE FROM forbear.data_keys WHERE purpose = 'secrets'")
    connection.execute("UPDATE forbear.data_keys SET purpose = 'secrets' WHERE purpose = 'api_keys'")
    with pytest.raises(KeyUnavailable):
        keyring_of(connection)


def test_one_that_cannot_be_unwrapped_leaves_the_others_in_use(connection: Connection) -> None:
    """It is tried again each time: the key outside may be back."""
    sealed = keyring_of(connection).seal("text", "a")
    connection.execute("INSERT INTO forbear.data_keys (purpose, wrapped) VALUES ('secrets', 'nobody made this')")
    ring = keyring_of(connection)
    assert ring.open(sealed, "a") == "text"
    assert ring.open(ring.seal("more", "b"), "b") == "more"


@pytest.mark.parametrize("purpose", Purpose)
def test_lost_ones_are_not_replaced_while_something_needs_them(connection: Connection, purpose: Purpose) -> None:
    """Other keys would not fit what is there: endpoints would seem tampered with, and API keys made up."""
    table = {Purpose.SECRETS: "forbear.secrets", Purpose.API_KEYS: "forbear.api_keys"}[purpose]
    make_endpoint(connection)
    connection.execute(
        "INSERT INTO forbear.api_keys (id, name, hash, scopes) VALUES (uuidv7(), 'x', sha256(''), '{read}')"
    )
    connection.execute("DELETE FROM forbear.data_keys WHERE purpose = %s", (purpose,))
    with pytest.raises(KeyUnavailable, match=rf"put the rows of forbear.data_keys with the purpose {purpose} back"):
        make_data_keys(connection, Counting())
    assert one(connection, "SELECT count(*) FROM forbear.data_keys WHERE purpose = %s", purpose) == 0
    connection.execute(f"DELETE FROM {table}")
    make_data_keys(connection, Counting())
    assert one(connection, "SELECT count(*) FROM forbear.data_keys WHERE purpose = %s", purpose) == 1


class TestLocally:
    """`forbear up`: a key file beside the database."""

    def test_the_key_file_and_the_data_keys_are_made_together(
        self, bare: Connection, database_url: str, tmp_path: Path
    ) -> None:
        key = tmp_path / "key"
        bring_up(database_url, key)
        before = key.read_bytes(), bare.execute("SELECT id, wrapped FROM forbear.data_keys").fetchall()
        bring_up(database_url, key)
        assert (key.read_bytes(), bare.execute("SELECT id, wrapped FROM forbear.data_keys").fetchall()) == before

    @pytest.mark.parametrize(
        ("prepare", "message"),
        [
            (make_key_file, "is not the one that this database was made with"),
            (lambda _: None, "cannot be read: No such"),
        ],
    )
    def test_a_database_that_was_made_with_another_one_is_not_touched(
        self,
        connection: Connection,
        database_url: str,
        tmp_path: Path,
        prepare: Callable[[Path], None],
        message: str,
    ) -> None:
        key = tmp_path / "key"
        prepare(key)
        had = key.exists()
        with pytest.raises(KeyUnavailable, match=message):
            bring_up(database_url, key)
        assert key.exists() == had, "a new one could only be a wrong one"
        assert one(connection, "SELECT count(*) FROM forbear.data_keys") == 2
