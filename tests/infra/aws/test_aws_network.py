from __future__ import annotations

import subprocess
from typing import Any

import pytest
from aws_cdk.assertions import Template

from tests.infra.aws.conftest import Synthesize
from tests.infra.aws.reading import resources, written

PROFILES = pytest.mark.parametrize("profile", ["small", "production"])


def default_routes(template: Template) -> dict[str, str]:
    """Where each route table sends what is not for the VPC: a kind of way out."""
    return {
        written(route["RouteTableId"]): next(key for key in route if key.endswith("Id") and key != "RouteTableId")
        for route in resources(template, "EC2::Route").values()
        if route["DestinationCidrBlock"] == "0.0.0.0/0"
    }


def tables_of(template: Template, subnets: str) -> set[str]:
    return {
        written(each["RouteTableId"])
        for each in resources(template, "EC2::SubnetRouteTableAssociation").values()
        if f"Vpc{subnets}Subnet" in written(each["SubnetId"])
    }


def group(template: Template, name: str) -> dict[str, Any]:
    (found,) = (each for key, each in resources(template, "EC2::SecurityGroup").items() if name in key)
    return found


def opened(rules: list[dict[str, Any]]) -> set[tuple[str, int]]:
    """The rules as (peer, port), without the CDK's way of saying that nothing is allowed."""
    assert all(rule["FromPort"] == rule["ToPort"] for rule in rules if rule["IpProtocol"] == "tcp")
    assert {rule["IpProtocol"] for rule in rules} <= {"tcp", "icmp"}
    return {(rule["CidrIp"], rule["FromPort"]) for rule in rules if rule["IpProtocol"] == "tcp"}


@PROFILES
@pytest.mark.parametrize("subnets", ["Public", "Functions", "Database"])
def test_every_kind_of_subnet_lies_in_two_zones(template: Synthesize, profile: str, subnets: str) -> None:
    found = [each for key, each in resources(template(profile), "EC2::Subnet").items() if f"Vpc{subnets}Subnet" in key]
    assert [each["AvailabilityZone"]["Fn::Select"][0] for each in found] == [0, 1]
    assert not any(each.get("MapPublicIpOnLaunch") or each.get("AssignIpv6AddressOnCreation") for each in found)


@pytest.mark.parametrize(("profile", "way"), [("small", "InstanceId"), ("production", "NatGatewayId")])
def test_functions_leave_through_the_nat_and_the_database_never(template: Synthesize, profile: str, way: str) -> None:
    made = template(profile)
    routes = default_routes(made)
    assert {routes[table] for table in tables_of(made, "Functions")} == {way}
    assert {routes[table] for table in tables_of(made, "Public")} == {"GatewayId"}
    assert not tables_of(made, "Database") & routes.keys()


def test_a_nat_instance_keeps_its_address_when_it_is_replaced(template: Synthesize) -> None:
    made = template()
    ((instance, _),) = resources(made, "EC2::Instance").items()
    ((address, _),) = resources(made, "EC2::EIP").items()
    (joined,) = resources(made, "EC2::EIPAssociation").values()
    assert written(joined["InstanceId"]) == f"<{instance}>"
    assert written(joined["AllocationId"]) == f"<{address}.AllocationId>"


def test_nothing_leaves_by_an_address_that_is_not_listed(template: Synthesize) -> None:
    """While an instance is replaced: the routes lead to the new one when it has the address."""
    made = template()
    ((joined, _),) = resources(made, "EC2::EIPAssociation").items()
    waiting = [
        written(route["Properties"]["RouteTableId"])
        for route in made.find_resources("AWS::EC2::Route").values()
        if "InstanceId" in route["Properties"] and joined in route["DependsOn"]
    ]
    assert {*waiting} == tables_of(made, "Functions")
    assert len(waiting) == 2


def boot(template: Template) -> str:
    """What a NAT instance runs when it starts for the first time."""
    (instance,) = resources(template, "EC2::Instance").values()
    return written(instance["UserData"]["Fn::Base64"])


