"""The HTTP APIs: who may call them, at which address, and the policies that a team attaches to its own roles.

One is for whoever signs, or brings a token of an issuer; API Gateway turns away everybody else. The other one, which
has to be chosen, is for API keys of Forbear's own: a route has one authorizer, and none of API Gateway's knows them.

Owns authentication and the domain name. What both have in common stands in `infra.http_api`.

What a function can tell of an event: one that was admitted holds `requestContext.authorizer.iam` (the caller) or `.jwt`
(the claims); one that came by a function URL for signed requests holds `.iam`, too. Where nothing admits there is
neither, but `authorizer` itself may be there, as null or as `{"lambda": null}`: it alone says nothing. (AWS Lambda
developer guide, "Invoking Lambda function URLs"; API Gateway developer guide, "Create AWS Lambda proxy integrations for
HTTP APIs"; the events iam-auth, jwt-authorizer-auth and no-auth in packages/parser/tests/events/apigw-http of
aws-powertools/powertools-lambda-typescript, recorded from an API in AWS.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigwv2
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_iam as iam
from constructs import Construct

from forbear.routes import ROUTES
from infra.config import ApiConfig, JwtConfig, StackConfig
from infra.functions import Functions
from infra.http_api import STAGE, Admission, http_api


class Api(Construct):
    """The HTTP APIs, each with one stage.

    Attributes:
        http_api: The API for whoever signs or has a token.
        keys_api: The API for API keys, if there is one.
        all: Both, or the one that there is, by what its alarm and graphs begin with.
        url: Where requests go, without a slash at its end.
        domain_target: What the DNS record of the own domain name points to, if there is one.
        producer_policy: Allows to post events, and no more; there is none where tokens authenticate.
        operator_policy: Allows whatever the API and the replay URL can do.
    """

    def __init__(self, scope: Construct, construct_id: str, *, config: StackConfig, functions: Functions) -> None:
        """Build them.

        Args:
            scope: The stack.
            construct_id: The construct's name in it.
            config: What was chosen.
            functions: What answers.
        """
        super().__init__(scope, construct_id)
        self._config, self._functions = config, functions
        chosen = config.api
        domain = self._domain(chosen)
        self.http_api, _ = http_api(
            self,
            config=config,
            functions=functions,
            name=config.stack_name,
            log=f"{config.stack_name}-api",
            admission=_admission(chosen),
            domain=domain,
        )
        self.keys_api = self._keys_api() if chosen.keys else None
        self.all: Mapping[str, apigwv2.HttpApi] = {"": self.http_api} | (
            {"Keys": self.keys_api} if self.keys_api else {}
        )
        self.url = f"https://{chosen.domain_name}" if chosen.domain_name else self.http_api.api_endpoint
        self.domain_target = domain.regional_domain_name if domain else None
        self.producer_policy = self._producer_policy() if chosen.auth == "iam" else None
        self.operator_policy = self._operator_policy()

    def _keys_api(self) -> apigwv2.HttpApi:
        """The same routes and limits without an authorizer.

        A Lambda authorizer would not keep strangers from making a function run either, and would cost every request a
        second call of one.
        """
        api, _ = http_api(
            Construct(self, "Keys"),
            config=self._config,
            functions=self._functions,
            name=f"{self._config.stack_name}-keys",
            log=f"{self._config.stack_name}-api-keys",
            admission=Admission(
                unauthorised="For callers with an API key of Forbear's own (api.keys): the function answers 401 to "
                "everybody else, before it does anything. Requests are throttled."
            ),
        )
        return api

    def _domain(self, chosen: ApiConfig) -> apigwv2.DomainName | None:
        if chosen.domain_name is None or chosen.certificate_arn is None:
            return None
        return apigwv2.DomainName(
            self,
            "Domain",
            domain_name=chosen.domain_name,
            certificate=acm.Certificate.from_certificate_arn(self, "Certificate", chosen.certificate_arn),
            security_policy=apigwv2.SecurityPolicy.TLS_1_2,
        )

    def _producer_policy(self) -> iam.ManagedPolicy:
        policy = iam.ManagedPolicy(self, "Producer", description="Forbear: post events")
        policy.add_statements(
            iam.PolicyStatement(
                actions=["execute-api:Invoke"],
                resources=[self._arn(f"{route.method}{route.path}") for route in ROUTES if route.function == "ingest"],
            )
        )
        return policy

    def _operator_policy(self) -> iam.ManagedPolicy:
        policy = iam.ManagedPolicy(self, "Operator", description="Forbear: everything that the API and replay can do")
        if self._config.api.auth == "iam":
            policy.add_statements(iam.PolicyStatement(actions=["execute-api:Invoke"], resources=[self._arn("*")]))
            stack = cdk.Stack.of(self)
            api = stack.resolve(stack.get_logical_id(cast("cdk.CfnElement", self.http_api.node.default_child)))
            everything = f"arn:<AWS::Partition>:execute-api:<AWS::Region>:<AWS::AccountId>:<{api}>/{STAGE}/*"
            cdk.Validations.of(policy).acknowledge(
                cdk.Acknowledgment(
                    id=f"AwsSolutions-IAM5[Resource::{everything}]",
                    reason="Whoever operates Forbear may call every route of this API; paths hold ids.",
                )
            )
        # Both are needed: who may call the URL, and who may invoke, but through the URL only.
        self._functions.replay_url.grant_invoke_url(policy)
        return policy

    def _arn(self, method_and_path: str) -> str:
        return cdk.Stack.of(self).format_arn(
            service="execute-api",
            resource=self.http_api.api_id,
            resource_name=f"{STAGE}/{method_and_path}",
        )


def _admission(chosen: ApiConfig) -> Admission:
    """Who may come in where API Gateway looks: whoever signs, or has a token, with a scope if scopes were chosen."""
    tokens = chosen.auth
    if not isinstance(tokens, JwtConfig):
        return Admission(authorizers.HttpIamAuthorizer(), user="$context.identity.userArn")
    return Admission(
        authorizers.HttpJwtAuthorizer("Tokens", tokens.issuer, jwt_audience=list(tokens.audiences)),
        scopes=lambda route: tokens.event_scopes if route.function == "ingest" else tokens.manage_scopes,
        user="$context.authorizer.claims.sub",
    )
