"""What the emulated deployment leaves out of the stack's template, and what it puts in its place.

The one list of it. Everything that is not named here is deployed as it was synthesized. Knows no CDK and no process: a
template goes in, a template comes out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

TYPES = {
    "AWS::CloudWatch::Alarm": "those of a formula; the emulator knows alarms on one metric",
    "AWS::EC2::EIP": "the emulator has no addresses to give",
    "AWS::EC2::EIPAssociation": "nor any to move",
    "AWS::EC2::FlowLog": "nothing flows",
    "AWS::EC2::Instance": "the NAT instance; the functions run on this machine",
    "AWS::EC2::NatGateway": "likewise",
    "AWS::EC2::SecurityGroupEgress": "the emulator takes a group's own rules only",
    "AWS::EC2::SecurityGroupIngress": "likewise",
}
"""Resource types that are left out, because the emulator does not know them, and what of them."""

REPLACED = {
    "Aurora": "the emulator keeps its description only; the functions use an embedded PostgreSQL, each as its role. "
    "That has no TLS, and trusts its users instead of checking their IAM tokens",
    "the master user's secret": "RDS would make it; the template does, with the same content",
    "references to a secret": "the emulator gives a secret's name where CloudFormation gives its ARN",
    "the purposes of data keys in the functions' rights": "the emulator's policies do not know a request's encryption "
    "context. Its KMS does: a key that was wrapped for one purpose is not unwrapped for another",
    "whose signature a function URL checked": "the emulator does not tell the function, as AWS does: replay is open "
    "to whoever the emulator lets through",
    "the claimer's right to its schedule": "the emulator asks for the right to the group `default`, whatever the group",
}
"""What is changed, and how."""

MASTER_SECRET = "EmulatedMasterSecret"
MASTER = "forbear_master"
_USER = re.compile(r"postgresql://(\w+)@")
_PURPOSE = "kms:EncryptionContext:forbear"
_SCHEDULE = re.compile(r":schedule/[\w-]+/")


def for_emulator(template: Mapping[str, Any], database: str) -> tuple[dict[str, Any], list[str]]:
    """The template that the emulator can deploy.

    Args:
        template: the stack's, as it was synthesized.
        database: host, port and name of the database that stands in for Aurora, `127.0.0.1:5432/forbear`.

    Returns:
        The template, and a line about each resource that is not in it any more.
    """
    resources = {name: one for name, one in template["Resources"].items() if not _is_left_out(one)}
    told = [
        f"{one['Type']} {name}: {TYPES[one['Type']]}"
        for name, one in template["Resources"].items()
        if name not in resources
    ]
    for one in resources.values():
        variables = one.get("Properties", {}).get("Environment", {}).get("Variables", {})
        if "FORBEAR_DATABASE_URL" in variables:
            (user,) = _USER.findall(str(variables["FORBEAR_DATABASE_URL"]))
            variables["FORBEAR_DATABASE_URL"] = f"postgresql://{user}@{database}?sslmode=disable"
        if one.get("Properties", {}).get("Handler") == "replay.handler":
            variables["FORBEAR_OPEN"] = "true"
    resources[MASTER_SECRET] = {
        "Type": "AWS::SecretsManager::Secret",
        "Properties": {"SecretString": f'{{"username": "{MASTER}", "password": "not asked for"}}'},
    }
    kept: dict[str, Any] = {**template, "Resources": resources}
    kept["Parameters"] = {
        name: one
        for name, one in template.get("Parameters", {}).items()
        if not one["Type"].startswith("AWS::SSM::Parameter::Value<AWS::EC2::Image")
    }
    secrets = {name for name, one in resources.items() if one["Type"] == "AWS::SecretsManager::Secret"}
    gone = {name for name in template["Resources"] if name not in resources}
    return _rewritten(kept, gone, secrets), told


def _is_left_out(resource: Mapping[str, Any]) -> bool:
    is_simple_alarm = resource["Type"] == "AWS::CloudWatch::Alarm" and "Metrics" not in resource["Properties"]
    return resource["Type"] in TYPES and not is_simple_alarm


def _rewritten(value: Any, gone: set[str], secrets: set[str]) -> Any:
    """The same with no reference to what is gone, with ARNs of secrets, and rights to data keys of any purpose."""
    match value:
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), *_]} if name in gone:
            return f"{name} is left out"
        case {"Ref": str(name)} if name in secrets:
            return {"Fn::GetAtt": [name, "Id"]}
        case {"Fn::GetAtt": [_, "MasterUserSecret.SecretArn"]}:
            return {"Fn::GetAtt": [MASTER_SECRET, "Id"]}
        case dict():
            kept = {
                key: _rewritten(one, gone, secrets)
                for key, one in value.items()
                if key != "Condition" or _PURPOSE not in str(one)
            }
            return kept if "DependsOn" not in kept else {**kept, "DependsOn": _without(kept["DependsOn"], gone)}
        case list():
            return [_rewritten(one, gone, secrets) for one in value]
    return _SCHEDULE.sub(":schedule/default/", value) if isinstance(value, str) else value


def _without(names: str | list[str], gone: set[str]) -> list[str]:
    return [name for name in ([names] if isinstance(names, str) else names) if name not in gone]
