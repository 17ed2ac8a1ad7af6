"""Certificates for hostile receivers: good ones, and each kind that must be refused.

Owns a certificate authority for the length of a run. Knows no receivers.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

CA_FILE = "ca.pem"
"""The trusted authority's certificate, in its folder."""
_DAY = timedelta(days=1)
_ELSEWHERE = "elsewhere.example"


class Certificate(StrEnum):
    """What a receiver shows."""

    GOOD = "good"
    EXPIRED = "expired"
    NOT_YET = "not-yet"
    SELF_SIGNED = "self-signed"
    WRONG_NAME = "wrong-name"
    UNKNOWN = "unknown"  # of an authority that nobody trusts


class Authority:
    """An authority and its certificates, in PEM files of a folder.

    Args:
        folder: where they go; it must be there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Times as of now by the true clock: a certificate's are compared with that of the machine.
        self._now = datetime.now(UTC)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._ca = self._signed("Forbear torture", self._key, None, ca=True)
        (folder / CA_FILE).write_bytes(self._ca.public_bytes(serialization.Encoding.PEM))

    def context(self, certificate: Certificate, name: str) -> ssl.SSLContext:
        """The context of a server.

        Args:
            certificate: what it shows.
            name: the name that clients know it by.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        match certificate:
            case Certificate.SELF_SIGNED:
                issued = self._signed(name, key, None)
            case Certificate.UNKNOWN:
                other = ec.generate_private_key(ec.SECP256R1())
                issued = self._signed(name, key, (self._signed("Nobody", other, None, ca=True), other))
            case Certificate.WRONG_NAME:
                issued = self._signed(_ELSEWHERE, key, (self._ca, self._key))
            case Certificate.EXPIRED:
                issued = self._signed(name, key, (self._ca, self._key), begins=-30 * _DAY, ends=-_DAY)
            case Certificate.NOT_YET:
                issued = self._signed(name, key, (self._ca, self._key), begins=_DAY, ends=30 * _DAY)
            case Certificate.GOOD:
                issued = self._signed(name, key, (self._ca, self._key))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        file = self._folder / f"{certificate}-{name}.pem"
        file.touch(mode=0o600)
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + issued.public_bytes(serialization.Encoding.PEM)
        )
        context.load_cert_chain(file)
        file.unlink()
        return context

    def _signed(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
        *,
        begins: timedelta = -_DAY,
        ends: timedelta = 30 * _DAY,
        ca: bool = False,
    ) -> x509.Certificate:
        """A certificate with the extensions that strict verification wants (RFC 5280); `issuer` None: its own."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer_name, signer = (subject, key) if issuer is None else (issuer[0].subject, issuer[1])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now + begins)
            .not_valid_after(self._now + ends)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if ca:
            usage = x509.KeyUsage(
                digital_signature=False,
                content_commitment=False,
                key_encipherment=False,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
            )
            builder = builder.add_extension(usage, critical=True)
        else:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        return builder.sign(signer, hashes.SHA256())
