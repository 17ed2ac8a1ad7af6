"""Settings: what the environment says, and what is said to a wrong one."""

from __future__ import annotations

from dataclasses import fields
from ipaddress import ip_network
from pathlib import Path

import pytest

from forbear.settings import InvalidSettings, Settings

# The settings' names.
SETTINGS = [one.name for one in fields(Settings)]

URL = {"FORBEAR_DATABASE_URL": "postgresql://somebody@localhost/forbear"}


def test_an_empty_variable_counts_as_not_set() -> None:
    """Whoever cannot unset a variable empties it; an empty name of a function would be called."""
    emptied = {f"FORBEAR_{name.upper()}": "" for name in SETTINGS}
    assert Settings.read(emptied | URL) == Settings.read(URL)


def test_a_wrong_one_is_named_with_what_it_takes() -> None:
    with pytest.raises(InvalidSettings, match=r"FORBEAR_RETENTION_DAYS: .*It takes: Days to keep"):
        Settings.read(URL | {"FORBEAR_RETENTION_DAYS": "0"})


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("MAX_CLAIMERS", "51", "a whole number from 1 to 50"),
        ("MAX_CLAIMERS", "1.5", "a whole number"),
        ("MAX_BATCH_BYTES", "1000", "a whole number of at least 1048576"),
        ("LINGER_S", "-1", "a number from 0 to 60"),
        ("LINGER_S", "nan", "a number"),
        ("TICK_S", "soon", "a number from 0.1 to 900"),
        ("OPEN", "perhaps", "true or false"),
        ("PORTS", "80,https", "numbers"),
        ("ALLOW_NETWORKS", "10.0.0.0/8, here", "'here' does not appear to be"),
        ("DATABASE_URL", "", "it is missing"),
    ],
)
def test_what_a_wrong_one_should_be_is_said(name: str, text: str, says: str) -> None:
    with pytest.raises(InvalidSettings, match=f"FORBEAR_{name}: .*{says}"):
        Settings.read(URL | {f"FORBEAR_{name}": text})


def test_each_is_read_as_what_it_is() -> None:
    texts = {
        "DATABASE_IAM": "true",
        "OPEN": "No",
        "RETENTION_DAYS": "7",
        "TICK_S": "0.5",
        "ALLOW_NETWORKS": "10.0.0.0/8, ::1",
        "PORTS": "443, 8443,",
        "PRESETS": "own.toml",
        "KEY": "arn:aws:kms:eu-central-1:123456789012:key/1",
    }
    read = Settings.read(URL | {f"FORBEAR_{name}": text for name, text in texts.items()})
    assert read == Settings(
        database_url=URL["FORBEAR_DATABASE_URL"],
        database_iam=True,
        open=False,
        retention_days=7,
        tick_s=0.5,
        allow_networks=(ip_network("10.0.0.0/8"), ip_network("::1")),
        ports=(443, 8443),
        presets=Path("own.toml"),
        key="arn:aws:kms:eu-central-1:123456789012:key/1",
    )
