import base64
from datetime import UTC, datetime

import pytest
import standardwebhooks
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from forbear.signing import AsymmetricKey, InvalidSecret, SymmetricKey, generate_secret, parse_secret, sign

# The published vectors of Standard Webhooks.
EVENT_ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
TIMESTAMP = 1614265330
BODY = b'{"test": 2432232314}'
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
PRIVATE = "whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg=="
PUBLIC = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
ED25519_SIGNATURE = "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg=="

secrets = st.binary(min_size=24, max_size=64).map(lambda raw: f"whsec_{base64.b64encode(raw).decode()}")


def encoded(prefix: str, size: int) -> str:
    return prefix + base64.b64encode(bytes(range(size))).decode()


def test_the_symmetric_vector_is_met() -> None:
    assert sign([parse_secret(SECRET)], EVENT_ID, TIMESTAMP, BODY) == SIGNATURE


def test_the_ed25519_vector_is_met() -> None:
    key = parse_secret(PRIVATE)
    assert isinstance(key, AsymmetricKey)
    assert key.public_text == PUBLIC
    assert sign([key], EVENT_ID, TIMESTAMP, BODY) == ED25519_SIGNATURE


def test_a_bare_seed_is_the_same_key_as_seed_and_public_key() -> None:
    seed = base64.b64decode(PRIVATE.removeprefix("whsk_"))[:32]
    assert parse_secret(f"whsk_{base64.b64encode(seed).decode()}") == parse_secret(PRIVATE)


def test_several_live_keys_sign_in_their_order_separated_by_spaces() -> None:
    keys = [parse_secret(PRIVATE), parse_secret(SECRET)]
    assert sign(keys, EVENT_ID, TIMESTAMP, BODY) == f"{ED25519_SIGNATURE} {SIGNATURE}"


@given(secrets, st.text(max_size=50))
def test_receivers_verify_with_the_standard_library_of_the_field(secret: str, text: str) -> None:
    now = int(datetime.now(UTC).timestamp())
    body = text.encode("utf-8", "replace")
    old, new = parse_secret(generate_secret()), parse_secret(secret)
    headers = {
        "webhook-id": "evt_1",
        "webhook-timestamp": str(now),
        "webhook-signature": sign([new, old], "evt_1", now, body),
    }
    receiver = standardwebhooks.Webhook(secret)
    receiver.verify(body, headers, json_parse=False)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        receiver.verify(body + b" ", headers, json_parse=False)


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'""', b"0", b"null", b"\x00\xff\x80not text", "é\U0001f600".encode()]
)
def test_the_signed_content_is_id_time_and_the_very_bytes_of_the_body(body: bytes) -> None:
    version, signature = sign([parse_secret(PRIVATE)], EVENT_ID, TIMESTAMP, body).split(",")
    public = Ed25519PublicKey.from_public_bytes(base64.b64decode(PUBLIC.removeprefix("whpk_")))
    assert version == "v1a"
    public.verify(base64.b64decode(signature), f"{EVENT_ID}.{TIMESTAMP}.".encode() + body)
    with pytest.raises(InvalidSignature):
        public.verify(base64.b64decode(signature), f"{EVENT_ID}.{TIMESTAMP + 1}.".encode() + body)


def test_generated_secrets_are_new_each_time_and_hold_32_bytes() -> None:
    made = {generate_secret() for _ in range(100)}
    keys = [parse_secret(secret) for secret in made]
    assert len(made) == 100
    assert all(isinstance(key, SymmetricKey) and len(key.secret) == 32 for key in keys)


@pytest.mark.parametrize("size", [24, 25, 32, 63, 64])
def test_symmetric_secrets_of_24_to_64_bytes_are_taken(size: int) -> None:
    assert parse_secret(encoded("whsec_", size)) == SymmetricKey(bytes(range(size)))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "the secret is empty"),
        ("  ", "the secret is empty"),
        ("whsec_", "empty behind its prefix"),
        ("whsk_", "empty behind its prefix"),
        (f"v1,{SECRET}", "leave out 'v1,'"),
        (f"v1a,{PRIVATE}", "leave out 'v1a,'"),
        (SECRET.removeprefix("whsec_"), "starts with whsec_ .* or whsk_"),
        (SECRET.upper(), "starts with whsec_ .* or whsk_"),
        (f" {SECRET}", "starts with whsec_ .* or whsk_"),
        (PUBLIC, "public key"),
        (f"{SECRET} ", "not standard base64"),
        (f"{SECRET}\n", "not standard base64"),
        (f"{SECRET}=", "not standard base64"),
        (encoded("whsec_", 32).rstrip("="), "not standard base64"),
        (encoded("whsec_", 25)[:-3] + "B==", "not standard base64"),  # bits behind the last byte
        ("whsec_" + "-_" * 16, "not standard base64"),
        ("whsec_" + "é" * 32, "not standard base64"),
        ("whsec_" + "\ud800" * 32, "not standard base64"),
        ("whsec_" + "A" * 31 + "\0", "not standard base64"),
        (encoded("whsec_", 23), "24 to 64 bytes in base64; this one holds 23"),
        (encoded("whsec_", 65), "24 to 64 bytes in base64; this one holds 65"),
        (encoded("whsk_", 31), "this one holds 31"),
        (encoded("whsk_", 33), "this one holds 33"),
        (encoded("whsk_", 64), "do not belong together"),
    ],
)
def test_what_is_no_secret_is_refused_with_advice_and_without_repeating_it(text: str, advice: str) -> None:
    with pytest.raises(InvalidSecret, match=advice) as refused:
        parse_secret(text)
    assert refused.value.__cause__ is None
    assert len(text.strip()) < 24 or text.strip()[-20:] not in str(refused.value)


@pytest.mark.parametrize("text", [SECRET, PRIVATE])
def test_a_keys_text_never_shows_its_secret(text: str) -> None:
    key = parse_secret(text)
    raw = base64.b64decode(text.split("_", 1)[1])
    for shown in (repr(key), str(key), f"{key}", repr([key])):
        assert text[6:20] not in shown
        assert repr(raw[:8])[2:-1] not in shown


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for prefix in ("", "whsec_", "whsk_"):
        with pytest.raises(InvalidSecret):
            parse_secret(prefix + text + "!")
