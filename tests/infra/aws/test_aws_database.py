from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest
from aws_cdk.assertions import Template
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.roles import ROLE_OF
from infra.bundling import CERTIFICATES, TASK_ROOT
from infra.config import DatabaseConfig
from infra.database import parameters
from tests.infra.aws.conftest import Synthesize
from tests.infra.aws.reading import FUNCTIONS, resources, rights, written

type Connection = psycopg.Connection[tuple[Any, ...]]


def cluster(template: Template) -> dict[str, Any]:
    (found,) = resources(template, "RDS::DBCluster").values()
    return found


def retained(template: Template) -> tuple[str, str]:
    (found,) = template.find_resources("AWS::RDS::DBCluster").values()
    return found["DeletionPolicy"], found["UpdateReplacePolicy"]


def test_small_scales_to_nothing_and_has_one_instance(template: Synthesize) -> None:
    made = template()
    assert cluster(made)["ServerlessV2ScalingConfiguration"] == {
        "MinCapacity": 0,
        "MaxCapacity": 4,
        "SecondsUntilAutoPause": 300,
    }
    assert len(resources(made, "RDS::DBInstance")) == 1


def test_production_never_pauses_and_a_reader_in_the_other_zone_takes_over(template: Synthesize) -> None:
    made = template("production")
    assert cluster(made)["ServerlessV2ScalingConfiguration"] == {"MinCapacity": 0.5, "MaxCapacity": 16}
    instances = list(resources(made, "RDS::DBInstance").values())
    assert [each["AvailabilityZone"]["Fn::Select"][0] for each in instances] == [0, 1]
    # Tiers 0 and 1 are as large as the writer at any time, so that a failover meets a database of the same size.
    assert all(each["PromotionTier"] in (0, 1) for each in instances)


@pytest.mark.parametrize("profile", ["small", "production"])
def test_who_connects_proves_it_over_tls_and_nobody_does_from_outside(template: Synthesize, profile: str) -> None:
    made = template(profile)
    (group,) = resources(made, "RDS::DBClusterParameterGroup").values()
    assert group["Parameters"]["rds.force_ssl"] == "1"
    assert cluster(made)["EnableIAMDatabaseAuthentication"] is True
    assert cluster(made)["StorageEncrypted"] is True
    for instance in resources(made, "RDS::DBInstance").values():
        assert instance["PubliclyAccessible"] is False
        assert instance["CACertificateIdentifier"] == "rds-ca-rsa2048-g1"
    subnets = resources(made, "RDS::DBSubnetGroup").values()
    assert all("VpcDatabaseSubnet" in written(subnet) for each in subnets for subnet in each["SubnetIds"])


@pytest.mark.parametrize("profile", ["small", "production"])
def test_nobody_asks_a_database_to_go_back_to_an_older_minor_version(template: Synthesize, profile: str) -> None:
    """Aurora upgrades them by itself, and what is restored may be newer than the code that restores it."""
    made = template(profile)
    assert "." not in cluster(made)["EngineVersion"]
    assert not any("EngineVersion" in each for each in resources(made, "RDS::DBInstance").values())


def test_it_is_the_major_version_that_the_tests_run_on(template: Synthesize, connection: Connection) -> None:
    major, _ = divmod(connection.info.server_version, 10_000)
    made = template()
    assert cluster(made)["EngineVersion"] == str(major)
    (group,) = resources(made, "RDS::DBClusterParameterGroup").values()
    assert group["Family"] == f"aurora-postgresql{major}"


def test_the_master_password_is_rds_own_affair(template: Synthesize) -> None:
    made = template()
    assert cluster(made)["ManageMasterUserPassword"] is True
    assert "MasterUserPassword" not in cluster(made)
    made.resource_count_is("AWS::SecretsManager::Secret", 0)


def test_a_snapshot_brings_its_database_and_its_master(template: Synthesize) -> None:
    """What CloudFormation wants with a SnapshotIdentifier; the migrations run on what was restored."""
    arn = "arn:aws:rds:eu-central-1:123456789012:cluster-snapshot:rds:forbear-2026-11-30-03-07"
    restored = template(**{"database.snapshot": arn})
    assert cluster(restored)["SnapshotIdentifier"] == arn
    assert cluster(restored).keys() & {"DatabaseName", "MasterUsername"} == set()
    assert list(restored.find_resources("AWS::RDS::DBCluster")) == list(
        template().find_resources("AWS::RDS::DBCluster")
    )
    for step in restored.find_resources("Custom::ForbearMigrations").values():
        assert "DBClusterResourceId" in written(step["Properties"]["Database"])
        assert step["Properties"]["Restored"] == arn
    for step in template().find_resources("Custom::ForbearMigrations").values():
        assert "Restored" not in step["Properties"]


