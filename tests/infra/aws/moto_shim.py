"""Teaches moto's CloudFormation the resource types of the stack that it lacks, for the length of a `with`.

Each is made by the call of the service's API that CloudFormation itself would make, so it is moto's own object that the
tests read back. Two types only keep that they were there: the migrations, which would need Docker to run, and the
database's instances, which moto does not know of Aurora. Nothing is deleted, since moto cannot delete such a VPC.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any
from unittest.mock import patch

import boto3

type Properties = dict[str, Any]
type Made = tuple[str, Mapping[str, Any]]
"""What `Ref` and what `Fn::GetAtt` give."""


def _without_openapi_validator() -> None:
    """moto imports a validator, and with it a dozen packages, for APIs made from OpenAPI documents. None is."""
    validator, exceptions = ModuleType("openapi_spec_validator"), ModuleType("exceptions")
    validator.validate = exceptions.OpenAPIValidationError = Exception  # type: ignore[attr-defined]
    sys.modules.setdefault("openapi_spec_validator", validator)
    sys.modules.setdefault("openapi_spec_validator.validation", ModuleType("validation"))
    sys.modules.setdefault("openapi_spec_validator.validation.exceptions", exceptions)


_without_openapi_validator()
from moto.cloudformation import parsing  # noqa: E402 - after what it needs

_MAKERS: dict[str, Callable[[str, Properties], Made]] = {}
CUSTOM, SCHEDULE = "Custom::", "AWS::Scheduler::Schedule"
_client = cache(boto3.client)


def _makes(resource_type: str) -> Callable[[Callable[[str, Properties], Made]], Callable[[str, Properties], Made]]:
    """Registers how a resource is made, given the name that CloudFormation would give it and its properties."""

    def register(make: Callable[[str, Properties], Made]) -> Callable[[str, Properties], Made]:
        _MAKERS[resource_type] = make
        return make

    return register


@contextmanager
def known_types() -> Iterator[None]:
    """moto's CloudFormation knows the stack's types; inside `mock_aws(config={"lambda": {"use_docker": False}})`."""
    original = parsing.resource_class_from_type
    models = {resource_type: _model(resource_type) for resource_type in _MAKERS}

    def find(resource_type: str) -> Any:
        known = CUSTOM if resource_type.startswith(CUSTOM) else resource_type
        return models.get(known) or original(resource_type)

    with patch.object(parsing, "resource_class_from_type", find):
        yield
    _client.cache_clear()


def _model(resource_type: str) -> type:
    """A class as moto's CloudFormation wants one for each type."""
    make = _MAKERS[resource_type]

    class Model:
        def __init__(self, name: str, properties: Properties) -> None:
            self.physical_resource_id, self._attributes = make(name, properties)

        @classmethod
        def has_cfn_attr(cls, _attribute: str) -> bool:
            return True

        def get_cfn_attribute(self, attribute: str) -> Any:
            return self._attributes[attribute]

        def is_created(self) -> bool:
            return True

        @classmethod
        def create_from_cloudformation_json(
            cls, name: str, resource: Properties, _account: str, _region: str, **_more: Any
        ) -> Model:
            return cls(name, resource["Properties"])

        @classmethod
        def update_from_cloudformation_json(
            cls, original_resource: Model, cloudformation_json: Properties, **_more: Any
        ) -> Model:
            if resource_type != SCHEDULE:
                raise NotImplementedError(f"teach the shim how to update {resource_type}")
            _client("scheduler").update_schedule(**cloudformation_json["Properties"])
            return original_resource

    return Model


@_makes(CUSTOM)
def _custom(name: str, _properties: Properties) -> Made:
    return name, {}


@_makes("AWS::ApiGatewayV2::Api")
def _api(_name: str, properties: Properties) -> Made:
    made = _client("apigatewayv2").create_api(**properties)
    return made["ApiId"], made


@_makes("AWS::ApiGatewayV2::Integration")
def _integration(_name: str, properties: Properties) -> Made:
    return _client("apigatewayv2").create_integration(**properties)["IntegrationId"], {}


@_makes("AWS::ApiGatewayV2::Route")
def _route(_name: str, properties: Properties) -> Made:
    return _client("apigatewayv2").create_route(**properties)["RouteId"], {}


@_makes("AWS::ApiGatewayV2::Stage")
def _stage(_name: str, properties: Properties) -> Made:
    _client("apigatewayv2").create_stage(**properties)
    return properties["StageName"], {}


@_makes("AWS::CloudWatch::Alarm")
def _alarm(name: str, properties: Properties) -> Made:
    _client("cloudwatch").put_metric_alarm(AlarmName=name, **properties)
    arn = _client("cloudwatch").describe_alarms(AlarmNames=[name])["MetricAlarms"][0]["AlarmArn"]
    return name, {"Arn": arn}


@_makes("AWS::EC2::NatGateway")
def _gateway(_name: str, properties: Properties) -> Made:
    """moto's own has no attribute that names it."""
    made = _client("ec2").create_nat_gateway(SubnetId=properties["SubnetId"], AllocationId=properties["AllocationId"])[
        "NatGateway"
    ]
    return made["NatGatewayId"], made


