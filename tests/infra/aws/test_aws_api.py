from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk.assertions import Template

from forbear.routes import ROUTES
from tests.infra.aws.conftest import Synthesize
from tests.infra.aws.reading import resources, written

CERTIFICATE = "arn:aws:acm:eu-central-1:123456789012:certificate/0b1d-22"
DOMAIN = {"api.domain_name": "hooks.example.com", "api.certificate_arn": CERTIFICATE}
TOKENS = {"api.auth.issuer": "https://id.example.com", "api.auth.audiences": "forbear,ops"}
PROFILES = pytest.mark.parametrize("profile", ["small", "production"])


def routes(template: Template) -> dict[str, dict[str, Any]]:
    return {route["RouteKey"]: route for route in resources(template, "ApiGatewayV2::Route").values()}


def stage(template: Template) -> dict[str, Any]:
    (found,) = resources(template, "ApiGatewayV2::Stage").values()
    return found


def policy(template: Template, name: str) -> dict[str, list[str]]:
    """Actions of a managed policy, each with its resources."""
    (document,) = (
        one["PolicyDocument"]
        for logical_id, one in resources(template, "IAM::ManagedPolicy").items()
        if logical_id.startswith(f"Api{name}")
    )
    several = (
        one["Resource"] if isinstance(one["Resource"], list) else [one["Resource"]] for one in document["Statement"]
    )
    return {
        statement["Action"]: [written(resource) for resource in resources_]
        for statement, resources_ in zip(document["Statement"], several, strict=True)
    }


def test_the_api_has_the_routes_of_the_functions_and_no_other(template: Synthesize) -> None:
    """One list serves AWS, the local stack and the functions: a route cannot be in one and not in the other."""
    made = template()
    lambdas, targets = resources(made, "Lambda::Function"), resources(made, "ApiGatewayV2::Integration")
    leads_to = {}
    for key, route in routes(made).items():
        integration = targets[written(route["Target"]).removeprefix("integrations/").strip("<>")]
        assert integration["PayloadFormatVersion"] == "2.0"
        function = written(integration["IntegrationUri"]).strip("<>").removesuffix(".Arn")
        leads_to[key] = lambdas[function]["Handler"].partition(".")[0]
    assert leads_to == {route.key: route.function for route in ROUTES}


@PROFILES
def test_every_route_takes_signed_requests_only_but_health(template: Synthesize, profile: str) -> None:
    kinds = {key: route["AuthorizationType"] for key, route in routes(template(profile)).items()}
    assert kinds.pop("GET /v1/health") == "NONE"
    assert set(kinds.values()) == {"AWS_IAM"}


def test_every_route_takes_tokens_of_the_issuer_only_but_health(template: Synthesize) -> None:
    made = template(**TOKENS)
    found = routes(made)
    assert found.pop("GET /v1/health")["AuthorizationType"] == "NONE"
    ((name, authorizer),) = resources(made, "ApiGatewayV2::Authorizer").items()
    assert authorizer["AuthorizerType"] == "JWT"
    assert authorizer["JwtConfiguration"] == {"Audience": ["forbear", "ops"], "Issuer": "https://id.example.com"}
    assert {(one["AuthorizationType"], written(one["AuthorizerId"])) for one in found.values()} == {
        ("JWT", f"<{name}>")
    }


def test_scopes_tell_who_may_post_from_who_may_manage(template: Synthesize) -> None:
    scopes = {"api.auth.event_scopes": "events,all", "api.auth.manage_scopes": "all"}
    asked = {key: route.get("AuthorizationScopes") for key, route in routes(template(**TOKENS, **scopes)).items()}
    assert asked.pop("GET /v1/health") is None
    assert {key for key, each in asked.items() if each == ["events", "all"]} == {
        "POST /v1/events",
        "POST /v1/events/batch",
    }
    assert all(each in (["events", "all"], ["all"]) for each in asked.values())


def test_without_scopes_every_token_of_the_audience_will_do(template: Synthesize) -> None:
    assert not any("AuthorizationScopes" in route for route in routes(template(**TOKENS)).values())


def test_browsers_of_other_sites_get_nothing(template: Synthesize) -> None:
    (api,) = resources(template(), "ApiGatewayV2::Api").values()
    assert "CorsConfiguration" not in api


def test_requests_are_throttled_most_where_strangers_can_make_them(template: Synthesize) -> None:
    made = stage(template(**{"api.rate_per_s": "400", "api.burst": "800"}))
    assert (made["StageName"], made["AutoDeploy"]) == ("$default", True)
    limits = {
        key: (one["ThrottlingRateLimit"], one["ThrottlingBurstLimit"])
        for key, one in {"others": made["DefaultRouteSettings"], **made["RouteSettings"]}.items()
    }
    assert limits == {
        "others": (100, 200),
        "POST /v1/events": (400, 800),
        "POST /v1/events/batch": (400, 800),
        "GET /v1/health": (1, 5),
    }


def test_the_least_that_can_be_chosen_still_lets_requests_through(template: Synthesize) -> None:
    """API Gateway takes 0 for closed."""
    made = stage(template(**{"api.rate_per_s": "1", "api.burst": "1"}))["DefaultRouteSettings"]
    assert (made["ThrottlingRateLimit"], made["ThrottlingBurstLimit"]) == (1, 1)


