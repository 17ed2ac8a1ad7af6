"""The VPC: where the database and the functions live, and the one way out to receivers.

Owns subnets, routes, the fixed addresses that deliveries come from, and the security groups. Knows no function and no
cluster; it only opens between the two what they need.
"""

from __future__ import annotations

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from infra.config import StackConfig
from infra.log_group import log_group
from infra.nat_instance import NatInstance

DATABASE_PORT = 5432

FUNCTION_SUBNETS = ec2.SubnetSelection(subnet_group_name="Functions")
DATABASE_SUBNETS = ec2.SubnetSelection(subnet_group_name="Database")


class Network(Construct):
    """The VPC over two zones.

    Deliveries leave through one NAT instance or through NAT gateways, each with an Elastic IP of its own, so that
    receivers can allow the address. There is no IPv6: receivers that have nothing else are rare, and the egress-only
    gateway has no fixed address to allow.

    Attributes:
        vpc: The VPC.
        functions_group: Security group of the functions: out to the database and to receivers' ports, nothing in.
        database_group: Security group of the database: in from the functions, nothing out.
        egress_addresses: IPv4 addresses that deliveries come from.
        nat_instance_ids: The NAT instance, if there is one, for its alarm.
    """

    def __init__(self, scope: Construct, construct_id: str, *, config: StackConfig) -> None:
        """Build it.

        Args:
            scope: The stack.
            construct_id: The construct's name in it.
            config: What was chosen.
        """
        super().__init__(scope, construct_id)
        chosen = config.network
        ports = tuple(sorted(set(chosen.receiver_ports)))
        by_instance = chosen.nat == "instance"
        addresses = self._addresses("InstanceAddress" if by_instance else "GatewayAddress", config)
        instance = NatInstance() if by_instance else None
        self.vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(str(chosen.cidr)),
            max_azs=2,
            nat_gateways=len(addresses),
            nat_gateway_provider=(
                instance.provider
                if instance
                else ec2.NatProvider.gateway(eip_allocation_ids=[each.attr_allocation_id for each in addresses])
            ),
            # Nothing joins the default group (a test sees to it), so closing it is not worth the custom resource, a
            # function that may change security groups, which the CDK would add.
            restrict_default_security_group=False,
            # A NAT needs few addresses, Aurora a handful, the functions' shared interfaces what is left.
            subnet_configuration=[
                ec2.SubnetConfiguration(
                    name="Public", subnet_type=ec2.SubnetType.PUBLIC, cidr_mask=28, map_public_ip_on_launch=False
                ),
                ec2.SubnetConfiguration(name="Functions", subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS),
                ec2.SubnetConfiguration(name="Database", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED, cidr_mask=28),
            ],
            # Free. What CloudFormation waits for from the migrations arrives over S3, also while the NAT is not up yet.
            gateway_endpoints={
                "S3": ec2.GatewayVpcEndpointOptions(
                    service=ec2.GatewayVpcEndpointAwsService.S3, subnets=[FUNCTION_SUBNETS]
                )
            },
        )
        self.egress_addresses = [each.attr_public_ip for each in addresses]
        self.nat_instance_ids = [instance.join(self.vpc, str(chosen.cidr), addresses[0], ports)] if instance else []
        self.functions_group, self.database_group = self._groups(ports)
        if chosen.flow_logs:
            # Ten minutes to a line: the cheapest.
            self.vpc.add_flow_log(
                "FlowLog",
                destination=ec2.FlowLogDestination.to_cloud_watch_logs(
                    log_group(self, "FlowLogs", retention_days=config.functions.log_retention_days)
                ),
                max_aggregation_interval=ec2.FlowLogMaxAggregationInterval.TEN_MINUTES,
            )
        else:
            cdk.Validations.of(self.vpc).acknowledge(
                cdk.Acknowledgment(
                    id="AwsSolutions-VPC7", reason="Flow logs are a knob, network.flow_logs; small does without them."
                )
            )

    def _addresses(self, name: str, config: StackConfig) -> list[ec2.CfnEIP]:
        """The Elastic IPs: one for the instance, or one for each gateway."""
        count = 1 if config.network.nat == "instance" else config.network.nat_gateways
        return [
            ec2.CfnEIP(self, f"{name}{number}", domain="vpc", tags=[cdk.CfnTag(key="Name", value=config.stack_name)])
            for number in range(1, count + 1)
        ]

    def _groups(self, ports: tuple[int, ...]) -> tuple[ec2.SecurityGroup, ec2.SecurityGroup]:
        """The functions' and the database's security groups.

        DNS needs no rule: security groups do not filter what goes to the VPC's own resolver (Amazon VPC user guide,
        "Control traffic to your AWS resources using security groups").
        """
        functions = ec2.SecurityGroup(
            self, "FunctionsGroup", vpc=self.vpc, allow_all_outbound=False, description="Forbear: functions"
        )
        database = ec2.SecurityGroup(
            self, "DatabaseGroup", vpc=self.vpc, allow_all_outbound=False, description="Forbear: database"
        )
        functions.connections.allow_to(database, ec2.Port.tcp(DATABASE_PORT), "functions to the database")
        for port in ports:
            functions.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(port), "receivers, and AWS on 443")
        return functions, database
