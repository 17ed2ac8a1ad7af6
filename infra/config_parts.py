"""The knobs of each capability of the stack: what they are called, what they take, do and cost.

Owns bounds and defaults, those of the profile `production` beside those of `small`. Knows neither where values come
from nor what a construct makes of them. Prices are of us-east-1, a month, and from the price list of November 2026.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, field_validator

from infra.knob import group, knob

type FunctionName = Literal["ingest", "manage", "replay", "claimer", "maintain", "migrate"]
type LogDays = Literal[1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827]


def _split(value: object) -> object:
    return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value


def _network(value: object) -> object:
    if isinstance(value, str):
        return ip_network(value)
    if isinstance(value, IPv4Network | IPv6Network):
        return value
    raise ValueError("a network is written like 10.0.0.0/16")


def _number(value: object) -> object:
    return int(value) if isinstance(value, str) and value.isdecimal() else value


type Networks = Annotated[
    tuple[Annotated[IPv4Network | IPv6Network, BeforeValidator(_network)], ...], BeforeValidator(_split)
]


class Part(BaseModel):
    """A group of knobs: nothing changes it, and it takes nothing that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", regex_engine="python-re")

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """TOML knows numbers from truth values; pydantic takes the one for the other."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError("it is true or false, where something else is wanted")
        return value


class NetworkConfig(Part):
    """The VPC, and how deliveries leave it."""

    cidr: Annotated[IPv4Network, BeforeValidator(_network)] = knob(
        IPv4Network("10.0.0.0/16"),
        "Address range of the VPC, /16 to /24; choose one that is free in networks it is peered with. "
        "Changing it replaces the network and the database.",
    )
    nat: Literal["instance", "gateways"] = knob(
        "instance",
        "Way out to receivers: one NAT instance (t4g.nano; while it fails nothing is delivered), or NAT gateways.",
        production="gateways",
        price="instance $3.07 + $0.64 disk; gateway $32.85 each + $0.045/GB; $3.65 for each address",
    )
    nat_gateways: int = knob(
        2,
        "How many NAT gateways; with one, the failure of its zone stops deliveries. For nat = gateways.",
        unit="gateways",
        price="$36.50 each",
        ge=1,
        le=2,
    )
    receiver_ports: Annotated[tuple[Annotated[int, Field(ge=1, le=65535)], ...], BeforeValidator(_split)] = knob(
        (443,),
        "Ports that endpoints may have; the security group opens these and no others. 443 must be among them, "
        "for the calls to AWS.",
        min_length=1,
        max_length=20,
    )
    flow_logs: bool = knob(
        default=False,
        about="Whether the VPC's connections are logged to CloudWatch.",
        production=True,
        price="$0.50/GB",
    )


class DatabaseConfig(Part):
    """Aurora PostgreSQL."""

    min_acu: float = knob(
        0.0,
        "Least capacity; 0 lets the database pause.",
        production=0.5,
        unit="ACU",
        price="$87.60 an ACU that runs the whole month, in each instance",
        ge=0,
        le=256,
        multiple_of=0.5,
    )
    max_acu: float = knob(
        4.0,
        "Most capacity; it bounds the bill, and with the memory the number of connections.",
        production=16.0,
        unit="ACU",
        price="what is used of it",
        ge=1,
        le=256,
        multiple_of=0.5,
    )
    auto_pause_s: int = knob(
        300,
        "Idle time before the database pauses. For min_acu = 0.",
        unit="s",
        price="$0.006 for each waking, at 300 s",
        ge=300,
        le=86_400,
    )
    io_optimized: bool = knob(
        default=False,
        about="Whether reads and writes of storage are free and the rest costs more; cheaper once they make a quarter "
        "of the database's bill.",
        price="30 % more an ACU and $0.225/GB, instead of $0.20 a million reads and writes and $0.10/GB",
    )
    readers: int = knob(
        0,
        "Standby instances in another zone, for a failover in seconds instead of minutes.",
        production=1,
        unit="instances",
        price="as the writer, each",
        ge=0,
        le=2,
    )
    backup_days: int = knob(
        7,
        "How far back the database can be restored to any second.",
        production=14,
        unit="days",
        price="$0.021/GB beyond the database's size",
        ge=1,
        le=35,
    )
    deletion_protection: bool = knob(
        default=False,
        about="Whether database and stack refuse to be deleted; deploy with false first, then destroy.",
        production=True,
    )
    final_snapshot: bool = knob(
        default=True,
        about="Whether a deleted database leaves a snapshot behind.",
        price="$0.021/GB, until it is deleted",
    )
    snapshot: str | None = knob(
        None,
        "ARN of the snapshot that the database is made from, to restore one. Setting, changing or removing it replaces "
        "the database: keep it, in a file, once it is set.",
        pattern=r"arn:[\w-]+:rds:[\w-]+:\d{12}:cluster-snapshot:[\w:.-]+",
    )
    own_key: bool = knob(
        default=False,
        about="Whether a KMS key of the stack's own encrypts the database instead of the AWS-managed one, as sharing "
        "its snapshots with another account needs. For new stacks: changing it later replaces the database.",
        price="$1",
    )
    secrets_key: str | None = knob(
        None,
        "ARN of the KMS key that encrypts the secrets in the database, in the stack's region; without one, the stack "
        "makes a key. For a database that was made elsewhere: its secrets can be read by its own key only, which the "
        "output SecretsKey of that stack names.",
        price="$1, whoever made it",
        pattern=r"arn:[\w-]+:kms:[\w-]+:\d{12}:key/[\w-]+",
    )
    ca_file: Path | None = knob(
        None,
        "PEM file, beside app.py, with the authorities that may sign the database's certificate; for partitions other "
        "than the public regions, whose authorities are built in.",
    )
    slow_statement_ms: int = knob(
        500,
        "Statements that take longer are logged, without their parameters.",
        unit="ms",
        price="$0.50/GB of log",
        ge=10,
        le=60_000,
    )
    insights: bool = knob(
        default=False,
        about="Whether Performance Insights samples the database; give it 2 ACU at least then.",
        price="free for the 7 days that are kept",
    )


class MemoryConfig(Part):
    """Memory of the functions, and with it their share of a CPU (1,769 MB are one)."""

    ingest: int = knob(512, "Memory of ingest.", unit="MB", price="by use", ge=256, le=10_240)
    manage: int = knob(512, "Memory of manage.", unit="MB", price="by use", ge=256, le=10_240)
    replay: int = knob(512, "Memory of replay.", unit="MB", price="by use", ge=256, le=10_240)
    claimer: int = knob(
        512,
        "Memory of the claimer; a full CPU (1769) sends the most a dollar, less is cheaper where it mostly waits.",
        production=1769,
        unit="MB",
        price="by use; $17.50 for 512 MB that are busy all month",
        ge=512,
        le=10_240,
    )
    maintain: int = knob(256, "Memory of maintain.", unit="MB", price="by use", ge=256, le=10_240)
    migrate: int = knob(256, "Memory of migrate.", unit="MB", price="by use", ge=256, le=10_240)


class FunctionsConfig(Part):
    """The Lambda functions."""

    architecture: Literal["arm64", "x86_64"] = knob(
        "arm64", "Processor of the functions.", price="x86_64 costs 25 % more by use"
    )
    memory_mb: MemoryConfig = group(MemoryConfig, "Memory of each function.")
    reserved_concurrency: dict[FunctionName, Annotated[int, BeforeValidator(_number), Field(ge=1, le=10_000)]] = knob(
        {},
        "Concurrent runs that a function has for itself and at most (functions.reserved_concurrency.ingest = 50). "
        "A new account has 10 for all its functions and cannot give any away.",
        unit="runs",
    )
    snap_start: bool = knob(
        default=False,
        about="Whether ingest, manage and replay start from a snapshot of their memory instead of from scratch. "
        "Changing it changes the replay URL.",
        price="by use, for cached snapshots and restores",
    )
    tracing: bool = knob(
        default=False,
        about="Whether X-Ray samples the functions' calls.",
        production=True,
        price="$5 a million traces after 100,000; X-Ray takes 1 in 20",
    )
    log_retention_days: Annotated[LogDays, BeforeValidator(_number)] = knob(
        30, "How long logs are kept.", production=90, unit="days", price="$0.50/GB written + $0.03/GB kept"
    )
    own_key: bool = knob(
        default=False,
        about="Whether a KMS key of the stack's own encrypts the functions' environment and logs, the queue of failed "
        "calls and the alarms' topic instead of AWS-managed ones.",
        production=True,
        price="$1",
    )


class JwtConfig(Part):
    """Bearer tokens of an issuer that publishes its keys (OpenID Connect)."""

    issuer: str = Field(description="URL of the issuer.", pattern=r"\Ahttps://\S+\Z")
    audiences: Annotated[tuple[str, ...], BeforeValidator(_split)] = Field(
        min_length=1, description="Whom a token must be for: its `aud` or `client_id`, comma-separated."
    )
    event_scopes: Annotated[tuple[str, ...], BeforeValidator(_split)] = Field(
        default=(),
        description="Scopes, comma-separated, of which a token needs one to post events; none: it needs no scope.",
    )
    manage_scopes: Annotated[tuple[str, ...], BeforeValidator(_split)] = Field(
        default=(),
        description="Scopes, comma-separated, of which a token needs one for the rest; none: it needs no scope.",
    )


class ApiConfig(Part):
    """The HTTP API of ingest and manage."""

    auth: Literal["iam"] | JwtConfig = knob(
        "iam",
        "How requests are authenticated: iam (signed with SigV4), or tokens (api.auth.issuer, api.auth.audiences). "
        "Without scopes (api.auth.event_scopes to post events, api.auth.manage_scopes for the rest; one of them "
        "suffices) every token of the audience may do everything, reading signing secrets included. The replay URL "
        "always takes iam.",
    )
    keys: bool = knob(
        default=False,
        about="Whether there is a second API, at the output KeysApiUrl, for callers with an API key. Anybody can reach "
        "it, and the functions themselves refuse whoever has no key.",
        price="by use, strangers' requests included: up to api.rate_per_s on each route; $0.10 for its alarm",
    )
    rate_per_s: int = knob(
        100, "Requests a second that a route takes on average.", production=2_000, unit="1/s", ge=1, le=10_000
    )
    burst: int = knob(200, "Requests at once that a route takes.", production=4_000, unit="requests", ge=1, le=5_000)
    domain_name: str | None = knob(
        None,
        "Domain name of the API; point it to the output ApiDomainTarget. It needs api.certificate_arn.",
        pattern=r"(?!-)[a-z0-9-]+(\.[a-z0-9-]+)+",
    )
    certificate_arn: str | None = knob(
        None,
        "ARN of the ACM certificate, in the stack's region, for api.domain_name.",
        pattern=r"arn:[\w-]+:acm:[\w-]+:\d{12}:certificate/[\w-]+",
    )


class ScheduleConfig(Part):
    """When a claimer runs although nobody called it."""

    sweep_hours: int = knob(
        6,
        "How often the safety sweep looks for work that a lost call left behind; it wakes a paused database.",
        unit="h",
        price="$0.72 at 6 h, for a database that would be paused otherwise",
        ge=1,
        le=24,
    )


class ObservabilityConfig(Part):
    """The dashboard, and when alarms ring."""

    alarm_email: str | None = knob(
        None, "Who gets the alarms; SNS asks for a confirmation first.", pattern=r"[^@\s]+@[^@\s]+"
    )
    dead_letters: int = knob(
        10, "Deliveries that may end dead within 15 minutes before an alarm.", unit="deliveries", ge=1
    )
    time_to_success_s: int = knob(
        300, "Time from event to success, of 95 % of the deliveries, before an alarm.", unit="s", ge=1
    )
    oldest_ready_s: int = knob(120, "Time that a lane may be ready and wait before an alarm.", unit="s", ge=60)
    dashboard: bool = knob(default=True, about="Whether there is a dashboard.", price="$3, the first three free")


class DeliveryConfig(Part):
    """What the functions do: it becomes their settings."""

    retention_days: int = knob(
        30,
        "How long events, deliveries and attempts are kept after they ended.",
        unit="days",
        price="$0.10/GB of database",
        ge=1,
        le=3650,
    )
    presets: Path | None = knob(None, "File of own policy presets (TOML), beside app.py.")
    allow_networks: Networks = knob(
        (), "Networks (CIDR, comma-separated) that endpoints may lie in although they are not public."
    )
    allow_http: bool = knob(
        default=False,
        about="Whether endpoints may be plain http; network.receiver_ports needs their port, such as 80.",
    )
    max_claimers: int = knob(
        4,
        "Claimers awake at once at most.",
        production=10,
        unit="claimers",
        price="by use",
        ge=1,
        le=50,
    )
