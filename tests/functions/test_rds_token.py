"""The IAM password is the one that AWS's own library makes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import botocore.auth
import botocore.session
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.rds_token import Credentials, rds_token

HOST = "forbear.cluster-c0ffee.eu-central-1.rds.amazonaws.com"
SESSION = botocore.session.Session()
WHEN = datetime(2026, 11, 30, 23, 59, 58, tzinfo=UTC)

keys = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=40)
secrets = st.text("abcXYZ019+/=", min_size=1, max_size=40)
# What is odd in a user's name is quoted; there is no user without one.
users = st.text(min_size=1, max_size=63) | st.sampled_from(["forbear_ingest", "a+b c/d%2F&=~'é"])
hosts = st.lists(st.from_regex(r"[a-zA-Z0-9]([a-zA-Z0-9-]{0,8}[a-zA-Z0-9])?", fullmatch=True), min_size=1, max_size=5)
times = st.datetimes(datetime(2026, 1, 1), datetime(2099, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - the bounds want no zone


def botocores(host: str, port: int, user: str, *, credentials: Credentials, region: str, now: datetime) -> str:
    SESSION.set_credentials(credentials.access_key, credentials.secret_key, credentials.session_token)
    client: Any = SESSION.create_client("rds", region_name="us-east-1")
    with patch.object(botocore.auth, "get_current_datetime", lambda: now.replace(tzinfo=None)):
        return str(client.generate_db_auth_token(host, port, user, region))


@settings(max_examples=40)
@given(
    st.tuples(hosts.map(".".join), st.sampled_from([5432, 443, 80]) | st.integers(1, 65_535), users),
    st.builds(Credentials, keys, secrets, st.none() | secrets),
    st.sampled_from(["eu-central-1", "us-gov-west-1", "ap-southeast-7"]),
    times,
)
def test_a_token_is_the_one_that_botocore_makes(
    whom: tuple[str, int, str], credentials: Credentials, region: str, now: datetime
) -> None:
    token = rds_token(*whom, credentials=credentials, region=region, now=now)
    assert token == botocores(*whom, credentials=credentials, region=region, now=now)


def test_a_token_shows_no_secret() -> None:
    credentials = Credentials("AKIDEXAMPLE", "hidden/key", "hidden-session")
    assert "hidden" not in repr(credentials)
    token = rds_token(HOST, 5432, "forbear_ingest", credentials=credentials, region="eu-central-1", now=WHEN)
    assert "hidden/key" not in token
    assert token.startswith(f"{HOST}:5432/?Action=connect&DBUser=forbear_ingest&")