def test_a_nat_instance_boots_by_a_script_that_bash_understands(template: Synthesize) -> None:
    done = subprocess.run(["/bin/bash", "-n"], input=boot(template()), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_nat_instance_has_room_for_dnf_before_it_is_asked(template: Synthesize) -> None:
    script = boot(template())
    assert script.index("disable --now amazon-ssm-agent") < script.index("swapon") < script.index("dnf install")
    assert "/swapfile none swap" in script[: script.index("dnf install")]


def test_a_nat_instance_tracks_more_connections_than_its_memory_would_get_it(template: Synthesize) -> None:
    """The module is there before the settings are applied, now and at each boot."""
    script = boot(template())
    assert script.index("/etc/modules-load.d/") < script.index("modprobe nf_conntrack") < script.index("sysctl -p")
    _, _, file = script.partition("/etc/sysctl.d/90-forward.conf <<'EOF'\n")
    assert file.partition("EOF\n")[0].splitlines() == [
        "net.ipv4.ip_forward=1",
        "net.netfilter.nf_conntrack_max=65536",
        "net.netfilter.nf_conntrack_tcp_timeout_time_wait=30",
        "net.netfilter.nf_conntrack_tcp_timeout_established=3600",
    ]


def test_a_nat_instance_forwards_before_the_routes_lead_to_it(template: Synthesize) -> None:
    ((name, instance),) = template().find_resources("AWS::EC2::Instance").items()
    script = boot(template())
    assert instance["CreationPolicy"]["ResourceSignal"] == {"Count": 1, "Timeout": "PT20M"}
    assert f"cfn-signal --stack Forbear --resource {name} --region <AWS::Region> -e $exitCode" in script
    assert script.index("trap exitTrap EXIT") < script.index("set -eu") < script.index("MASQUERADE")
    assert script.index("MASQUERADE") < script.index("iptables-save > /etc/sysconfig/iptables")
    assert instance["Properties"]["SourceDestCheck"] is False


def test_a_nat_instance_is_small_encrypted_and_up_to_date(template: Synthesize) -> None:
    made = template()
    (instance,) = resources(made, "EC2::Instance").values()
    assert instance["InstanceType"] == "t4g.nano"
    assert instance["CreditSpecification"] == {"CPUCredits": "unlimited"}
    image = made.to_json()["Parameters"][instance["ImageId"]["Ref"]]
    assert image["Type"] == "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>"
    assert "al2023" in image["Default"]
    assert "arm64" in image["Default"]


def test_a_nat_instance_forwards_receivers_ports_for_the_vpc_and_nothing_else(template: Synthesize) -> None:
    nat = group(template(**{"network.receiver_ports": "443,8443", "network.cidr": "10.9.0.0/20"}), "NatSecurityGroup")
    assert opened(nat["SecurityGroupIngress"]) == {("10.9.0.0/20", 443), ("10.9.0.0/20", 8443)}
    assert opened(nat["SecurityGroupEgress"]) == {("0.0.0.0/0", 443), ("0.0.0.0/0", 8443)}


@pytest.mark.parametrize(("chosen", "count"), [({}, 2), ({"network.nat_gateways": 1}, 1)])
def test_each_nat_gateway_has_an_address_of_its_own(template: Synthesize, chosen: dict[str, int], count: int) -> None:
    made = template("production", **chosen)
    gateways = resources(made, "EC2::NatGateway").values()
    assert {written(each["AllocationId"]) for each in gateways} == {
        f"<{address}.AllocationId>" for address in resources(made, "EC2::EIP")
    }
    assert len(gateways) == count
    assert len({written(each["SubnetId"]) for each in gateways}) == count


@PROFILES
def test_the_addresses_that_deliveries_come_from_are_told(template: Synthesize, profile: str) -> None:
    made = template(profile)
    told = written(made.find_outputs("EgressAddresses")["EgressAddresses"]["Value"])
    assert told.split(", ") == [f"<{address}.PublicIp>" for address in resources(made, "EC2::EIP")]


@PROFILES
def test_the_database_hears_the_functions_and_says_nothing_itself(template: Synthesize, profile: str) -> None:
    made = template(profile)
    (functions_id,) = (key for key in resources(made, "EC2::SecurityGroup") if "FunctionsGroup" in key)
    (database_id,) = (key for key in resources(made, "EC2::SecurityGroup") if "DatabaseGroup" in key)
    (into,) = resources(made, "EC2::SecurityGroupIngress").values()
    (out,) = resources(made, "EC2::SecurityGroupEgress").values()
    assert (written(into["GroupId"]), written(into["SourceSecurityGroupId"])) == (
        f"<{database_id}.GroupId>",
        f"<{functions_id}.GroupId>",
    )
    assert (written(out["GroupId"]), written(out["DestinationSecurityGroupId"])) == (
        f"<{functions_id}.GroupId>",
        f"<{database_id}.GroupId>",
    )
    assert {each[end] for each in (into, out) for end in ("FromPort", "ToPort")} == {5432}
    assert not opened(group(made, "DatabaseGroup")["SecurityGroupEgress"])


@PROFILES
def test_functions_reach_receivers_ports_and_nobody_reaches_functions(template: Synthesize, profile: str) -> None:
    functions = group(template(profile), "FunctionsGroup")
    assert opened(functions["SecurityGroupEgress"]) == {("0.0.0.0/0", 443)}
    assert "SecurityGroupIngress" not in functions


def test_other_ports_open_when_endpoints_may_have_them(template: Synthesize) -> None:
    made = template(**{"network.receiver_ports": "443,80", "delivery.allow_http": True})
    assert opened(group(made, "FunctionsGroup")["SecurityGroupEgress"]) == {("0.0.0.0/0", 443), ("0.0.0.0/0", 80)}


def test_the_migrations_answer_reaches_cloudformation_without_the_nat(template: Synthesize) -> None:
    made = template()
    (endpoint,) = resources(made, "EC2::VPCEndpoint").values()
    assert endpoint["VpcEndpointType"] == "Gateway"
    assert written(endpoint["ServiceName"]) == "com.amazonaws.<AWS::Region>.s3"
    assert {written(table) for table in endpoint["RouteTableIds"]} == tables_of(made, "Functions")


@pytest.mark.parametrize(
    ("profile", "chosen", "logged"),
    [("small", {}, False), ("production", {}, True), ("small", {"network.flow_logs": True}, True)],
)
def test_flow_logs_are_a_choice(template: Synthesize, profile: str, chosen: dict[str, bool], *, logged: bool) -> None:
    made = template(profile, **chosen)
    assert len(resources(made, "EC2::FlowLog")) == logged
    for log in resources(made, "EC2::FlowLog").values():
        assert (log["TrafficType"], log["MaxAggregationInterval"]) == ("ALL", 600)


def test_the_smallest_range_holds_all_subnets(template: Synthesize) -> None:
    made = template(**{"network.cidr": "192.168.7.0/24"})
    assert {each["CidrBlock"] for each in resources(made, "EC2::Subnet").values()} == {
        "192.168.7.0/28",
        "192.168.7.16/28",
        "192.168.7.32/28",
        "192.168.7.48/28",
        "192.168.7.64/26",
        "192.168.7.128/26",
    }
