"""An HTTP API in front of the functions: its routes, how many requests it takes, and its access log.

Owns what is the same whoever may come in. Who that is, the API is told; what a route does is its function's, and which
routes there are stands in `forbear.routes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import aws_cdk as cdk
from aws_cdk import aws_apigatewayv2 as apigwv2
from aws_cdk import aws_apigatewayv2_integrations as integrations
from aws_cdk import aws_logs as logs
from constructs import Construct

from forbear.routes import ROUTES, Route
from infra.config import ApiConfig, StackConfig
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


@dataclass(frozen=True, slots=True)
class Admission:
    """Who may come in.

    Attributes:
        authorizer: What admits a request; None: all come in, and the functions look at each themselves.
        unauthorised: Where nothing does, why that is right.
        scopes: Of which scopes a token needs one for a route; none: it needs no scope.
        user: What the access log calls who was admitted, a variable of API Gateway's; None: it cannot know.
    """

    authorizer: apigwv2.IHttpRouteAuthorizer | None = None
    unauthorised: str = ""
    scopes: Callable[[Route], Sequence[str]] = lambda _route: ()
    user: str | None = None


def http_api(
    scope: Construct,
    *,
    config: StackConfig,
    functions: Functions,
    name: str,
    log: str,
    admission: Admission,
    domain: apigwv2.DomainName | None = None,
) -> tuple[apigwv2.HttpApi, apigwv2.HttpStage]:
    """Make an API with its one stage.

    Args:
        scope: The construct that both belong to.
        config: What was chosen.
        functions: What answers.
        name: The API's.
        log: The name of its access log, without the prefix that such groups have.
        admission: Who may come in.
        domain: The domain name that leads to it, if any does.
    """
    api = apigwv2.HttpApi(
        scope,
        "Http",
        api_name=name,
        description=f"Forbear ({config.stack_name}): events in, endpoints and deliveries managed",
        create_default_stage=False,
        default_authorizer=admission.authorizer,
        # Two ways in would be two to watch.
        disable_execute_api_endpoint=domain is not None,
    )
    # They wait 30 s for the function, the API's limit and default; the functions end at 29, and say why. Replay has
    # longer, for its URL: called by an API it has to keep to the 29 s by itself. Should it not, the caller gets API
    # Gateway's 503 while the function goes on; whether a replay was made, the list of them tells.
    targets = {
        function: integrations.HttpLambdaIntegration(
            function.capitalize(),
            functions.by_name[function],
            payload_format_version=apigwv2.PayloadFormatVersion.VERSION_2_0,
            # One permission a function instead of one a route: no other route leads to it.
            scope_permission_to_route=False,
        )
        for function in sorted({route.function for route in ROUTES})
    }
    routes = [_route(api, route, targets[route.function], admission) for route in ROUTES]
    group = log_group(
        scope,
        "AccessLog",
        retention_days=config.functions.log_retention_days,
        key=functions.key,
        # Groups of this prefix do not use up the account's one policy for delivering logs, which is short.
        name=f"/aws/vendedlogs/{log}",
    )
    stage = _stage(api, config.api, group, admission, domain)
    # Settings for a route that is not there yet are refused.
    stage.node.add_dependency(*routes)
    return api, stage


def _route(
    api: apigwv2.HttpApi, route: Route, target: integrations.HttpLambdaIntegration, admission: Admission
) -> apigwv2.HttpRoute:
    is_open = route.key == OPEN
    (made,) = api.add_routes(
        path=route.path,
        methods=[apigwv2.HttpMethod[route.method]],
        integration=target,
        authorizer=apigwv2.HttpNoneAuthorizer() if is_open else None,
        authorization_scopes=None if is_open else (list(admission.scopes(route)) or None),
    )
    if is_open or admission.authorizer is None:
        reason = "Says that the function runs, and nothing else; it touches no database and is throttled."
        cdk.Validations.of(made).acknowledge(
            cdk.Acknowledgment(id="AwsSolutions-APIG4", reason=reason if is_open else admission.unauthorised)
        )
    return made


def _stage(
    api: apigwv2.HttpApi,
    chosen: ApiConfig,
    log: logs.LogGroup,
    admission: Admission,
    domain: apigwv2.DomainName | None,
) -> apigwv2.HttpStage:
    stage = apigwv2.HttpStage(
        cast("Construct", api.node.scope),
        "Stage",
        http_api=api,
        stage_name=STAGE,
        auto_deploy=True,
        throttle=apigwv2.ThrottleSettings(
            rate_limit=max(1, chosen.rate_per_s // _MANAGE_SHARE), burst_limit=max(1, chosen.burst // _MANAGE_SHARE)
        ),
        # They would be four metrics a route, at $0.30 a month each; the log has them too.
        detailed_metrics_enabled=False,
        domain_mapping=apigwv2.DomainMappingOptions(domain_name=domain) if domain else None,
    )
    line = _ACCESS_LOG | ({"user": admission.user} if admission.user else {})
    settings = cast("apigwv2.CfnStage", stage.node.default_child)
    settings.access_log_settings = apigwv2.CfnStage.AccessLogSettingsProperty(
        destination_arn=_without_streams(log), format=json.dumps(line)
    )
    settings.route_settings = {
        route.key: _limits(chosen.rate_per_s, chosen.burst) for route in ROUTES if route.function == "ingest"
    } | {OPEN: _limits(_OPEN_RATE_PER_S, _OPEN_BURST)}
    return stage


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
