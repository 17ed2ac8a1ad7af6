"""The form of API keys: one spelling, and nobody makes one who has not the data key."""

from __future__ import annotations

import hmac
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.api_keys import ApiKey, InvalidToken, decode, make, verify

BASE64URL = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def mac(message: bytes) -> bytes:
    return hmac.digest(b"data key", message, "sha256")


def other_mac(message: bytes) -> bytes:
    return hmac.digest(b"another data key", message, "sha256")


@given(st.uuids())
def test_a_token_is_read_as_the_key_that_it_was_made_as(key_id: UUID) -> None:
    token, key = make(key_id, mac)
    assert verify(decode(token), mac) == key
    assert key.id == key_id
    assert len(key.hash) == 32


@given(st.uuids(), st.integers(0, 75), st.sampled_from(BASE64URL))
def test_a_token_with_another_character_anywhere_is_refused(key_id: UUID, at: int, character: str) -> None:
    """Each character counts: there is no second spelling of a token."""
    token, _ = make(key_id, mac)
    altered = f"{token[: 4 + at]}{character}{token[5 + at :]}"
    if altered != token:
        with pytest.raises(InvalidToken):
            verify(decode(altered), mac)


def test_a_token_of_another_data_key_is_refused() -> None:
    token, _ = make(UUID(int=1), other_mac)
    with pytest.raises(InvalidToken):
        verify(decode(token), mac)


def test_two_tokens_for_one_id_are_two_keys() -> None:
    (first, known), (second, other) = make(UUID(int=1), mac), make(UUID(int=1), mac)
    assert first != second
    assert known.hash != other.hash


@given(st.text() | st.text(BASE64URL, min_size=70, max_size=80).map(lambda text: f"fbk_{text}"))
def test_any_other_text_is_no_token(text: str) -> None:
    with pytest.raises(InvalidToken):
        verify(decode(text), mac)


@pytest.mark.parametrize("end", ["\n", "=", " ", "A"])
def test_nothing_may_stand_behind_a_token(end: str) -> None:
    token, _ = make(UUID(int=1), mac)
    with pytest.raises(InvalidToken):
        decode(token + end)


def test_what_is_kept_does_not_show_itself() -> None:
    """In a log or a traceback, a key is its id."""
    assert "hash" not in repr(ApiKey(UUID(int=1), b"x" * 32))
