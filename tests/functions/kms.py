"""A KMS key in moto, which can be disabled: moto itself goes on using one that is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import boto3
import psycopg
import pytest
from moto import mock_aws
from moto.core.exceptions import JsonRESTError
from moto.kms.models import KmsBackend

from forbear.data_keys import make_data_keys
from forbear.vault import wrapping


class Key:
    """A key of an account that is gone with the test.

    Attributes:
        arn: its ARN.
        uses: what it was asked to do, in order.
    """

    def __init__(self) -> None:
        made = boto3.client("kms").create_key()["KeyMetadata"]
        self.arn: str = made["Arn"]
        self.uses: list[str] = []
        self._id = made["KeyId"]

    def switch(self, *, on: bool) -> None:
        """Enable or disable it."""
        kms = boto3.client("kms")
        (kms.enable_key if on else kms.disable_key)(KeyId=self._id)

    def wrap_data_keys_of(self, connection: psycopg.Connection[Any]) -> None:
        """Have it wrap the data keys of a database without secrets, instead of the key file."""
        connection.execute("DELETE FROM forbear.data_keys")
        make_data_keys(connection, wrapping(self.arn))


@contextmanager
def kms_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[Key]:
    """An account with one key."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    with mock_aws():
        key = Key()

        def heeding(name: str) -> Any:
            original = getattr(KmsBackend, name)

            def used(backend: KmsBackend, *arguments: Any, **named: Any) -> Any:
                key.uses.append(name)
                if not all(one.enabled for one in backend.keys.values()):
                    raise JsonRESTError("DisabledException", "the key is disabled")
                return original(backend, *arguments, **named)

            return patch.object(KmsBackend, name, used)

        with heeding("decrypt"), heeding("generate_data_key"):
            yield key
