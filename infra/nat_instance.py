"""A NAT on one small instance: a tenth of a gateway's price, and out of service while it is replaced.

Owns the instance's image, how it becomes a router, and how deployments replace it. Deliveries that fall into a gap fail
like any other and are retried.
"""

from __future__ import annotations

from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_ec2 as ec2

# Amazon VPC user guide, "Work with NAT instances", on Amazon Linux 2023.
ROUTE = (
    "set -eu",
    # Its role may not use the agent, and the agent's update of itself takes memory that dnf needs.
    "systemctl disable --now amazon-ssm-agent || true",
    # In 512 MB dnf is killed for want of memory now and then.
    "dd if=/dev/zero of=/swapfile bs=1M count=1024",
    "chmod 600 /swapfile",
    "mkswap /swapfile",
    "swapon /swapfile",
    "echo '/swapfile none swap defaults 0 0' >> /etc/fstab",
    # The repository may not be reachable at once.
    "until dnf install -y --setopt=install_weak_deps=False iptables-services; do sleep 5; done",
    # For so little memory the kernel would track about 4,000 connections, each for two minutes after its end: some 30
    # new ones a second. 65,536 take about 20 MB.
    "echo nf_conntrack > /etc/modules-load.d/90-forward.conf",
    "modprobe nf_conntrack",
    "cat > /etc/sysctl.d/90-forward.conf <<'EOF'",
    "net.ipv4.ip_forward=1",
    "net.netfilter.nf_conntrack_max=65536",
    "net.netfilter.nf_conntrack_tcp_timeout_time_wait=30",
    "net.netfilter.nf_conntrack_tcp_timeout_established=3600",
    "EOF",
    "sysctl -p /etc/sysctl.d/90-forward.conf",
    "systemctl enable --now iptables",
    "iptables -t nat -A POSTROUTING -o $(ip -4 route show default | awk '{print $5; exit}') -j MASQUERADE",
    "iptables -F FORWARD",
    "iptables-save > /etc/sysconfig/iptables",
)


class NatInstance:
    """A NAT instance, as a provider for a VPC that does not exist yet.

    The image is the newest Amazon Linux 2023 when a deployment runs, so a deployment brings the security updates: it
    makes a new instance, waits until that one forwards, then moves route and address.
    """

    def __init__(self) -> None:
        """Choose instance and image; `join` does the rest."""
        self._user_data = ec2.UserData.for_linux()
        self.provider = ec2.NatProvider.instance_v2(
            instance_type=ec2.InstanceType("t4g.nano"),
            # Read from AWS's public parameter at deployment, so that synthesizing needs no lookup.
            machine_image=ec2.MachineImage.latest_amazon_linux2023(cpu_type=ec2.AmazonLinuxCpuType.ARM_64),
            # The repository must be reachable before the fixed address is there.
            associate_public_ip_address=True,
            # A T4g starts without credits (Amazon EC2 user guide, "Standard mode concepts"), so that its boot would
            # crawl at a twentieth of a CPU; the surplus that a boot takes costs about a tenth of a cent.
            credit_specification=ec2.CpuCredits.UNLIMITED,
            default_allowed_traffic=ec2.NatTrafficDirection.NONE,
            user_data=self._user_data,
        )

    def join(self, vpc: ec2.Vpc, cidr: str, address: ec2.CfnEIP, ports: tuple[int, ...]) -> str:
        """Finish what the VPC made of the provider.

        Args:
            vpc: The VPC that was given the provider.
            cidr: The VPC's addresses, which it lets in.
            address: The Elastic IP that the instance takes, and its successors after it.
            ports: TCP ports that it forwards, from the VPC to anywhere.

        Returns:
            The instance's id.
        """
        (instance,) = self.provider.gateway_instances
        group = self.provider.security_group
        for port in ports:
            group.add_ingress_rule(ec2.Peer.ipv4(cidr), ec2.Port.tcp(port), "from the functions")
            group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(port), "to receivers and AWS")
        self._user_data.add_signal_on_exit_command(instance)
        self._user_data.add_commands(*ROUTE)
        resource = cast("ec2.CfnInstance", instance.node.default_child)
        resource.cfn_options.creation_policy = cdk.CfnCreationPolicy(
            resource_signal=cdk.CfnResourceSignal(count=1, timeout="PT20M")
        )
        resource.metadata_options = ec2.CfnInstance.MetadataOptionsProperty(
            http_tokens="required", http_put_response_hop_limit=1
        )
        resource.block_device_mappings = [
            ec2.CfnInstance.BlockDeviceMappingProperty(
                device_name="/dev/xvda", ebs=ec2.CfnInstance.EbsProperty(encrypted=True, volume_type="gp3")
            )
        ]
        joined = ec2.CfnEIPAssociation(
            vpc, "NatAddress", allocation_id=address.attr_allocation_id, instance_id=instance.instance_id
        )
        # Routes move when the address has moved: nothing leaves by an address that no receiver knows.
        for subnet in vpc.private_subnets:
            subnet.node.find_child("DefaultRoute").node.add_dependency(joined)
        rules = cdk.Validations.of(instance)
        rules.acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions-EC28",
                reason="Its alarm reads the status checks, which come every minute without detailed monitoring.",
            )
        )
        rules.acknowledge(
            cdk.Acknowledgment(
                id="AwsSolutions-EC29", reason="It keeps nothing, and deployments replace it to bring its updates."
            )
        )
        return instance.instance_id
