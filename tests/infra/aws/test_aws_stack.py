from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from aws_cdk.assertions import Template
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from infra.stack import MIGRATIONS, RIGHTS, migrations_digest
from tests.infra.aws.conftest import ROOT, Synthesize
from tests.infra.aws.reading import FUNCTIONS, resources, written

PROFILES = pytest.mark.parametrize("profile", ["small", "production"])
NO_BUNDLING: dict[str, Any] = {"aws:cdk:bundling-stacks": []}


@cache
def schema(of_type: str) -> dict[str, Any]:
    """CloudFormation's own description of a type."""
    found: dict[str, Any] = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", of_type).schema
    return found


def top_level(pointers: list[str]) -> set[str]:
    """The properties that JSON pointers such as /properties/Name lead to, or into."""
    return {pointer.split("/")[2] for pointer in pointers}


def before(template: Template, name: str) -> set[str]:
    """Everything that a resource comes after, directly or not: by DependsOn, or by a reference in its properties."""
    everything = template.to_json()["Resources"]
    found: set[str] = set()
    waiting = [name]
    while waiting:
        resource = everything[waiting.pop()]
        direct = {*resource.get("DependsOn", []), *referred(resource.get("Properties", {}))}
        new = (direct & everything.keys()) - found
        found |= new
        waiting += new
    return found


def referred(value: Any) -> Iterator[str]:
    match value:
        case {"Ref": str(name)} | {"Fn::GetAtt": [str(name), _]}:
            yield name
        case dict():
            for inner in value.values():
                yield from referred(inner)
        case list():
            for inner in value:
                yield from referred(inner)


def of_type(template: Template, name: str) -> set[str]:
    return set(template.find_resources(name))


def function_ids(template: Template) -> dict[str, str]:
    found = resources(template, "Lambda::Function")
    return {each["Handler"].partition(".")[0]: name for name, each in found.items()}


@PROFILES
def test_migrations_come_when_the_database_and_the_way_out_are_there(template: Synthesize, profile: str) -> None:
    made = template(profile)
    earlier = before(made, "MigrationsPre")
    assert function_ids(made)["migrate"] in earlier
    for needed in ("RDS::DBInstance", "RDS::DBCluster", "EC2::Route", "EC2::VPCEndpoint", "EC2::SecurityGroupIngress"):
        assert of_type(made, f"AWS::{needed}") <= earlier, needed


@PROFILES
def test_old_code_and_new_meet_a_schema_that_both_can_use(template: Synthesize, profile: str) -> None:
    made = template(profile)
    for name, resource in function_ids(made).items():
        assert ("MigrationsPre" in before(made, resource)) == (name != "migrate"), name
    for schedule in of_type(made, "AWS::Scheduler::Schedule"):
        assert "MigrationsPre" in before(made, schedule)


@PROFILES
def test_what_only_the_old_code_needs_goes_when_nothing_else_can_fail(template: Synthesize, profile: str) -> None:
    """If something could, the old code would come back to a schema that it cannot use."""
    made = template(profile)
    assert before(made, "MigrationsPost") == made.to_json()["Resources"].keys() - {"MigrationsPost"}


def test_a_migration_runs_when_its_files_change_and_fails_without_keeping_anybody(template: Synthesize) -> None:
    for name, phase in (("MigrationsPre", "pre"), ("MigrationsPost", "post")):
        step = template().to_json()["Resources"][name]["Properties"]
        assert (step["Phase"], step["Migrations"], step["ServiceTimeout"]) == (phase, migrations_digest(), "1200")


def test_the_digest_changes_with_every_migration_role_and_grant_and_with_nothing_else(tmp_path: Path) -> None:
    (tmp_path / MIGRATIONS).mkdir(parents=True)
    for name in RIGHTS:
        (tmp_path / name).touch()
    seen = {migrations_digest(tmp_path)}
    for name in (f"{MIGRATIONS}/0001_first.sql", f"{MIGRATIONS}/0002_second.sql", *RIGHTS):
        (tmp_path / name).write_text("SELECT 1;")
        seen.add(migrations_digest(tmp_path))
        (tmp_path / name).write_text("SELECT 2;")
        seen.add(migrations_digest(tmp_path))
    assert len(seen) == 13
    (tmp_path / "sql" / "settle.sql").write_text("SELECT 3;")
    assert migrations_digest(tmp_path) in seen


@PROFILES
def test_the_outputs_say_what_people_need_next(template: Synthesize, profile: str) -> None:
    told = template(profile).find_outputs("*")
    assert {*told} == {
        *("ApiUrl", "ReplayUrl", "EgressAddresses", "ProducerPolicy", "OperatorPolicy"),
        *("AlarmTopic", "Dashboard", "FirstEvent", "SecretsKey"),
    }
    assert all(each["Description"] for each in told.values())
    assert written(told["FirstEvent"]["Value"]).startswith(f"forbear --url {written(told['ApiUrl']['Value'])} send ")


