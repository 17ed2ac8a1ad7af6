"""What can be set from outside: one model, read from environment variables named FORBEAR_ and the field's name.

The only place that reads the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from forbear.rds_token import Credentials

PREFIX = "FORBEAR_"


class InvalidSettings(ValueError):
    """A setting is missing or out of bounds; the message names the environment variable and what it takes."""


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _networks(value: object) -> object:
    parts = _split(value)
    return tuple(ip_network(part) for part in parts) if isinstance(parts, tuple) else value


class Settings(BaseModel):
    """Forbear's settings, with their defaults, bounds and units."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: str = Field(description="PostgreSQL connection URL (postgresql://user:password@host:port/database).")
    database_iam: bool = Field(
        default=False,
        description="Whether the password is an IAM authentication token, made anew for each connection.",
    )
    key: str | None = Field(
        default=None,
        description="What wraps the data keys, which encrypt secrets and hash API keys: the ARN of a KMS key, or the "
        "path of a key file.",
    )
    open: bool = Field(
        default=False,
        description="Whether requests that nobody vouches for are let in; for a local stack on loopback only.",
    )
    master_secret: str | None = Field(
        default=None, description="ARN of the secret with the database's master user, for migrations."
    )
    retention_days: int = Field(
        default=30, ge=1, le=3650, description="Days to keep events, deliveries and attempts after they ended."
    )
    allow_http: bool = Field(default=False, description="Whether endpoints may be plain http; also asked when sending.")
    allow_networks: Annotated[tuple[IPv4Network | IPv6Network, ...], BeforeValidator(_networks)] = Field(
        default=(),
        description="Networks (comma-separated CIDR) that endpoints may lie in although they are not public.",
    )
    ports: Annotated[tuple[int, ...], BeforeValidator(_split)] = Field(
        default=(), description="Ports that endpoints may have (comma-separated); empty: any. Also asked when sending."
    )
    presets: Path | None = Field(
        default=None,
        description="File of own presets (TOML), beside the built-in ones; a relative path begins at the functions.",
    )
    max_in_flight: int = Field(
        default=1000,
        ge=1,
        le=1000,
        description="Requests in flight at most, per claimer; Lambda gives 1,024 descriptors.",
    )
    max_claimers: int = Field(default=4, ge=1, le=50, description="Claimers awake at once at most.")
    max_batch_bytes: int = Field(
        default=32 << 20, ge=1 << 20, description="Payload bytes that a claimer holds in memory at most, about."
    )
    linger_s: float = Field(
        default=1.0, ge=0, le=60, description="Seconds a claimer with nothing to do stays before it goes to sleep."
    )
    tick_s: float = Field(
        default=60.0,
        ge=0.1,
        le=900,
        description="Seconds between two ticks of the schedule; work due sooner is awaited.",
    )
    claimer_function: str | None = Field(default=None, description="Name of the claimer function, for waking it.")
    maintenance_function: str | None = Field(
        default=None, description="Name of the maintenance function, which the claimer calls once an hour of work."
    )
    schedule_name: str | None = Field(default=None, description="Name of the claimer's EventBridge schedule.")
    schedule_group: str = Field(default="default", description="The schedule's group.")
    metrics_namespace: str | None = Field(
        default=None, description="CloudWatch namespace of the metrics; without one, none are written."
    )

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings from environment variables; an empty one counts as not set.

        Raises:
            InvalidSettings: a variable is missing or not as its field wants it.
        """
        given = {
            name: environment[PREFIX + name.upper()]
            for name in cls.model_fields
            if environment.get(PREFIX + name.upper())
        }
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            name = PREFIX + str(first["loc"][0]).upper()
            about = cls.model_fields[str(first["loc"][0])].description
            raise InvalidSettings(f"{name}: {first['msg']}. It takes: {about}") from error


@cache
def settings() -> Settings:
    """The settings of this process, read once."""
    return Settings.read(os.environ)


def aws_identity() -> tuple[Credentials, str]:
    """Who this process is to AWS, now: its credentials, and its region.

    Lambda gives a function both in variables, which cost nothing to read. Where credentials are not in variables (a
    function that SnapStart restored, a developer's machine), botocore knows how to get them, and renews them.

    Raises:
        InvalidSettings: there are no credentials, or no region.
    """
    access_key, secret_key = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    region = os.environ.get("AWS_REGION")
    if access_key and secret_key and region:
        return Credentials(access_key, secret_key, os.environ.get("AWS_SESSION_TOKEN") or None), region
    session = _botocore_session()
    found = session.get_credentials()
    region = region or session.get_config_variable("region")
    if found is None or region is None:
        lacking = "AWS credentials" if found is None else "AWS region"
        raise InvalidSettings(
            f"{PREFIX}DATABASE_IAM is true, but there is no {lacking}: configure it, as for the AWS CLI"
        )
    frozen = found.get_frozen_credentials()
    return Credentials(frozen.access_key, frozen.secret_key, frozen.token), region


@cache
def _botocore_session() -> Any:
    import botocore.session  # noqa: PLC0415 - a quarter of a second of a cold start, which few need

    return botocore.session.get_session()
