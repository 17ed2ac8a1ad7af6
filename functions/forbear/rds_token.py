"""The password that RDS takes where a user signs in by IAM: a request to sign in, signed and kept as text.

As botocore's `generate_db_auth_token` makes it, whose import costs a cold start a quarter of a second. Owns the
signature (AWS Signature Version 4 in a query string). Knows no environment and no clock.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

ALGORITHM = "AWS4-HMAC-SHA256"
VALID_S = 900  # RDS takes no longer; a connection that is open stays open


@dataclass(frozen=True, slots=True)
class Credentials:
    """What AWS gives a function to sign with; `session_token` is None for a user's own keys."""

    access_key: str
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def rds_token(host: str, port: int, user: str, *, credentials: Credentials, region: str, now: datetime) -> str:
    """Make the password for new connections within the next 15 minutes.

    The rules: "Create a signed AWS API request" and "IAM database authentication" in AWS's manuals.

    Args:
        host: the database's host name, as it is connected to.
        port: its port.
        user: the database user that signs in.
        credentials: whose policy allows `rds-db:connect` for that user.
        region: the database's region, such as eu-central-1.
        now: the time, in UTC.
    """
    at = f"{now:%Y%m%dT%H%M%SZ}"
    scope = f"{now:%Y%m%d}/{region}/rds-db/aws4_request"
    asked = {
        "Action": "connect",
        "DBUser": user,
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": at,
        "X-Amz-Expires": str(VALID_S),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.session_token is not None:
        asked["X-Amz-Security-Token"] = credentials.session_token
    pairs = [f"{name}={quote(value, safe='-_.~')}" for name, value in asked.items()]
    # A port that is the scheme's default is not part of the Host header (RFC 9110 7.2).
    named = host.lower() if port == 443 else f"{host.lower()}:{port}"
    request = "\n".join(("GET", "/", "&".join(sorted(pairs)), f"host:{named}\n", "host", _sha256("")))
    key = f"AWS4{credentials.secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, "\n".join((ALGORITHM, at, scope, _sha256(request))).encode(), "sha256").hex()
    return f"{host}:{port}/?{'&'.join(pairs)}&X-Amz-Signature={signature}"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
