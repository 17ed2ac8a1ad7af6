"""The database: Aurora PostgreSQL Serverless v2, which only the functions reach, over TLS, with IAM tokens.

Owns the cluster, its parameters, its backups and its log. Knows no role but the master's: the migrations make the
others, and whoever wants in asks `grant_connect` and `url`.
"""

from __future__ import annotations

from typing import Final, cast

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_rds as rds
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.bundling import CERTIFICATES, TASK_ROOT
from infra.config import DatabaseConfig, StackConfig
from infra.log_group import log_group
from infra.network import DATABASE_PORT, DATABASE_SUBNETS, Network

NAME: Final = "forbear"
"""The database's name in the cluster."""

MASTER: Final = "forbear_master"
"""The master user, whom the migrations need for a moment to make the roles."""

CA_FILE: Final = f"{TASK_ROOT}/{CERTIFICATES.as_posix()}"
"""Where the functions find the authorities that sign the database's certificate."""

ENGINE: Final = rds.DatabaseClusterEngine.aurora_postgres(version=rds.AuroraPostgresEngineVersion.of("18", "18"))
"""The major version that the tests run on. The minor one is Aurora's choice, which upgrades by itself in the
maintenance window: one that was named here would be older some day than what runs, or than a snapshot's, and there is
no way back to it. (CloudFormation's schema of DBCluster takes every minor version for the same as its major one.)"""


class Database(Construct):
    """The cluster: one writer, and readers in the other zone that take over.

    Attributes:
        cluster: The cluster.
        secret: The master user's secret, made and rotated weekly by RDS; for the migrations, which make the roles.
    """

    cluster: rds.DatabaseCluster
    secret: secretsmanager.ISecret

    def __init__(self, scope: Construct, construct_id: str, *, config: StackConfig, network: Network) -> None:
        """Build it.

        Args:
            scope: The stack.
            construct_id: The construct's name in it.
            config: What was chosen.
            network: Where it stands.
        """
        super().__init__(scope, construct_id)
        chosen = config.database
        zones = network.vpc.availability_zones
        self.cluster = rds.DatabaseCluster(
            self,
            "Cluster",
            engine=ENGINE,
            parameters=parameters(chosen),
            default_database_name=NAME,
            port=DATABASE_PORT,
            writer=self._instance("Writer", chosen, zones[0]),
            readers=[
                self._instance(f"Reader{number}", chosen, zones[number % len(zones)], scale_with_writer=True)
                for number in range(1, chosen.readers + 1)
            ],
            serverless_v2_min_capacity=chosen.min_acu,
            serverless_v2_max_capacity=chosen.max_acu,
            serverless_v2_auto_pause_duration=None if chosen.min_acu else cdk.Duration.seconds(chosen.auto_pause_s),
            storage_type=rds.DBClusterStorageType.AURORA_IOPT1 if chosen.io_optimized else None,
            vpc=network.vpc,
            vpc_subnets=DATABASE_SUBNETS,
            security_groups=[network.database_group],
            iam_authentication=True,
            # As dear as a secret of our own, but rotated by RDS itself, without a function that knows the password.
            manage_master_user_password=True,
            credentials=rds.Credentials.from_username(MASTER),
            storage_encrypted=True,
            storage_encryption_key=kms.Key(
                self,
                "Key",
                description=f"{config.stack_name}: the database, its backups and snapshots",
                enable_key_rotation=True,
                # Snapshots outlive the stack, and are worth nothing without their key.
                removal_policy=cdk.RemovalPolicy.RETAIN,
            )
            if chosen.own_key
            else None,
            backup=rds.BackupProps(retention=cdk.Duration.days(chosen.backup_days)),
            copy_tags_to_snapshot=True,
            deletion_protection=chosen.deletion_protection,
            removal_policy=cdk.RemovalPolicy.SNAPSHOT if chosen.final_snapshot else cdk.RemovalPolicy.DESTROY,
            cloudwatch_logs_exports=["postgresql"],
        )
        if chosen.snapshot is not None:
            settings = cast("rds.CfnDBCluster", self.cluster.node.default_child)
            settings.snapshot_identifier = chosen.snapshot
            # They come with the snapshot.
            settings.database_name = settings.master_username = None
        self.secret = cast("secretsmanager.ISecret", self.cluster.secret)
        self._keep_log(config.functions.log_retention_days)
        self._accept(chosen)

    def url(self, user: str) -> str:
        """The connection URL for a role; its password is an IAM token, made for each connection.

        Args:
            user: The role, such as `forbear_ingest`.
        """
        host = self.cluster.cluster_endpoint.hostname
        return f"postgresql://{user}@{host}:{DATABASE_PORT}/{NAME}?sslmode=verify-full&sslrootcert={CA_FILE}"

    def grant_connect(self, grantee: iam.IGrantable, user: str) -> None:
        """Let a function make IAM tokens for a role, and for no other.

        Args:
            grantee: The function.
            user: The role.
        """
        self.cluster.grant_connect(grantee, user)

    @staticmethod
    def _instance(
        name: str, chosen: DatabaseConfig, zone: str, *, scale_with_writer: bool | None = None
    ) -> rds.IClusterInstance:
        return rds.ClusterInstance.serverless_v2(
            name,
            scale_with_writer=scale_with_writer,
            availability_zone=zone,
            # Whose authorities are in CA_FILE.
            ca_certificate=rds.CaCertificate.RDS_CA_RSA2048_G1,
            publicly_accessible=False,
            auto_minor_version_upgrade=True,
            enable_performance_insights=chosen.insights,
        )

    def _keep_log(self, retention_days: int) -> None:
        """Make the group that RDS writes to before it does, with a retention, instead of by a custom resource after."""
        group = log_group(
            self,
            "Log",
            name=f"/aws/rds/cluster/{self.cluster.cluster_identifier}/postgresql",
            retention_days=retention_days,
        )
        for instance in self.cluster.node.children:
            if isinstance(instance.node.default_child, rds.CfnDBInstance):
                instance.node.add_dependency(group)

    def _accept(self, chosen: DatabaseConfig) -> None:
        rules = cdk.Validations.of(self.cluster)
        rules.acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions-RDS11",
                reason="Who may connect is decided by security group, TLS and IAM; another port would hide nothing.",
            )
        )
        if not chosen.deletion_protection:
            rules.acknowledge(
                cdk.Acknowledgment(
                    id="AwsSolutions-RDS10",
                    reason="A knob, database.deletion_protection; small can be destroyed, and leaves a snapshot.",
                )
            )


def parameters(chosen: DatabaseConfig) -> dict[str, str]:
    """The cluster's parameters that differ from Aurora's defaults.

    Args:
        chosen: What was chosen for the database.
    """
    return {
        "rds.force_ssl": "1",
        # A frozen environment keeps its socket open. The database pauses when nobody has been connected for
        # auto_pause_s; it should not have to wait for Lambda to give the environment up, too.
        "idle_session_timeout": "600000" if chosen.min_acu else "60000",
        # Every connection sets shorter ones; these are for people with psql. An open transaction keeps vacuum off
        # the queue; nothing that Forbear does holds one for longer than a statement.
        "idle_in_transaction_session_timeout": "60000",
        "statement_timeout": "60000",
        # Parameters are payloads and signing secrets; so is what an error's detail shows of a row.
        "log_min_duration_statement": str(chosen.slow_statement_ms),
        "log_parameter_max_length": "0",
        "log_parameter_max_length_on_error": "0",
        "log_error_verbosity": "terse",
        "log_lock_waits": "1",
        # Plans are made certain and short; compiling one would take longer than running it.
        "jit": "0",
    }