def test_a_url_names_its_role_holds_no_password_and_checks_the_server(template: Synthesize) -> None:
    made = template()
    urls = {
        written(function["Environment"]["Variables"]["FORBEAR_DATABASE_URL"])
        for function in resources(made, "Lambda::Function").values()
    }
    (name,) = resources(made, "RDS::DBCluster")
    expected = rf"postgresql://forbear_(\w+)@<{name}\.Endpoint\.Address>:5432/forbear\?sslmode=verify-full&sslrootcert="
    file = re.escape(f"{TASK_ROOT}/{CERTIFICATES.as_posix()}")
    users = {matched[1] for url in urls if (matched := re.fullmatch(expected + file, url))}
    assert users == {"ingest", "manage", "replay", "claimer", "owner"}
    assert len(users) == len(urls)


@pytest.mark.parametrize("profile", ["small", "production"])
def test_a_role_may_become_one_user_of_this_cluster_and_migrate_the_master_too(
    template: Synthesize, profile: str
) -> None:
    """RDS may refuse a password to a master that has made the roles: it is a member of them, and they use tokens."""
    made = template(profile)
    (name,) = resources(made, "RDS::DBCluster")
    for function in FUNCTIONS:
        users = {
            resource.partition(f":dbuser:<{name}.DBClusterResourceId>/")[2]
            for action, resource in rights(made, f"Functions{function.capitalize()}Role")
            if action == "rds-db:connect"
        }
        master = {cluster(made)["MasterUsername"]} if function == "migrate" else set()
        assert users == {ROLE_OF[function]} | master, function


def test_a_deleted_database_leaves_a_snapshot_unless_it_was_told_otherwise(template: Synthesize) -> None:
    assert retained(template()) == retained(template("production")) == ("Snapshot", "Snapshot")
    assert retained(template(**{"database.final_snapshot": False})) == ("Delete", "Delete")


def test_what_protects_production_can_be_chosen_in_small(template: Synthesize) -> None:
    assert cluster(template())["DeletionProtection"] is False
    assert cluster(template("production"))["DeletionProtection"] is True
    chosen = cluster(template(**{"database.deletion_protection": True, "database.backup_days": 35}))
    assert (chosen["DeletionProtection"], chosen["BackupRetentionPeriod"]) == (True, 35)


def test_an_own_key_outlives_the_stack_as_its_snapshots_do(template: Synthesize) -> None:
    made = template(**{"database.own_key": True})
    ((name, key),) = (
        (name, one) for name, one in made.find_resources("AWS::KMS::Key").items() if name.startswith("Database")
    )
    assert key["DeletionPolicy"] == "Retain"
    assert key["Properties"]["EnableKeyRotation"] is True
    assert written(cluster(made)["KmsKeyId"]) == f"<{name}.Arn>"
    assert "KmsKeyId" not in cluster(template())


def test_storage_and_insights_are_choices(template: Synthesize) -> None:
    made = template(**{"database.io_optimized": True, "database.insights": True})
    assert cluster(made)["StorageType"] == "aurora-iopt1"
    assert all(each["EnablePerformanceInsights"] for each in resources(made, "RDS::DBInstance").values())
    assert "StorageType" not in cluster(template())


@pytest.mark.parametrize("profile", ["small", "production"])
def test_the_log_has_a_retention_before_the_first_line_is_written(template: Synthesize, profile: str) -> None:
    made = template(profile)
    (name,) = resources(made, "RDS::DBCluster")
    ((log, _),) = (
        (key, each)
        for key, each in resources(made, "Logs::LogGroup").items()
        if written(each.get("LogGroupName")) == f"/aws/rds/cluster/<{name}>/postgresql"
    )
    for instance in made.find_resources("AWS::RDS::DBInstance").values():
        assert log in instance["DependsOn"]


def test_postgresql_knows_the_parameters_and_takes_their_values(connection: Connection) -> None:
    for name, value in parameters(DatabaseConfig()).items():
        if not name.startswith("rds."):
            connection.execute("SELECT set_config(%s, %s, true)", (name, value))


@settings(max_examples=50)
@given(st.integers(300, 86_400))
def test_frozen_sockets_end_long_before_the_database_would_pause(auto_pause_s: int) -> None:
    chosen = parameters(DatabaseConfig(auto_pause_s=auto_pause_s))
    assert 0 < int(chosen["idle_session_timeout"]) <= auto_pause_s * 1000 / 5


def test_slow_statements_are_logged_and_what_they_carry_is_not() -> None:
    chosen = parameters(DatabaseConfig(slow_statement_ms=250))
    assert (chosen["log_min_duration_statement"], chosen["log_parameter_max_length"]) == ("250", "0")
