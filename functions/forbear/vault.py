"""Envelope encryption of what nobody should read in the database, and keyed hashes of what is only compared.

Owns data keys: how they are made, wrapped and used. A data key is 256 bits, lies in the database wrapped by a key
outside of it (a KMS key in AWS, a file on one machine), and serves one purpose, so that a function can be let use one
and not the other. Knows neither what is sealed nor which statement reads it.

Sealed texts are AES-256-GCM (NIST SP 800-38D) under a random nonce of 96 bits, of which a key may use 2^32 (section
8.3). What a text belongs to is authenticated with it, so that whoever can write to the database cannot give one
endpoint another's secret.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hmac
import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from forbear.db import Unavailable

KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_ARN: Final = "arn:"


class Purpose(StrEnum):
    """What a data key is for; KMS is told it as encryption context, and policies can ask for it."""

    SECRETS = "secrets"
    API_KEYS = "api_keys"


class KeyUnavailable(Unavailable):
    """The data keys cannot be had, so nothing that needs one was done; the message says why and what to do."""

    what = "encryption key"

    def __init__(self, message: str) -> None:
        super().__init__(message, nothing_done=True)


class CannotOpen(ValueError):
    """A sealed text was altered, belongs to something else, or was sealed by a key that is gone."""


class Wrapping(Protocol):
    """The key outside of the database, by which data keys in it are wrapped."""

    def new_key(self, purpose: Purpose) -> bytes:
        """Make a data key; gives it wrapped.

        Raises:
            KeyUnavailable: the key outside cannot be used.
        """

    def unwrap(self, wrapped: bytes, purpose: Purpose) -> bytes:
        """Unwrap a data key that was made for this purpose.

        Raises:
            KeyUnavailable: the key outside cannot be used, or did not wrap this.
        """


def wrapping(key: str | None) -> Wrapping:
    """The key outside of the database.

    Args:
        key: the setting `FORBEAR_KEY`: the ARN of a KMS key, or the path of a file that `make_key_file` made.

    Raises:
        KeyUnavailable: it is not set.
    """
    if not key:
        raise KeyUnavailable("FORBEAR_KEY is not set: give the ARN of a KMS key, or the path of a key file")
    return KmsWrapping(key) if key.startswith(_ARN) else FileWrapping(Path(key))


class FileWrapping:
    """A key in a file, for Forbear on one machine.

    Args:
        path: the file: the base64 of 32 bytes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def new_key(self, purpose: Purpose) -> bytes:
        """Make a data key; gives it wrapped."""
        return _seal(self._key(), os.urandom(KEY_BYTES), purpose)

    def unwrap(self, wrapped: bytes, purpose: Purpose) -> bytes:
        """Unwrap a data key that was made for this purpose."""
        try:
            return _open(self._key(), wrapped, purpose)
        except CannotOpen:
            raise KeyUnavailable(
                f"the key in {self._path} is not the one that this database was made with: put the right one there"
            ) from None

    def _key(self) -> bytes:
        try:
            key = base64.b64decode(self._path.read_bytes(), validate=True)
        except OSError as error:
            raise KeyUnavailable(
                f"the key file {self._path} cannot be read: {error.strerror}. Put the one there that the database was"
                " made with: nothing else opens its secrets"
            ) from error
        except binascii.Error:
            key = b""
        if len(key) != KEY_BYTES:
            raise KeyUnavailable(f"{self._path} is no key file: it holds the base64 of {KEY_BYTES} bytes")
        return key


def make_key_file(path: Path) -> None:
    """Make a key file that only its owner can read, unless there is one. Of two at once, one makes it.

    It is there as a whole or not at all, and on the disk before anything is encrypted by it.

    Raises:
        OSError: the file cannot be written.
    """
    unnamed = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    file = os.open(unnamed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(base64.b64encode(os.urandom(KEY_BYTES)))
            opened.flush()
            os.fsync(opened.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(unnamed, path)
    finally:
        unnamed.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class KmsWrapping:
    """A KMS key; the purpose of a data key is its encryption context.

    Args:
        arn: the key's.
    """

    def __init__(self, arn: str) -> None:
        self._arn = arn

    def new_key(self, purpose: Purpose) -> bytes:
        """Make a data key, which only KMS has seen; gives it wrapped."""
        answer = self._ask("generate_data_key_without_plaintext", purpose, KeySpec="AES_256")
        return bytes(answer["CiphertextBlob"])

    def unwrap(self, wrapped: bytes, purpose: Purpose) -> bytes:
        """Unwrap a data key that was made for this purpose."""
        return bytes(self._ask("decrypt", purpose, CiphertextBlob=wrapped)["Plaintext"])

    def _ask(self, operation: str, purpose: Purpose, **parameters: Any) -> dict[str, Any]:
        import boto3  # noqa: PLC0415 - once in the life of an execution environment, and in many never
        from botocore.config import Config  # noqa: PLC0415
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        config = Config(connect_timeout=2, read_timeout=2, retries={"max_attempts": 2, "mode": "standard"})
        try:
            client = boto3.client("kms", config=config)
            answer = getattr(client, operation)(
                KeyId=self._arn, EncryptionContext={"forbear": purpose.value}, **parameters
            )
        except (BotoCoreError, ClientError) as error:
            raise KeyUnavailable(
                f"KMS does not {operation.replace('_', ' ')} with {self._arn}: {error}. It must be the key"
                " that this database was made with, be enabled, and let this function use it"
            ) from error
        return dict(answer)


class Keyring:
    """The data keys of one purpose, unwrapped.

    Args:
        purpose: what they are for.
        keys: by their numbers in the database; the one with the highest number seals.
    """

    def __init__(self, purpose: Purpose, keys: Mapping[int, bytes]) -> None:
        if not keys:
            raise KeyUnavailable(f"the database has no data key for {purpose}: run the migrations, which make it")
        self._purpose = purpose
        self._keys = dict(keys)
        self._newest = max(keys)

    def seal(self, text: str, about: str) -> str:
        """Encrypt a text.

        Args:
            text: any text.
            about: what it belongs to; to be given again when it is opened.
        """
        sealed = _seal(self._keys[self._newest], text.encode(), f"{self._purpose} {about}")
        return f"{self._newest}.{base64.b64encode(sealed).decode()}"

    def open(self, sealed: str, about: str) -> str:
        """Decrypt what `seal` gave.

        Raises:
            CannotOpen: it is none, was altered, is about something else, or its key is not here.
        """
        number, _, encoded = sealed.partition(".")
        try:
            key = self._keys[int(number)]
            raw = base64.b64decode(encoded, validate=True)
        except (ValueError, KeyError):
            raise CannotOpen("it is not sealed by a data key of this database") from None
        return _open(key, raw, f"{self._purpose} {about}").decode()

    def knows(self, sealed: str) -> bool:
        """Whether a sealed text names a data key that is here; another process may have added one."""
        return sealed.partition(".")[0] in map(str, self._keys)

    def mac(self, message: bytes) -> bytes:
        """The HMAC-SHA256 (RFC 2104) of a message by the oldest key, which is never taken away: 32 bytes."""
        return hmac.digest(self._keys[min(self._keys)], message, "sha256")


def _seal(key: bytes, plain: bytes, about: str) -> bytes:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - ingest never seals

    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, about.encode())


def _open(key: bytes, sealed: bytes, about: str) -> bytes:
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    try:
        return AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about.encode())
    except (InvalidTag, ValueError):
        raise CannotOpen("it was altered, or belongs to something else") from None