def test_limits_are_set_for_routes_that_exist_by_then(template: Synthesize) -> None:
    (made,) = template().find_resources("AWS::ApiGatewayV2::Stage").values()
    assert set(resources(template(), "ApiGatewayV2::Route")) <= set(made["DependsOn"])
    assert set(made["Properties"]["RouteSettings"]) <= set(routes(template()))


@pytest.mark.parametrize(("chosen", "who"), [({}, "identity.userArn"), (TOKENS, "authorizer.claims.sub")])
def test_a_request_leaves_a_line_that_says_who_what_and_how_it_went_and_no_content(
    template: Synthesize, chosen: dict[str, str], who: str
) -> None:
    line = json.loads(stage(template(**chosen))["AccessLogSettings"]["Format"])
    assert set(line) >= {"requestId", "time", "route", "status", "latencyMs", "functionRequestId", "user", "sourceIp"}
    assert line["user"] == f"$context.{who}"
    for variable in line.values():
        assert variable.startswith("$context.")
        assert "query" not in variable.lower()
        assert "body" not in variable.lower()


@pytest.mark.parametrize("chosen", [{}, TOKENS])
def test_strangers_cannot_forge_a_line_of_the_access_log(template: Synthesize, chosen: dict[str, str]) -> None:
    """Values are not escaped, so none may hold what a stranger writes: a header, the decoded path, a message on it."""
    line = json.loads(stage(template(**chosen))["AccessLogSettings"]["Format"])
    variables = {variable.removeprefix("$context.") for variable in line.values()}
    assert variables <= {
        *("requestId", "requestTime", "routeKey", "status", "responseLength", "responseLatency", "integrationLatency"),
        *("integration.integrationStatus", "integration.requestId", "error.responseType", "identity.sourceIp"),
        *("identity.userArn", "authorizer.claims.sub"),  # whoever has one was let in
    }


@PROFILES
def test_the_access_log_forgets(template: Synthesize, profile: str) -> None:
    made = template(profile)
    destination = written(stage(made)["AccessLogSettings"]["DestinationArn"])
    assert not destination.endswith("*")
    group = destination.rpartition(":")[2].strip("<>")
    assert resources(made, "Logs::LogGroup")[group]["RetentionInDays"] in (30, 90)
    assert ("KmsKeyId" in resources(made, "Logs::LogGroup")[group]) == (profile == "production")


def test_a_producers_policy_allows_to_post_events_and_nothing_else(template: Synthesize) -> None:
    (api,) = resources(template(), "ApiGatewayV2::Api")
    stem = f"arn:<AWS::Partition>:execute-api:<AWS::Region>:<AWS::AccountId>:<{api}>/$default/POST"
    assert policy(template(), "Producer") == {"execute-api:Invoke": [f"{stem}/v1/events", f"{stem}/v1/events/batch"]}


def test_an_operators_policy_allows_the_whole_api_and_the_replay_url(template: Synthesize) -> None:
    (api,) = resources(template(), "ApiGatewayV2::Api")
    (url,) = resources(template(), "Lambda::Url").values()
    replay = written(url["TargetFunctionArn"])
    assert policy(template(), "Operator") == {
        "execute-api:Invoke": [f"arn:<AWS::Partition>:execute-api:<AWS::Region>:<AWS::AccountId>:<{api}>/$default/*"],
        "lambda:InvokeFunctionUrl": [replay],
        "lambda:InvokeFunction": [replay],
    }
    (document,) = (
        one["PolicyDocument"]["Statement"]
        for name, one in resources(template(), "IAM::ManagedPolicy").items()
        if name.startswith("ApiOperator")
    )
    conditions = {one["Action"]: one.get("Condition") for one in document}
    assert conditions["lambda:InvokeFunction"] == {"Bool": {"lambda:InvokedViaFunctionUrl": True}}


def test_where_tokens_authenticate_there_is_no_producers_policy(template: Synthesize) -> None:
    """It would allow nothing: the API does not ask IAM."""
    made = template(**TOKENS)
    assert set(policy(made, "Operator")) == {"lambda:InvokeFunctionUrl", "lambda:InvokeFunction"}
    assert not [name for name in resources(made, "IAM::ManagedPolicy") if name.startswith("ApiProducer")]


def test_a_domain_of_ones_own_is_the_only_way_in(template: Synthesize) -> None:
    made = template(**DOMAIN)
    (domain,) = resources(made, "ApiGatewayV2::DomainName").values()
    assert domain["DomainName"] == "hooks.example.com"
    (configured,) = domain["DomainNameConfigurations"]
    assert (configured["CertificateArn"], configured["SecurityPolicy"]) == (CERTIFICATE, "TLS_1_2")
    (api,) = resources(made, "ApiGatewayV2::Api").values()
    assert api["DisableExecuteApiEndpoint"] is True
    (mapping,) = resources(made, "ApiGatewayV2::ApiMapping").values()
    assert mapping["Stage"] == "$default"


def test_the_addresses_that_are_told_are_those_that_answer(template: Synthesize) -> None:
    outputs = template(**DOMAIN).find_outputs("*")
    assert outputs["ApiUrl"]["Value"] == "https://hooks.example.com"
    assert written(outputs["ApiDomainTarget"]["Value"]).endswith(".RegionalDomainName>")
    (api,) = resources(template(), "ApiGatewayV2::Api")
    assert written(template().find_outputs("ApiUrl")["ApiUrl"]["Value"]) == f"<{api}.ApiEndpoint>"
