"""The HTTP API: which requests reach ingest and manage, who may make them, and how many.

Owns routes, authentication, throttling, the access log, the domain name, and the policies that a team attaches to its
own roles. What a route does is its function's; which routes there are stands in `forbear.routes`.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigwv2
from aws_cdk import aws_apigatewayv2_authorizers as authorizers
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_certificatemanager as acm
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct

from forbear.routes import ROUTES, Route
from infra.config import ApiConfig, JwtConfig, StackConfig
from infra.functions import Functions
from infra.log_group import log_group

STAGE: Final = "$default"

OPEN: Final = "GET /v1/health"
"""The one route that takes no credentials: it touches no database, so strangers cannot keep that awake."""

# Strangers can call it, and each call is paid for: enough for a handful of monitors.
_OPEN_RATE_PER_S: Final = 1
_OPEN_BURST: Final = 5

# Events come from machines, many at a time; what manage answers is asked by people and scripts.
_MANAGE_SHARE: Final = 4

# One line of JSON a request. Values are put in as they are, without escaping, so there is none that a stranger could
# end a string with: no header, no query string (which may hold what is nobody's business, too), not the path, which is
# decoded before, and no message. What the messages would say follows from the type of the error and the function's log.
_ACCESS_LOG: Final = {
    "requestId": "$context.requestId",
    "time": "$context.requestTime",
    "route": "$context.routeKey",
    "status": "$context.status",
    "bytes": "$context.responseLength",
    "latencyMs": "$context.responseLatency",
    "functionLatencyMs": "$context.integrationLatency",
    "functionStatus": "$context.integration.integrationStatus",
    "functionRequestId": "$context.integration.requestId",
    "error": "$context.error.responseType",
    "sourceIp": "$context.identity.sourceIp",
}


class Api(Construct):
    """The HTTP API and its one stage.

    Attributes:
        http_api: The API.
        stage: Its stage.
        url: Where requests go, without a slash at its end.
        domain_target: What the DNS record of the own domain name points to, if there is one.
        producer_policy: Allows to post events, and no more; there is none where tokens authenticate.
        operator_policy: Allows whatever the API and the replay URL can do.
    """

    def __init__(self, scope: Construct, construct_id: str, *, config: StackConfig, functions: Functions) -> None:
        """Build it.

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
        self.http_api = apigwv2.HttpApi(
            self,
            "Http",
            api_name=config.stack_name,
            description=f"Forbear ({config.stack_name}): events in, endpoints and deliveries managed",
            create_default_stage=False,
            default_authorizer=_authorizer(chosen),
            # Two ways in would be two to watch.
            disable_execute_api_endpoint=domain is not None,
        )
        routes = self._routes()
        self.stage = self._stage(domain, routes)
        self.url = f"https://{chosen.domain_name}" if chosen.domain_name else self.http_api.api_endpoint
        self.domain_target = domain.regional_domain_name if domain else None
        self.producer_policy = self._producer_policy() if chosen.auth == "iam" else None
        self.operator_policy = self._operator_policy()

    def _routes(self) -> list[apigwv2.HttpRoute]:
        # They wait 30 s for the function, which is the API's limit and default; the functions end at 29, and say why.
        targets = {
            name: integrations.HttpLambdaIntegration(
                name.capitalize(),
                self._functions.by_name[name],
                payload_format_version=apigwv2.PayloadFormatVersion.VERSION_2_0,
                # One permission a function instead of one a route: no other route leads to it.
                scope_permission_to_route=False,
            )
            for name in sorted({route.function for route in ROUTES})
        }
        return [self._route(route, targets[route.function]) for route in ROUTES]

    def _route(self, route: Route, target: integrations.HttpLambdaIntegration) -> apigwv2.HttpRoute:
        is_open, auth = route.key == OPEN, self._config.api.auth
        scopes: tuple[str, ...] = ()
        if isinstance(auth, JwtConfig) and not is_open:
            scopes = auth.event_scopes if route.function == "ingest" else auth.manage_scopes
        (made,) = self.http_api.add_routes(
            path=route.path,
            methods=[apigwv2.HttpMethod[route.method]],
            integration=target,
            authorizer=apigwv2.HttpNoneAuthorizer() if is_open else None,
            authorization_scopes=list(scopes) or None,
        )
        if is_open:
            cdk.Validations.of(made).acknowledge(
                cdk.Acknowledgment(
                    id="AwsSolutions-APIG4",
                    reason="Says that the function runs, and nothing else; it touches no database and is throttled.",
                )
            )
        return made

    def _stage(self, domain: apigwv2.DomainName | None, routes: list[apigwv2.HttpRoute]) -> apigwv2.HttpStage:
        chosen = self._config.api
        group = log_group(
            self,
            "AccessLog",
            retention_days=self._config.functions.log_retention_days,
            key=self._functions.key,
            # Groups of this prefix do not use up the account's one policy for delivering logs, which is short.
            name=f"/aws/vendedlogs/{self._config.stack_name}-api",
        )
        who = "$context.identity.userArn" if chosen.auth == "iam" else "$context.authorizer.claims.sub"
        stage = apigwv2.HttpStage(
            self,
            "Stage",
            http_api=self.http_api,
            stage_name=STAGE,
            auto_deploy=True,
            throttle=apigwv2.ThrottleSettings(
                rate_limit=max(1, chosen.rate_per_s // _MANAGE_SHARE), burst_limit=max(1, chosen.burst // _MANAGE_SHARE)
            ),
            # By route they would be 33 times four metrics at $0.30 a month; the log has them too.
            detailed_metrics_enabled=False,
            domain_mapping=apigwv2.DomainMappingOptions(domain_name=domain) if domain else None,
        )
        settings = cast("apigwv2.CfnStage", stage.node.default_child)
        settings.access_log_settings = apigwv2.CfnStage.AccessLogSettingsProperty(
            destination_arn=_without_streams(group), format=json.dumps({**_ACCESS_LOG, "user": who})
        )
        settings.route_settings = {
            route.key: _limits(chosen.rate_per_s, chosen.burst) for route in ROUTES if route.function == "ingest"
        } | {OPEN: _limits(_OPEN_RATE_PER_S, _OPEN_BURST)}
        # Settings for a route that is not there yet are refused.
        stage.node.add_dependency(*routes)
        return stage

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


def _authorizer(chosen: ApiConfig) -> apigwv2.IHttpRouteAuthorizer:
    """What stands before every route but the open one.

    API keys of Forbear's own, once they exist, are a third case here: a Lambda authorizer that looks a key up, and a
    third value of the knob `api.auth`.
    """
    if isinstance(chosen.auth, JwtConfig):
        return authorizers.HttpJwtAuthorizer("Tokens", chosen.auth.issuer, jwt_audience=list(chosen.auth.audiences))
    return authorizers.HttpIamAuthorizer()


def _without_streams(group: logs.LogGroup) -> str:
    """A log group's ARN without the `:*` at its end, which stands for its streams."""
    return cdk.Stack.of(group).format_arn(
        service="logs",
        resource="log-group",
        resource_name=group.log_group_name,
        arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
    )


def _limits(rate_per_s: int, burst: int) -> dict[str, Any]:
    return {"ThrottlingRateLimit": rate_per_s, "ThrottlingBurstLimit": burst}
