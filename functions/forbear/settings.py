"""What can be set from outside: one model, read from environment variables named FORBEAR_ and the field's name.

The only place that reads the environment. A dataclass, since every function needs it: pydantic's import would be
almost a third of that of those that need nothing else of it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache, partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any

from forbear.rds_token import Credentials

PREFIX = "FORBEAR_"


class InvalidSettings(ValueError):
    """A setting is missing or out of bounds; the message names the environment variable and what it takes."""


type Take = Callable[[str], Any]
"""Reads the text of a variable; raises ValueError, which does not show it, for it may be a secret."""


def _yes(text: str) -> bool:
    if text.lower() in {"true", "1", "yes", "on"}:
        return True
    if text.lower() in {"false", "0", "no", "off"}:
        return False
    raise ValueError("it must be true or false")


def _whole(least: int, most: float = math.inf) -> Take:
    bounds = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
    return partial(_within, int, f"a whole number {bounds}", least, most)


def _number(least: float, most: float) -> Take:
    return partial(_within, float, f"a number from {least} to {most}", least, most)


def _within(kind: type[int | float], wanted: str, least: float, most: float, text: str) -> float:
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise ValueError(f"it must be {wanted}")
    return value


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(part) for part in _split(text))


def _ports(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in _split(text))
    except ValueError:
        raise ValueError("it must be numbers") from None


def _setting(about: str, default: Any = MISSING, *, take: Take = str) -> Any:
    """A field of `Settings`: what it is for, its default (none: it must be given), and how its text is read."""
    return field(default=default, metadata={"about": about, "take": take})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Forbear's settings, with their defaults, bounds and units."""

    database_url: str = _setting("PostgreSQL connection URL (postgresql://user:password@host:port/database).")
    database_iam: bool = _setting(
        "Whether the password is an IAM authentication token, made anew for each connection.", default=False, take=_yes
    )
    key: str | None = _setting(
        "What wraps the data keys, which encrypt secrets and hash API keys: the ARN of a KMS key, or the path of a key"
        " file.",
        None,
    )
    open: bool = _setting(
        "Whether requests that nobody vouches for are let in; for a local stack on loopback only.",
        default=False,
        take=_yes,
    )
    master_secret: str | None = _setting("ARN of the secret with the database's master user, for migrations.", None)
    retention_days: int = _setting(
        "Days to keep events, deliveries and attempts after they ended.", 30, take=_whole(1, 3650)
    )
    allow_http: bool = _setting(
        "Whether endpoints may be plain http; also asked when sending.", default=False, take=_yes
    )
    allow_networks: tuple[IPv4Network | IPv6Network, ...] = _setting(
        "Networks (comma-separated CIDR) that endpoints may lie in although they are not public.", (), take=_networks
    )
    ports: tuple[int, ...] = _setting(
        "Ports that endpoints may have (comma-separated); empty: any. Also asked when sending.", (), take=_ports
    )
    presets: Path | None = _setting(  # noqa: RUF009 - it makes a field
        "File of own presets (TOML), beside the built-in ones; a relative path begins at the functions.",
        None,
        take=Path,
    )
    max_in_flight: int = _setting(
        "Requests in flight at most, per claimer; Lambda gives 1,024 descriptors.", 1000, take=_whole(1, 1000)
    )
    max_claimers: int = _setting("Claimers awake at once at most.", 4, take=_whole(1, 50))
    max_batch_bytes: int = _setting(
        "Payload bytes that a claimer holds in memory at most, about.", 32 << 20, take=_whole(1 << 20)
    )
    linger_s: float = _setting(
        "Seconds a claimer with nothing to do stays before it goes to sleep.", 1.0, take=_number(0, 60)
    )
    tick_s: float = _setting(
        "Seconds between two ticks of the schedule; work due sooner is awaited.", 60.0, take=_number(0.1, 900)
    )
    claimer_function: str | None = _setting("Name of the claimer function, for waking it.", None)
    maintenance_function: str | None = _setting(
        "Name of the maintenance function, which the claimer calls once an hour of work.", None
    )
    schedule_name: str | None = _setting("Name of the claimer's EventBridge schedule.", None)
    schedule_group: str = _setting("The schedule's group.", "default")
    metrics_namespace: str | None = _setting(
        "CloudWatch namespace of the metrics; without one, none are written.", None
    )

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings from environment variables; an empty one counts as not set.

        Raises:
            InvalidSettings: a variable is missing or not as its field wants it.
        """
        given: dict[str, Any] = {}
        for one in fields(cls):
            name = PREFIX + one.name.upper()
            text = environment.get(name)
            try:
                if text:
                    given[one.name] = one.metadata["take"](text)
                elif one.default is MISSING:
                    raise ValueError("it is missing")
            except ValueError as error:
                raise InvalidSettings(f"{name}: {error}. It takes: {one.metadata['about']}") from None
        return cls(**given)


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