@_makes("AWS::EC2::EIP")
def _address(_name: str, properties: Properties) -> Made:
    """moto's own has an address, but no attribute of that name."""
    made = _client("ec2").allocate_address(Domain=properties["Domain"])
    return made["PublicIp"], made


@_makes("AWS::EC2::Instance")
def _machine(_name: str, properties: Properties) -> Made:
    """moto's own takes no disk without a size."""
    (interface,) = properties["NetworkInterfaces"]
    (made,) = _client("ec2").run_instances(
        MinCount=1,
        MaxCount=1,
        ImageId=properties["ImageId"],
        InstanceType=properties["InstanceType"],
        SubnetId=interface["SubnetId"],
        SecurityGroupIds=interface["GroupSet"],
    )["Instances"]
    return made["InstanceId"], {}


@_makes("AWS::EC2::EIPAssociation")
def _association(_name: str, properties: Properties) -> Made:
    return _client("ec2").associate_address(**properties)["AssociationId"], {}


@_makes("AWS::EC2::SecurityGroupEgress")
def _egress(name: str, properties: Properties) -> Made:
    ports = {bound: int(properties[bound]) for bound in ("FromPort", "ToPort")}
    pair = {"GroupId": properties["DestinationSecurityGroupId"]}
    rule = {"IpProtocol": properties["IpProtocol"], **ports, "UserIdGroupPairs": [pair]}
    _client("ec2").authorize_security_group_egress(GroupId=properties["GroupId"], IpPermissions=[rule])
    return name, {}


@_makes("AWS::KMS::Key")
def _key(_name: str, properties: Properties) -> Made:
    """moto's own keeps the policy as an object, and then cannot read it."""
    policy = json.dumps(properties["KeyPolicy"])
    made = _client("kms").create_key(Description=properties["Description"], Policy=policy)["KeyMetadata"]
    if properties["EnableKeyRotation"]:
        _client("kms").enable_key_rotation(KeyId=made["KeyId"])
    return made["KeyId"], made


@_makes("AWS::Lambda::EventInvokeConfig")
def _invoke_config(name: str, properties: Properties) -> Made:
    given = {key: value for key, value in properties.items() if key != "Qualifier"}
    _client("lambda").put_function_event_invoke_config(**given)
    return name, {}


@_makes("AWS::Lambda::Url")
def _url(_name: str, properties: Properties) -> Made:
    given = {key: value for key, value in properties.items() if key != "TargetFunctionArn"}
    made = _client("lambda").create_function_url_config(FunctionName=properties["TargetFunctionArn"], **given)
    return made["FunctionArn"], {"FunctionUrl": made["FunctionUrl"], "FunctionArn": made["FunctionArn"]}


@_makes("AWS::RDS::DBSubnetGroup")
def _database_subnets(name: str, properties: Properties) -> Made:
    """moto's own gives no name to a reference."""
    _client("rds").create_db_subnet_group(**({"DBSubnetGroupName": name.lower()} | properties))
    return name.lower(), {}


@_makes("AWS::RDS::DBClusterParameterGroup")
def _cluster_parameters(name: str, properties: Properties) -> Made:
    _client("rds").create_db_cluster_parameter_group(
        DBClusterParameterGroupName=name.lower(),
        DBParameterGroupFamily=properties["Family"],
        Description=properties["Description"],
    )
    return name.lower(), {}


@_makes("AWS::RDS::DBCluster")
def _cluster(name: str, properties: Properties) -> Made:
    made = _client("rds").create_db_cluster(**({"DBClusterIdentifier": name.lower()} | properties))["DBCluster"]
    return made["DBClusterIdentifier"], {
        "DBClusterResourceId": made["DbClusterResourceId"],
        "DBClusterArn": made["DBClusterArn"],
        "Endpoint.Address": made["Endpoint"],
        "Endpoint.Port": made["Port"],
        "MasterUserSecret.SecretArn": made["MasterUserSecret"]["SecretArn"],
    }


@_makes("AWS::RDS::DBInstance")
def _instance(name: str, _properties: Properties) -> Made:
    return name.lower(), {}


@_makes("AWS::SNS::TopicPolicy")
def _topic_policy(name: str, properties: Properties) -> Made:
    for topic in properties["Topics"]:
        _client("sns").set_topic_attributes(
            TopicArn=topic, AttributeName="Policy", AttributeValue=json.dumps(properties["PolicyDocument"])
        )
    return name, {}


@_makes("AWS::SQS::QueuePolicy")
def _queue_policy(name: str, properties: Properties) -> Made:
    for queue in properties["Queues"]:
        _client("sqs").set_queue_attributes(
            QueueUrl=queue, Attributes={"Policy": json.dumps(properties["PolicyDocument"])}
        )
    return name, {}


@_makes("AWS::Scheduler::ScheduleGroup")
def _schedule_group(_name: str, properties: Properties) -> Made:
    made = _client("scheduler").create_schedule_group(Name=properties["Name"])
    return properties["Name"], {"Arn": made["ScheduleGroupArn"]}


@_makes(SCHEDULE)
def _schedule(_name: str, properties: Properties) -> Made:
    made = _client("scheduler").create_schedule(**properties)
    return properties["Name"], {"Arn": made["ScheduleArn"]}
