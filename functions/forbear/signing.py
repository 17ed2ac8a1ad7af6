"""Signatures of Standard Webhooks 1.0 (github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md).

Owns signing secrets (how they are written, checked and made) and the value of ``webhook-signature``. It does not know
where secrets are kept, which of them are live, or what a timestamp should be.
"""

import base64
import binascii
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.hmac import HMAC

_SYMMETRIC_PREFIX: Final = "whsec_"
_ASYMMETRIC_PREFIX: Final = "whsk_"
_PUBLIC_PREFIX: Final = "whpk_"

_MIN_SYMMETRIC_BYTES: Final = 24  # 192 to 512 bits, as the specification asks of symmetric secrets
_MAX_SYMMETRIC_BYTES: Final = 64
_GENERATED_BYTES: Final = 32  # the length of a SHA-256 digest: more adds nothing (RFC 2104 section 3)
_ED25519_BYTES: Final = 32  # of the seed, and of the public key (RFC 8032 section 5.1.5)


class InvalidSecret(ValueError):
    """A text that is not a signing secret; the message says what to correct and never holds the secret."""


@dataclass(frozen=True, slots=True)
class SymmetricKey:
    """A secret that sender and receiver share, for HMAC-SHA256 (``v1``)."""

    secret: bytes = field(repr=False)
    # Has the secret's padded block behind it (RFC 2104 section 4): a signature of 1 KB costs a third of `hmac.digest`.
    _begun: "HMAC" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415 - costs time that most starts need not pay
        from cryptography.hazmat.primitives.hmac import HMAC  # noqa: PLC0415

        object.__setattr__(self, "_begun", HMAC(self.secret, SHA256()))

    def signature(self, signed: bytes) -> str:
        """Sign the signed content; gives ``v1,`` and base64."""
        signing = self._begun.copy()
        signing.update(signed)
        return f"v1,{base64.b64encode(signing.finalize()).decode('ascii')}"


@dataclass(frozen=True, slots=True)
class AsymmetricKey:
    """An Ed25519 key whose private half only the sender has (``v1a``)."""

    public: bytes
    private: "Ed25519PrivateKey" = field(repr=False, compare=False)

    @property
    def public_text(self) -> str:
        """The public key as a receiver takes it: ``whpk_`` and base64 of 32 bytes."""
        return f"{_PUBLIC_PREFIX}{base64.b64encode(self.public).decode('ascii')}"

    def signature(self, signed: bytes) -> str:
        """Sign the signed content; gives ``v1a,`` and base64."""
        return f"v1a,{base64.b64encode(self.private.sign(signed)).decode('ascii')}"


type SigningKey = SymmetricKey | AsymmetricKey


def generate_secret() -> str:
    """Make a new symmetric secret from the system's randomness: ``whsec_`` and base64 of 32 bytes."""
    return f"{_SYMMETRIC_PREFIX}{base64.b64encode(secrets.token_bytes(_GENERATED_BYTES)).decode('ascii')}"


def parse_secret(text: str) -> SigningKey:
    """Read a signing secret.

    Args:
        text: ``whsec_`` and base64 of 24 to 64 bytes, or ``whsk_`` and base64 of an Ed25519 seed (32 bytes), with or
            without the public key behind it (64 bytes).

    Returns:
        The key. An Ed25519 one costs some 100 µs to set up and imports ``cryptography``, so it pays to keep it.

    Raises:
        InvalidSecret: Another prefix, broken base64, a wrong length, or a public key that does not belong to the seed.
    """
    if text.startswith(_SYMMETRIC_PREFIX):
        return _parse_symmetric(text.removeprefix(_SYMMETRIC_PREFIX))
    if text.startswith(_ASYMMETRIC_PREFIX):
        return _parse_asymmetric(text.removeprefix(_ASYMMETRIC_PREFIX))
    if text.startswith(("v1,", "v1a,")):
        version = text.partition(",")[0]
        raise InvalidSecret(f"the secret starts with {version}, which belongs to signatures: leave out '{version},'")
    if text.startswith(_PUBLIC_PREFIX):
        raise InvalidSecret("this is a public key (whpk_): to sign, the private key (whsk_) is needed")
    if not text.strip():
        raise InvalidSecret("the secret is empty: leave it out to have one generated, or give whsec_ and base64")
    raise InvalidSecret("a secret starts with whsec_ (symmetric) or whsk_ (Ed25519), followed by base64")


def sign(keys: Sequence[SigningKey], event_id: str, timestamp: int, body: bytes) -> str:
    """Make the value of the ``webhook-signature`` header.

    The signed content is ``{event_id}.{timestamp}.{body}``, the body being exactly the bytes that are sent.

    Args:
        keys: The live keys, the newest first; while a rotation overlaps there are several.
        event_id: What goes out as ``webhook-id``.
        timestamp: What goes out as ``webhook-timestamp``, in whole seconds since 1970.
        body: The request's body.

    Returns:
        One signature a key, in the order of the keys, separated by spaces.
    """
    signed = b"%b.%d.%b" % (event_id.encode("ascii"), timestamp, body)
    return " ".join([key.signature(signed) for key in keys])


def _parse_symmetric(encoded: str) -> SymmetricKey:
    secret = _decoded(encoded)
    if not _MIN_SYMMETRIC_BYTES <= len(secret) <= _MAX_SYMMETRIC_BYTES:
        raise InvalidSecret(
            f"a whsec_ secret holds {_MIN_SYMMETRIC_BYTES} to {_MAX_SYMMETRIC_BYTES} bytes in base64; "
            f"this one holds {len(secret)}"
        )
    return SymmetricKey(secret)


def _parse_asymmetric(encoded: str) -> AsymmetricKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - costs time that most starts need not pay
        Ed25519PrivateKey,
    )

    key = _decoded(encoded)
    if len(key) not in {_ED25519_BYTES, 2 * _ED25519_BYTES}:
        raise InvalidSecret(
            f"a whsk_ key holds an Ed25519 seed of {_ED25519_BYTES} bytes in base64, "
            f"or seed and public key ({2 * _ED25519_BYTES} bytes); this one holds {len(key)}"
        )
    seed, given_public = key[:_ED25519_BYTES], key[_ED25519_BYTES:]
    private = Ed25519PrivateKey.from_private_bytes(seed)
    public = private.public_key().public_bytes_raw()
    if given_public and given_public != public:
        raise InvalidSecret("the two halves of the whsk_ key do not belong together: seed first, then its public key")
    return AsymmetricKey(public, private)


def _decoded(encoded: str) -> bytes:
    """Decode the base64 of a secret, in its one canonical spelling: libraries differ over any other one."""
    if not encoded:
        raise InvalidSecret("the secret is empty behind its prefix: base64 of random bytes belongs there")
    try:
        raw = binascii.a2b_base64(encoded, strict_mode=True)
    except ValueError:  # binascii.Error is one; non-ASCII text gives a plain one
        raw = b""
    if base64.b64encode(raw).decode("ascii") != encoded:
        raise InvalidSecret(
            "what follows the secret's prefix is not standard base64 "
            "(A-Z a-z 0-9 + / with = padding, without spaces or line ends)"
        )
    return raw
