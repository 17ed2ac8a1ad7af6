"""What can be chosen about the stack in AWS: one model, its two profiles, and where its values come from.

Owns reading the knobs and the errors of a wrong one: unknown, out of bounds, contradicting another. Knows no construct;
what a knob becomes is theirs. `python -m infra.config` prints the table of the knobs.
"""

from __future__ import annotations

import re
import ssl
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Self

from pydantic import ValidationError, model_validator
from pydantic_core import ErrorDetails

from forbear.policy.presets import InvalidPresets, with_own
from infra.config_parts import (
    ApiConfig,
    DatabaseConfig,
    DeliveryConfig,
    FunctionsConfig,
    JwtConfig,
    NetworkConfig,
    ObservabilityConfig,
    Part,
    ScheduleConfig,
)
from infra.knob import as_markdown, group, knob, knobs

__all__ = [
    "ApiConfig",
    "DatabaseConfig",
    "DeliveryConfig",
    "FunctionsConfig",
    "InvalidConfig",
    "JwtConfig",
    "NetworkConfig",
    "ObservabilityConfig",
    "ScheduleConfig",
    "StackConfig",
]

FILE: Final = "forbear.toml"
"""The file beside app.py with what was chosen, read whenever it is there."""

_OTHERS: Final = re.compile(r"[:@/$]|(?:acknowledged-issue-numbers|cli-telemetry)\Z")
"""What the keys of the CDK's own context contain, or are."""

_FIRST: Final = re.compile(r"[a-z_]*")


class InvalidConfig(ValueError):
    """A knob is unknown, wrong, or contradicts another; the message names it and says what it takes."""


class StackConfig(Part):
    """Every choice about one stack."""

    profile: Literal["small", "production"] = knob(
        "small",
        "Which defaults: small pauses when idle, production survives the failure of a zone.",
        production="production",
    )
    stack_name: str = knob(
        "Forbear",
        "Name of the stack; several of them can live in one account and region.",
        pattern=r"[A-Za-z][A-Za-z0-9-]{0,39}",
    )
    network: NetworkConfig = group(NetworkConfig, "The VPC, and how deliveries leave it.")
    database: DatabaseConfig = group(DatabaseConfig, "Aurora PostgreSQL.")
    functions: FunctionsConfig = group(FunctionsConfig, "The Lambda functions.")
    api: ApiConfig = group(ApiConfig, "The HTTP API.")
    schedule: ScheduleConfig = group(ScheduleConfig, "When a claimer runs although nobody called it.")
    observability: ObservabilityConfig = group(ObservabilityConfig, "The dashboard, and when alarms ring.")
    delivery: DeliveryConfig = group(DeliveryConfig, "What the functions do.")

    @model_validator(mode="after")
    def _agree(self) -> Self:
        for wrong in _contradictions(self):
            raise ValueError(wrong)
        return self

    @classmethod
    def read(cls, context: Mapping[str, Any], folder: Path) -> StackConfig:
        """Take the knobs from the profile's defaults, a file over them, and the context over both.

        Args:
            context: The CDK app's context: `profile`, `config` (the name of a TOML file; without it `FILE` is read if
                it is there), knobs by their keys (`database.max_acu`) or as tables (`database`), and the CDK's own
                keys, which are left alone.
            folder: Where `app.py` stands; paths of files begin there.

        Raises:
            InvalidConfig: The file cannot be read, or a knob is unknown, wrong, or contradicts another.
        """
        given = {key: value for key, value in context.items() if not _is_the_cdks(key)}
        file = given.pop("config", None) or (FILE if (folder / FILE).is_file() else None)
        chosen = _nested({} if file is None else _file(folder / str(file)))
        _lay_over(chosen, _nested(given))
        values: dict[str, Any] = {}
        if chosen.get("profile") == "production":
            _lay_over(values, _nested({one.key: one.production for one in knobs(cls) if one.production != one.small}))
        _lay_over(values, chosen)
        try:
            config = cls.model_validate(values)
        except ValidationError as error:
            raise InvalidConfig(_told(error.errors())) from error
        return _with_files(config, folder)


def _is_the_cdks(key: str) -> bool:
    """Whether a key of the context is the CDK's own, and not a knob's with a slip in it."""
    first = _FIRST.match(key)
    return bool(_OTHERS.search(key)) and not (first and first[0] in StackConfig.model_fields)


