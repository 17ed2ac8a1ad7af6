"""Data keys and what they seal: opened by the right key for the right thing, and by nothing else."""

from __future__ import annotations

import base64
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forbear.db import Unavailable
from forbear.vault import (
    KEY_BYTES,
    CannotOpen,
    FileWrapping,
    Keyring,
    KeyUnavailable,
    KmsWrapping,
    Purpose,
    make_key_file,
    wrapping,
)
from tests.functions.kms import Key, kms_key

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
KEYS = st.dictionaries(st.integers(1, 32_767), st.binary(min_size=32, max_size=32), min_size=1, max_size=3)
OLD, NEW = bytes(32), b"\1" * 32
RING = Keyring(Purpose.SECRETS, {1: OLD, 2: NEW})


@given(KEYS, TEXT, TEXT)
def test_what_is_sealed_is_opened_again(keys: dict[int, bytes], text: str, about: str) -> None:
    ring = Keyring(Purpose.SECRETS, keys)
    sealed = ring.seal(text, about)
    assert ring.knows(sealed)
    assert Keyring(Purpose.SECRETS, keys).open(sealed, about) == text


@given(TEXT)
def test_the_same_text_is_never_sealed_alike(text: str) -> None:
    """Two endpoints with one secret must not look as if they had one."""
    assert RING.seal(text, "a") != RING.seal(text, "a")


@given(TEXT, TEXT, TEXT)
def test_about_something_else_it_is_not_opened(text: str, about: str, other: str) -> None:
    sealed = RING.seal(text, about)
    if other != about:
        with pytest.raises(CannotOpen):
            RING.open(sealed, other)
    with pytest.raises(CannotOpen):
        Keyring(Purpose.API_KEYS, {1: OLD, 2: NEW}).open(sealed, about)


@given(TEXT, st.integers(0), st.integers(1, 255))
def test_a_changed_byte_is_noticed(text: str, place: int, change: int) -> None:
    number, _, encoded = RING.seal(text, "a").partition(".")
    raw = bytearray(base64.b64decode(encoded))
    raw[place % len(raw)] ^= change
    with pytest.raises(CannotOpen):
        RING.open(f"{number}.{base64.b64encode(raw).decode()}", "a")


@given(TEXT | TEXT.map("1.{}".format) | st.binary().map(lambda raw: f"2.{base64.b64encode(raw).decode()}"))
@example("")
@example("1.")
@example("9" * 5000 + ".AAAA")
@example("\u0661.AAAA")
def test_any_text_is_refused_by_the_documented_error(text: str) -> None:
    RING.knows(text)
    with pytest.raises(CannotOpen):
        RING.open(text, "a")


def test_the_newest_key_seals_and_the_earlier_ones_still_open() -> None:
    before = Keyring(Purpose.SECRETS, {1: OLD})
    sealed = before.seal("text", "a")
    assert RING.open(sealed, "a") == "text"
    again = RING.seal("text", "a")
    assert (RING.knows(again), before.knows(again)) == (True, False)
    with pytest.raises(CannotOpen, match="not sealed by a data key of this database"):
        before.open(again, "a")


def test_a_keyed_hash_outlives_another_key() -> None:
    assert RING.mac(b"message") == Keyring(Purpose.SECRETS, {1: OLD}).mac(b"message")
    assert RING.mac(b"message") != Keyring(Purpose.SECRETS, {2: NEW}).mac(b"message")


def test_a_keyring_shows_no_key() -> None:
    ring = Keyring(Purpose.SECRETS, {1: b"k" * 32})
    assert "k" * 8 not in f"{ring!r} {ring}"


def test_no_keys_are_no_keyring() -> None:
    with pytest.raises(KeyUnavailable, match="no data key for secrets: run the migrations") as caught:
        Keyring(Purpose.SECRETS, {})
    assert isinstance(caught.value, Unavailable)
    assert caught.value.nothing_done


@pytest.mark.parametrize("unset", [None, ""])
def test_a_key_that_is_not_set_is_told(unset: str | None) -> None:
    with pytest.raises(KeyUnavailable, match="FORBEAR_KEY is not set: give the ARN"):
        wrapping(unset)


def test_the_setting_says_which_kind_of_key_it_is() -> None:
    assert isinstance(wrapping("arn:aws:kms:eu-west-1:1:key/1"), KmsWrapping)
    assert isinstance(wrapping("/var/lib/forbear/key"), FileWrapping)


