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
KEYS: dict[str, Any] = {"api.keys": True}
PROFILES = pytest.mark.parametrize("profile", ["small", "production"])


def of_api(template: Template, kind: str, api: str) -> list[dict[str, Any]]:
    """The resources of a kind that belong to an API: `ApiHttp`, or `ApiKeysHttp` for the one for keys."""
    return [
        one
        for one in resources(template, f"ApiGatewayV2::{kind}").values()
        if written(one["ApiId"]).startswith(f"<{api}")
    ]


def routes(template: Template, api: str = "ApiHttp") -> dict[str, dict[str, Any]]:
    return {route["RouteKey"]: route for route in of_api(template, "Route", api)}


def stage(template: Template, api: str = "ApiHttp") -> dict[str, Any]:
    (found,) = of_api(template, "Stage", api)
    return found


def functions_behind(template: Template, api: str = "ApiHttp") -> dict[str, str]:
    """The function that each route leads to."""
    lambdas, targets = resources(template, "Lambda::Function"), resources(template, "ApiGatewayV2::Integration")
    leads_to = {}
    for key, route in routes(template, api).items():
        integration = targets[written(route["Target"]).removeprefix("integrations/").strip("<>")]
        assert integration["PayloadFormatVersion"] == "2.0"
        function = written(integration["IntegrationUri"]).strip("<>").removesuffix(".Arn")
        leads_to[key] = lambdas[function]["Handler"].partition(".")[0]
    return leads_to


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
    assert functions_behind(template()) == {route.key: route.function for route in ROUTES}


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


@PROFILES
def test_there_is_no_api_that_anybody_can_reach_unless_it_was_chosen(template: Synthesize, profile: str) -> None:
    made = template(profile)
    assert len(resources(made, "ApiGatewayV2::Api")) == 1
    assert "KeysApiUrl" not in made.find_outputs("*")


@pytest.mark.parametrize("auth", [{}, TOKENS])
def test_an_api_for_keys_stands_beside_the_other_one_and_changes_nothing_about_it(
    template: Synthesize, auth: dict[str, str]
) -> None:
    """Whether that one takes signatures or tokens."""
    made = template(**KEYS, **auth)
    alone = template(**auth)
    assert {key: one["AuthorizationType"] for key, one in routes(made).items()} == {
        key: one["AuthorizationType"] for key, one in routes(alone).items()
    }
    assert stage(made) == stage(alone)
    assert made.find_outputs("ApiUrl") == alone.find_outputs("ApiUrl")


@pytest.mark.parametrize("auth", [{}, TOKENS])
def test_on_the_api_for_keys_the_functions_look_themselves(template: Synthesize, auth: dict[str, str]) -> None:
    """A route with an authorizer would turn keys away before a function sees them; one with scopes has one."""
    made = template(**KEYS, **auth)
    found = routes(made, "ApiKeysHttp")
    assert functions_behind(made, "ApiKeysHttp") == {route.key: route.function for route in ROUTES}
    assert {one["AuthorizationType"] for one in found.values()} == {"NONE"}
    assert not any("AuthorizerId" in one or "AuthorizationScopes" in one for one in found.values())


def test_the_api_for_keys_is_throttled_as_the_other_one_is(template: Synthesize) -> None:
    """It is what strangers can make the functions run, and what their running costs."""
    made = template(**KEYS, **{"api.rate_per_s": "40", "api.burst": "80"})
    keys, other = stage(made, "ApiKeysHttp"), stage(made)
    assert keys["DefaultRouteSettings"] == other["DefaultRouteSettings"]
    assert keys["RouteSettings"] == other["RouteSettings"]
    assert keys["RouteSettings"]["GET /v1/health"] == {"ThrottlingRateLimit": 1, "ThrottlingBurstLimit": 5}


def test_the_api_for_keys_logs_apart_and_knows_nobody(template: Synthesize) -> None:
    """Strangers cannot drown the other log, nor forge a line of theirs. Who calls, the key tells, to the function."""
    made = template(**KEYS)
    destinations = [
        written(stage(made, api)["AccessLogSettings"]["DestinationArn"]) for api in ("ApiHttp", "ApiKeysHttp")
    ]
    assert len(set(destinations)) == 2
    keys, other = (json.loads(stage(made, api)["AccessLogSettings"]["Format"]) for api in ("ApiKeysHttp", "ApiHttp"))
    assert keys == {name: variable for name, variable in other.items() if name != "user"}


def test_the_address_of_the_api_for_keys_is_told(template: Synthesize) -> None:
    """It has no domain name: that one's address stays the only way in to the other API."""
    made = template(**KEYS, **DOMAIN)
    (keys,) = (name for name in resources(made, "ApiGatewayV2::Api") if name.startswith("ApiKeysHttp"))
    assert written(made.find_outputs("KeysApiUrl")["KeysApiUrl"]["Value"]) == f"<{keys}.ApiEndpoint>"
    assert resources(made, "ApiGatewayV2::Api")[keys].get("DisableExecuteApiEndpoint", False) is False
    (mapping,) = resources(made, "ApiGatewayV2::ApiMapping").values()
    assert written(mapping["ApiId"]).startswith("<ApiHttp")


def test_the_policies_are_about_the_api_that_asks_iam(template: Synthesize) -> None:
    made, alone = template(**KEYS), template()
    assert (policy(made, "Producer"), policy(made, "Operator")) == (
        policy(alone, "Producer"),
        policy(alone, "Operator"),
    )


def test_two_apis_may_call_the_functions_that_stand_behind_them_and_no_others(template: Synthesize) -> None:
    """One permission an API and function."""
    made = template(**KEYS)
    lambdas = resources(made, "Lambda::Function")
    called = sorted(
        (
            written(one["SourceArn"]).partition(":<AWS::AccountId>:<")[2].partition(">")[0].rstrip("0123456789ABCDEF"),
            lambdas[written(one["FunctionName"]).strip("<>").removesuffix(".Arn")]["Handler"],
        )
        for one in resources(made, "Lambda::Permission").values()
    )
    behind = {f"{route.function}.handler" for route in ROUTES}
    assert called == sorted((api, handler) for api in ("ApiHttp", "ApiKeysHttp") for handler in behind)
