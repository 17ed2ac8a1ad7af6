"""Whether a webhook is what its sender signed: the receiver's half of Standard Webhooks 1.0.

Uses the public `standardwebhooks` package, as receivers do, where that can: it knows no Ed25519, and no payload that is
not UTF-8. Source of the rest: github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md.
"""

from __future__ import annotations

import base64
import hmac
import re
import time
from collections.abc import Callable, Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from standardwebhooks import Webhook, WebhookVerificationError

from forbear.signing import InvalidSecret, SymmetricKey, parse_secret

TOLERANCE_S = 300
"""How far a timestamp may be from the receiver's clock, as the reference libraries have it."""

type Check = Callable[[Mapping[str, str], bytes], str | None]
"""Takes a request's headers (names in lower case) and body; gives None if they verify, else why they do not."""


def check_with(secret: str) -> Check:
    """The check for a secret.

    Args:
        secret: `whsec_…`, or the public key `whpk_…` to a `whsk_…` secret.

    Raises:
        InvalidSecret: It is neither.
    """
    if secret.startswith("whpk_"):
        return _asymmetric(_public_key(secret.removeprefix("whpk_")))
    key = parse_secret(secret)
    if not isinstance(key, SymmetricKey):
        raise InvalidSecret(f"receivers verify with the public key: {key.public_text}")
    return _symmetric(key, Webhook(secret))


def _public_key(encoded: str) -> Ed25519PublicKey:
    try:
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(encoded, validate=True))
    except ValueError as error:  # binascii.Error is one
        raise InvalidSecret("a public key is whpk_ and base64 of 32 bytes (Ed25519)") from error


def _symmetric(key: SymmetricKey, webhook: Webhook) -> Check:
    def matches(signature: bytes, signed: bytes) -> bool:
        return hmac.compare_digest(signature, hmac.digest(key.secret, signed, "sha256"))

    def check(headers: Mapping[str, str], body: bytes) -> str | None:
        try:
            webhook.verify(body, dict(headers), json_parse=False)
        except UnicodeDecodeError:
            return _check(headers, body, "v1", matches)
        except (WebhookVerificationError, ValueError) as error:  # ValueError: a signature that is not written as one
            return str(error)
        return None

    return check


def _asymmetric(key: Ed25519PublicKey) -> Check:
    def matches(signature: bytes, signed: bytes) -> bool:
        try:
            key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True

    return lambda headers, body: _check(headers, body, "v1a", matches)


def _check(
    headers: Mapping[str, str], body: bytes, version: str, matches: Callable[[bytes, bytes], bool]
) -> str | None:
    try:
        event_id, timestamp, signatures = (headers[f"webhook-{name}"] for name in ("id", "timestamp", "signature"))
    except KeyError as missing:
        return f"there is no header {missing.args[0]}"
    if not re.fullmatch(r"[0-9]{1,15}", timestamp):
        return "the timestamp is no number of seconds"
    if abs(time.time() - int(timestamp)) > TOLERANCE_S:
        return f"the timestamp is more than {TOLERANCE_S} s off"
    signed = b"%b.%b.%b" % (event_id.encode(), timestamp.encode(), body)
    for one in signatures.split():
        kind, _, encoded = one.partition(",")
        if kind == version and matches(_decoded(encoded), signed):
            return None
    return "no signature matches"


def _decoded(encoded: str) -> bytes:
    try:
        return base64.b64decode(encoded, validate=True)
    except ValueError:  # binascii.Error is one; non-ASCII text gives a plain one
        return b""