def test_with_tokens_the_first_event_carries_one_and_no_policy_is_offered(template: Synthesize) -> None:
    told = template(**{"api.auth.issuer": "https://issuer.example.com", "api.auth.audiences": "forbear"}).find_outputs(
        "*"
    )
    assert "ProducerPolicy" not in told
    assert "curl <" in written(told["FirstEvent"]["Value"])
    assert "Bearer $TOKEN" in written(told["FirstEvent"]["Value"])


def test_a_domain_of_its_own_says_where_its_record_points_to(template: Synthesize) -> None:
    made = template(
        **{
            "api.domain_name": "hooks.example.com",
            "api.certificate_arn": "arn:aws:acm:us-east-1:123456789012:certificate/0a1b-2c3d",
        }
    )
    assert made.find_outputs("ApiUrl")["ApiUrl"]["Value"] == "https://hooks.example.com"
    assert "RegionalDomainName" in written(made.find_outputs("ApiDomainTarget")["ApiDomainTarget"]["Value"])


def test_two_stacks_in_one_account_and_region_do_not_collide(template: Synthesize) -> None:
    first, second = names(template()), names(template(stack_name="Hooks"))
    assert not first & second
    keys = names(template(**{"api.keys": True})) - first
    assert not any(keys & names(template(stack_name=name)) for name in ("Forbear-keys", "Forbear-api-keys"))
    assert ("AWS::Scheduler::Schedule", "tick, Forbear") in first
    assert ("AWS::Scheduler::ScheduleGroup", "Forbear") in first


def names(template: Template) -> set[tuple[str, str]]:
    """What is called by a name of ours that AWS wants to be unique; what is found by a generated id is not."""
    found = set()
    for resource in template.to_json()["Resources"].values():
        if resource["Type"].startswith("AWS::"):
            described, given = schema(resource["Type"]), resource.get("Properties", {})
            identity = top_level(described["primaryIdentifier"])
            if resource["Type"] == "AWS::Scheduler::Schedule":
                identity.add("GroupName")  # the schema forgets it
            if identity <= given.keys():
                found.add(
                    (resource["Type"], ", ".join(written(given[each]) for each in sorted(identity, reverse=True)))
                )
    return {(kind, name) for kind, name in found if "<" not in name}


def replaced(old: Template, new: Template) -> set[str]:
    """The resources of both that an update from one to the other would make anew."""
    first, second = old.to_json()["Resources"], new.to_json()["Resources"]
    return {
        name
        for name in first.keys() & second.keys()
        if first[name]["Type"].startswith("AWS::")
        for part in top_level(schema(first[name]["Type"]).get("createOnlyProperties", []))
        if first[name].get("Properties", {}).get(part) != second[name].get("Properties", {}).get(part)
    }


def test_moving_between_the_profiles_keeps_whatever_holds_something(template: Synthesize) -> None:
    small, production = template(), template("production")
    assert not replaced(small, production)
    gone = small.to_json()["Resources"].keys() ^ production.to_json()["Resources"].keys()
    everything = small.to_json()["Resources"] | production.to_json()["Resources"]
    kinds = {everything[name]["Type"] for name in gone}
    assert not kinds & {"AWS::RDS::DBCluster", "AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::Lambda::Function"}


def test_what_replaces_the_database_says_so(template: Synthesize) -> None:
    assert of_type(template(), "AWS::RDS::DBCluster") <= replaced(template(), template(**{"database.own_key": True}))


def run_app(tmp_path: Path, prelude: str = "", **context: Any) -> subprocess.CompletedProcess[str]:
    """Run app.py as `cdk` does, without anything that looks like credentials or a region."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "CDK_"))}
    return subprocess.run(
        [sys.executable, "-c", f"{prelude}\nimport runpy; runpy.run_path('app.py', run_name='__main__')"],
        env=environment
        | {
            "CDK_OUTDIR": str(tmp_path),
            "CDK_CONTEXT_JSON": json.dumps(NO_BUNDLING | context),
            "CDK_VALIDATION": "false",
            "AWS_EC2_METADATA_DISABLED": "true",
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_wrong_knob_is_told_in_a_line_instead_of_a_traceback(tmp_path: Path) -> None:
    done = run_app(tmp_path, **{"database.max_acu": "much"})
    assert done.returncode == 1
    assert done.stderr.startswith("forbear: database.max_acu: Input should be a valid number")
    assert done.stderr.count("\n") == 1


def test_deploying_needs_no_development_tool_no_account_and_no_lookup(tmp_path: Path) -> None:
    without = "import sys; sys.modules.update(dict.fromkeys(['cdk_nag', 'cfnlint', 'moto', 'pytest']))"
    done = run_app(tmp_path, without, profile="production")
    assert (done.returncode, done.stderr) == (0, "")
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert "missing" not in manifest
    stack = manifest["artifacts"]["Forbear"]
    assert stack["environment"] == "aws://unknown-account/unknown-region"
    assert stack["properties"]["terminationProtection"] is True
    assert stack["properties"]["tags"] == {"application": "forbear", "forbear-stack": "Forbear"}


def test_no_function_but_our_own_is_deployed(template: Synthesize) -> None:
    for profile in ("small", "production"):
        assert {*function_ids(template(profile))} == {*FUNCTIONS}
        assert len(resources(template(profile), "Lambda::Function")) == len(FUNCTIONS)
