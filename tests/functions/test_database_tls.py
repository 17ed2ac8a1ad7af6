"""Who is talked to: only a database that proves to be the one that is meant."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa

from forbear.db import VERIFIED, Database, Unavailable
from forbear.deadline import within
from tests.functions.builders import one
from tests.functions.gate import gate

ROOTS = Path(VERIFIED["sslrootcert"])
CHECKED = datetime(2026, 11, 30, tzinfo=UTC)
REGIONS = (
    "af-south-1 ap-east-1 ap-east-2 ap-northeast-1 ap-northeast-2 ap-northeast-3 ap-south-1 ap-south-2 ap-southeast-1 "
    "ap-southeast-2 ap-southeast-3 ap-southeast-4 ap-southeast-5 ap-southeast-6 ap-southeast-7 ca-central-1 ca-west-1 "
    "eu-central-1 eu-central-2 eu-north-1 eu-south-1 eu-south-2 eu-west-1 eu-west-2 eu-west-3 il-central-1 "
    "me-central-1 me-south-1 mx-central-1 sa-east-1 us-east-1 us-east-2 us-west-1 us-west-2"
)


def served_as(ca: trustme.CA, name: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert(name).configure_cert(context)
    return context


@pytest.fixture
def ours() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusted(ours: trustme.CA, tmp_path: Path) -> str:
    """The query of a URL that trusts our CA only, and wants the name verified."""
    (tmp_path / "roots.pem").write_bytes(ours.cert_pem.bytes())
    return f"sslmode=verify-full&sslrootcert={tmp_path / 'roots.pem'}"


def ask(url: str) -> int:
    database = Database(url)
    try:
        with within(10):
            return int(database.run(lambda mine: one(mine, "SELECT 7"), repeatable=True))
    finally:
        database.close()


def test_the_database_that_is_meant_is_talked_to(database_url: str, ours: trustme.CA, trusted: str) -> None:
    with gate(database_url, tls=served_as(ours, "localhost"), host="localhost") as server:
        assert ask(f"{server.url}&{trusted}") == 7


def test_nobody_else_is_and_the_reason_is_told_at_once(database_url: str, ours: trustme.CA, trusted: str) -> None:
    for ca, name, complaint in (
        (ours, "elsewhere.example", "does not match host name"),
        (trustme.CA(), "localhost", "certificate verify failed"),
    ):
        with gate(database_url, tls=served_as(ca, name), host="localhost") as server:
            with pytest.raises(Unavailable, match=complaint) as caught:
                ask(f"{server.url}&{trusted}")
            assert caught.value.nothing_done
            assert server.came == 1


def test_a_database_without_tls_is_not_either(database_url: str, trusted: str) -> None:
    with pytest.raises(Unavailable, match="SSL was required"):
        ask(f"{database_url}?{trusted}")


def test_the_roots_are_the_current_ones_of_all_regions() -> None:
    """Compared with a fixed date; the roots of a region that is younger are given by `ca_file`."""
    roots = x509.load_pem_x509_certificates(ROOTS.read_bytes())
    found = []
    for root in roots:
        (name,) = root.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        matched = re.fullmatch(r"Amazon RDS (\S+) Root CA RSA2048 G1", str(name.value))
        assert matched is not None, name
        found.append(matched[1])
        assert root.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        root.verify_directly_issued_by(root)
        assert root.not_valid_before_utc < CHECKED
        assert root.not_valid_after_utc.year >= 2061
        key = root.public_key()
        assert isinstance(key, rsa.RSAPublicKey)
        assert key.key_size == 2048
    assert found == sorted(REGIONS.split())
    heading = " ".join(line[2:] for line in ROOTS.read_text().splitlines() if line.startswith("# "))
    assert heading.endswith(REGIONS)