def _contradictions(config: StackConfig) -> Iterator[str]:
    yield from _network_contradictions(config.network)
    network, database, functions, api = config.network, config.database, config.functions, config.api
    if database.min_acu > database.max_acu:
        yield f"database.min_acu: {database.min_acu:g} is above database.max_acu = {database.max_acu:g}. Lower it."
    if "auto_pause_s" in database.model_fields_set and database.min_acu > 0:
        yield (
            f"database.auto_pause_s: a database with min_acu = {database.min_acu:g} never pauses. "
            "Leave it out, or set database.min_acu = 0."
        )
    if database.readers and database.min_acu == 0:
        yield (
            "database.readers: a database that may pause (min_acu = 0) takes longer to wake than to fail over. "
            "Set database.min_acu = 0.5 or more, or readers = 0."
        )
    claimers = functions.reserved_concurrency.get("claimer")
    if claimers is not None and claimers < config.delivery.max_claimers:
        yield (
            f"functions.reserved_concurrency.claimer: {claimers} is below delivery.max_claimers = "
            f"{config.delivery.max_claimers}. Raise the one or lower the other."
        )
    if (api.domain_name is None) != (api.certificate_arn is None):
        yield "api.domain_name: it takes api.certificate_arn too, and the other way round. Set both or none."
    if config.delivery.allow_http and set(network.receiver_ports) == {443}:
        yield "delivery.allow_http: no port for it is open. Set network.receiver_ports = 443,80 or the like."


def _network_contradictions(network: NetworkConfig) -> Iterator[str]:
    if not network.cidr.is_private or network.cidr.is_loopback or network.cidr.is_link_local:
        yield f"network.cidr: {network.cidr} is no private network. Choose a part of 10.0.0.0/8, or the like."
    if not 16 <= network.cidr.prefixlen <= 24:
        yield f"network.cidr: {network.cidr} is not between /16 and /24. Six subnets must fit, and AWS ends at /16."
    if 443 not in network.receiver_ports:
        yield "network.receiver_ports: 443 is missing; the functions call AWS there. Add it."
    if "nat_gateways" in network.model_fields_set and network.nat == "instance":
        yield "network.nat_gateways: there are none with network.nat = instance. Leave it out, or set nat = gateways."


def _with_files(config: StackConfig, folder: Path) -> StackConfig:
    """The same with paths that hold wherever they are read, of files that are known to be usable."""
    presets = config.delivery.presets and folder / config.delivery.presets
    ca_file = config.database.ca_file and folder / config.database.ca_file
    try:
        with_own(presets)
    except InvalidPresets as error:
        raise InvalidConfig(f"delivery.presets: {error}.") from error
    if ca_file:
        _check_authorities(ca_file)
    return config.model_copy(
        update={
            "delivery": config.delivery.model_copy(update={"presets": presets}),
            "database": config.database.model_copy(update={"ca_file": ca_file}),
        }
    )


def _check_authorities(path: Path) -> None:
    authorities = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        authorities.load_verify_locations(path)
    except OSError as error:  # ssl.SSLError is one, too
        raise InvalidConfig(f"database.ca_file: {path} holds no certificates ({error}). Name a PEM file.") from error


def _file(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"config: {path} cannot be read ({error}). It takes a TOML file beside app.py.") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"config: {path} is no TOML: {error}.") from error


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Tables from keys with dots: {"a.b": 1} is {"a": {"b": 1}}."""
    tables: dict[str, Any] = {}
    for key, value in flat.items():
        first, _, rest = key.partition(".")
        inner = {rest: value} if rest else value
        _lay_over(tables, {first: _nested(inner) if isinstance(inner, Mapping) else inner})
    return tables


def _lay_over(below: dict[str, Any], above: Mapping[str, Any]) -> None:
    for key, value in above.items():
        under = below.get(key)
        if key in below and isinstance(under, dict) != isinstance(value, Mapping):
            raise InvalidConfig(f"{key}: it is given as a whole and by its parts. Choose one of the two.")
        if isinstance(under, dict):
            _lay_over(under, value)
        else:
            below[key] = value


def _told(errors: list[ErrorDetails]) -> str:
    """The errors of the model in a sentence about the most precise one: which knob, what is wrong, what it takes."""
    error = max(errors, key=lambda each: len(each["loc"]))
    message = error["msg"].removeprefix("Value error, ").rstrip(".")
    parts = [str(part) for part in error["loc"]]
    if not parts:
        return f"{message}."
    known = {one.key: one for one in knobs(StackConfig)}
    key = next((key for end in range(len(parts), 0, -1) if (key := ".".join(parts[:end])) in known), None)
    if key is not None:
        inside = [part for part in parts[key.count(".") + 1 :] if part.isidentifier() and part.islower()]
        return f"{'.'.join([key, *inside])}: {message}. It takes: {known[key].takes}."
    if error["type"] == "extra_forbidden":
        group_ = "".join(f"{part}." for part in parts[:-1])
        names = {one.removeprefix(group_).partition(".")[0]: None for one in known if one.startswith(group_)}
        return f"{'.'.join(parts)}: there is no such knob. {group_.rstrip('.') or 'The stack'} has: {', '.join(names)}."
    example = next(one for one in known if one.startswith(f"{parts[0]}."))
    return f"{'.'.join(parts)}: this is a group of knobs. It takes {example} and the like."


if __name__ == "__main__":
    sys.stdout.write(as_markdown(StackConfig))
