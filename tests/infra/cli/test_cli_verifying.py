"""Whether a webhook is what its sender signed."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forbear.signing import AsymmetricKey, InvalidSecret, parse_secret, sign
from infra.cli import verifying
from infra.cli.verifying import TOLERANCE_S, check_with

SYMMETRIC = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ASYMMETRIC = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
SECRETS = [(SYMMETRIC, SYMMETRIC), (ASYMMETRIC, PUBLIC)]


def signed(secret: str, body: bytes, at: float | None = None) -> dict[str, str]:
    timestamp = int(time.time() if at is None else at)
    signature = sign([parse_secret(secret)], "evt_1", timestamp, body)
    return {"webhook-id": "evt_1", "webhook-timestamp": str(timestamp), "webhook-signature": signature}


@pytest.mark.parametrize(
    ("secret", "signature"),
    [
        (SYMMETRIC, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        (
            PUBLIC,
            "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
        ),
    ],
)
def test_the_published_examples_of_standard_webhooks_verify_but_for_their_age(secret: str, signature: str) -> None:
    headers = {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": signature,
    }
    body = b'{"test": 2432232314}'
    assert "imestamp" in str(check_with(secret)(headers, body))
    with pytest.MonkeyPatch.context() as clock:
        clock.setattr(verifying, "TOLERANCE_S", 10**10)
        if secret == PUBLIC:
            assert check_with(secret)(headers, body) is None


@pytest.mark.parametrize(("secret", "check_secret"), SECRETS)
@given(body=st.binary())
def test_what_was_signed_verifies_whatever_its_bytes(secret: str, check_secret: str, body: bytes) -> None:
    assert check_with(check_secret)(signed(secret, body), body) is None


@pytest.mark.parametrize(("secret", "check_secret"), SECRETS)
@pytest.mark.parametrize("body", [b"{}", b"\xff"])
def test_what_was_changed_does_not(secret: str, check_secret: str, body: bytes) -> None:
    check = check_with(check_secret)
    headers = signed(secret, body)
    assert check(headers, body + b" ") is not None
    assert check(headers | {"webhook-id": "evt_2"}, body) is not None
    assert check(headers | {"webhook-timestamp": str(int(headers["webhook-timestamp"]) - 1)}, body) is not None
    for broken in ("", "v1", "v1,", "v1a,AA", "v1,%%%", "v1,é", "v2,AAAA", "v1a," + "A" * 88):
        assert check(headers | {"webhook-signature": broken}, body) is not None, broken


@pytest.mark.parametrize(("secret", "check_secret"), SECRETS)
@pytest.mark.parametrize("body", [b"{}", b"\xff"])
def test_old_and_future_timestamps_and_missing_headers_are_refused(secret: str, check_secret: str, body: bytes) -> None:
    check = check_with(check_secret)
    for off in (-TOLERANCE_S - 60, TOLERANCE_S + 60):
        assert check(signed(secret, body, time.time() + off), body) is not None
    for within in (-TOLERANCE_S + 60, TOLERANCE_S - 60):
        assert check(signed(secret, body, time.time() + within), body) is None
    headers = signed(secret, body)
    for missing in headers:
        assert check({name: value for name, value in headers.items() if name != missing}, body) is not None
    assert check(headers | {"webhook-timestamp": "soon"}, body) is not None


@pytest.mark.parametrize(("secret", "check_secret"), SECRETS)
@pytest.mark.parametrize("body", [b"{}", b"\xff"])
def test_one_signature_of_several_is_enough(secret: str, check_secret: str, body: bytes) -> None:
    headers = signed(secret, body)
    headers["webhook-signature"] = f"v1,AAAA v1a,AAAA {headers['webhook-signature']}"
    assert check_with(check_secret)(headers, body) is None


@pytest.mark.parametrize("secret", ["", "whsec_", "whpk_AAAA", "whpk_%", "secret", "v1,whsec_AAAA"])
def test_what_is_no_secret_is_refused(secret: str) -> None:
    with pytest.raises(InvalidSecret):
        check_with(secret)


def test_a_private_key_is_refused_with_its_public_one() -> None:
    key = parse_secret(ASYMMETRIC)
    assert isinstance(key, AsymmetricKey)
    with pytest.raises(InvalidSecret, match=r"receivers verify with the public key: whpk_1SiA4o9hyq"):
        check_with(ASYMMETRIC)