class TestFile:
    def test_only_its_owner_reads_it_and_it_is_made_once(self, tmp_path: Path) -> None:
        path = tmp_path / "key"
        make_key_file(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        key = path.read_bytes()
        assert len(base64.b64decode(key, validate=True)) == KEY_BYTES
        make_key_file(path)
        assert path.read_bytes() == key
        assert list(tmp_path.iterdir()) == [path]

    def test_of_several_that_make_it_at_once_all_find_the_same_whole_one(self, tmp_path: Path) -> None:
        path, start = tmp_path / "key", Barrier(8)

        def make(_: int) -> bytes:
            start.wait()
            make_key_file(path)
            return path.read_bytes()

        with ThreadPoolExecutor(8) as pool:
            (key,) = set(pool.map(make, range(8)))
        assert len(base64.b64decode(key)) == KEY_BYTES

    def test_it_unwraps_what_it_has_wrapped_for_that_purpose(self, tmp_path: Path) -> None:
        make_key_file(tmp_path / "key")
        outside = wrapping(str(tmp_path / "key"))
        wrapped = outside.new_key(Purpose.SECRETS)
        assert len(outside.unwrap(wrapped, Purpose.SECRETS)) == KEY_BYTES
        assert outside.unwrap(wrapped, Purpose.SECRETS) not in wrapped
        with pytest.raises(KeyUnavailable):
            outside.unwrap(wrapped, Purpose.API_KEYS)

    def test_another_one_says_that_it_is_another(self, tmp_path: Path) -> None:
        make_key_file(tmp_path / "one")
        make_key_file(tmp_path / "other")
        wrapped = wrapping(str(tmp_path / "one")).new_key(Purpose.SECRETS)
        with pytest.raises(
            KeyUnavailable, match=r"other is not the one that this database was made with: put the right"
        ):
            wrapping(str(tmp_path / "other")).unwrap(wrapped, Purpose.SECRETS)

    def test_one_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(KeyUnavailable, match=r"key cannot be read: No such file"):
            wrapping(str(tmp_path / "key")).new_key(Purpose.SECRETS)

    @given(st.binary().filter(lambda content: len(content) != 44))
    def test_what_is_no_key_file_is_told(self, content: bytes) -> None:
        path = Path(f"/dev/shm/forbear-{os.getpid()}")  # noqa: S108 - a fixture would be the same for all examples
        path.write_bytes(content)
        try:
            with pytest.raises(KeyUnavailable, match="is no key file: it holds the base64 of 32 bytes"):
                wrapping(str(path)).new_key(Purpose.SECRETS)
        finally:
            path.unlink()


class TestKms:
    @pytest.fixture
    def key(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Key]:
        with kms_key(monkeypatch) as one:
            yield one

    def test_it_unwraps_what_it_has_wrapped_for_that_purpose(self, key: Key) -> None:
        """The purpose is the encryption context, by which the key's policy can tell functions apart."""
        outside = wrapping(key.arn)
        wrapped = outside.new_key(Purpose.SECRETS)
        assert len(outside.unwrap(wrapped, Purpose.SECRETS)) == KEY_BYTES
        with pytest.raises(KeyUnavailable, match="InvalidCiphertext"):
            outside.unwrap(wrapped, Purpose.API_KEYS)

    def test_one_that_is_disabled_says_what_to_do(self, key: Key) -> None:
        outside = wrapping(key.arn)
        wrapped = outside.new_key(Purpose.SECRETS)
        key.switch(on=False)
        refusal = f"with {key.arn}: .*Disabled.* be enabled, and let this function"
        with pytest.raises(KeyUnavailable, match=refusal):
            outside.unwrap(wrapped, Purpose.SECRETS)
        with pytest.raises(KeyUnavailable, match=refusal):
            outside.new_key(Purpose.SECRETS)
        key.switch(on=True)
        assert outside.unwrap(wrapped, Purpose.SECRETS)

    def test_without_credentials_it_is_unavailable_too(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it keeps the credentials that another test has set
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
        monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
        with pytest.raises(KeyUnavailable, match="credentials"):
            wrapping("arn:aws:kms:eu-west-1:1:key/1").new_key(Purpose.SECRETS)
