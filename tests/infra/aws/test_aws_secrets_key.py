"""The key of the secrets: how long it lives, and that nobody gets more of it than its purpose."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk.assertions import Template

from tests.infra.aws.conftest import Synthesize
from tests.infra.aws.reading import FUNCTIONS, resources, settings, statements, written

PROFILES = pytest.mark.parametrize("profile", ["small", "production"])
ELSEWHERE = "arn:aws:kms:eu-central-1:123456789012:key/0a1b2c3d-0000-1111-2222-333344445555"
CONTEXT = "kms:EncryptionContext:forbear"
DECRYPT, GENERATE = "kms:Decrypt", "kms:GenerateDataKeyWithoutPlaintext"


def own_key(template: Template) -> tuple[str, dict[str, Any]]:
    """The key's ARN, as it is written, and its resource."""
    ((name, key),) = (
        (name, one) for name, one in template.find_resources("AWS::KMS::Key").items() if name.startswith("SecretsKey")
    )
    return f"<{name}.Arn>", dict(key)


def uses(template: Template) -> dict[str, set[tuple[str, str]]]:
    """What each function may do with the key: (action, purpose). Fails on a grant that is not about purposes."""
    key = settings(template, "migrate")["KEY"]
    found: dict[str, set[tuple[str, str]]] = {}
    for function in FUNCTIONS:
        for one in statements(template, f"Functions{function.capitalize()}Role"):
            if one["Effect"] == "Allow" and written(one["Resource"]) == key:
                assert set(one["Condition"]) == {"StringEquals"}
                ((name, purposes),) = one["Condition"]["StringEquals"].items()
                assert name == CONTEXT
                several = [purposes] if isinstance(purposes, str) else purposes
                found.setdefault(function, set()).update((one["Action"], purpose) for purpose in several)
    return found


@PROFILES
def test_the_stack_has_a_key_for_secrets_whichever_its_profile(template: Synthesize, profile: str) -> None:
    """Symmetric, which is the default, and new material each year; the old one goes on opening what it closed."""
    arn, key = own_key(template(profile))
    assert key["Properties"]["EnableKeyRotation"] is True
    assert key["Properties"].get("KeySpec", "SYMMETRIC_DEFAULT") == "SYMMETRIC_DEFAULT"
    assert written(template(profile).find_outputs("SecretsKey")["SecretsKey"]["Value"]) == arn


def test_the_key_lives_as_long_as_a_snapshot_may_need_it(template: Synthesize) -> None:
    for profile in ("small", "production"):
        _, key = own_key(template(profile))
        assert (key["DeletionPolicy"], key["UpdateReplacePolicy"]) == ("Retain", "Retain")


def test_without_a_final_snapshot_the_key_goes_with_the_stack_as_late_as_kms_lets_it(template: Synthesize) -> None:
    _, key = own_key(template(**{"database.final_snapshot": False}))
    assert (key["DeletionPolicy"], key["UpdateReplacePolicy"]) == ("Delete", "Delete")
    assert key["Properties"]["PendingWindowInDays"] == 30


@PROFILES
def test_only_who_needs_a_secret_may_open_one_and_nobody_who_makes_keys_sees_them(
    template: Synthesize, profile: str
) -> None:
    """A function that is taken over gives away what it could do anyhow."""
    assert uses(template(profile)) == {
        "manage": {(DECRYPT, "secrets")},
        "claimer": {(DECRYPT, "secrets")},
        "migrate": {(GENERATE, "secrets"), (GENERATE, "api_keys")},
    }


def test_with_an_api_for_keys_whoever_answers_there_may_compare_them_and_open_no_secret(template: Synthesize) -> None:
    assert uses(template(**{"api.keys": True})) == {
        "ingest": {(DECRYPT, "api_keys")},
        "replay": {(DECRYPT, "api_keys")},
        "manage": {(DECRYPT, "secrets"), (DECRYPT, "api_keys")},
        "claimer": {(DECRYPT, "secrets")},
        "migrate": {(GENERATE, "secrets"), (GENERATE, "api_keys")},
    }


@pytest.mark.parametrize("keys", [False, True])
def test_a_function_is_told_the_key_if_and_only_if_it_may_use_it(template: Synthesize, keys: bool) -> None:
    made = template(**{"api.keys": keys})
    arn, _ = own_key(made)
    told = {function: settings(made, function).get("KEY") for function in FUNCTIONS}
    assert {function for function, key in told.items() if key} == set(uses(made))
    assert {key for key in told.values() if key} == {arn}


@pytest.mark.parametrize("chosen", [{}, {"profile": "production"}, {"api.keys": True}])
def test_no_role_may_do_anything_whatever_with_a_key(template: Synthesize, chosen: dict[str, Any]) -> None:
    """By name and to one key; and no one but the account's own policies says who."""
    made = template(**chosen)
    for policy in resources(made, "IAM::Policy").values():
        for one in policy["PolicyDocument"]["Statement"]:
            actions = [one["Action"]] if isinstance(one["Action"], str) else one["Action"]
            if any(action.startswith("kms:") for action in actions):
                assert not any("*" in action for action in actions)
                assert written(one["Resource"]).startswith("<")
    _, key = own_key(made)
    (account,) = key["Properties"]["KeyPolicy"]["Statement"]
    assert written(account["Principal"]["AWS"]) == "arn:<AWS::Partition>:iam::<AWS::AccountId>:root"


def test_a_key_that_came_with_a_snapshot_is_used_and_none_is_made(template: Synthesize) -> None:
    made = template(**{"database.secrets_key": ELSEWHERE})
    assert not resources(made, "KMS::Key")
    assert made.find_outputs("SecretsKey")["SecretsKey"]["Value"] == ELSEWHERE
    assert settings(made, "manage")["KEY"] == settings(made, "migrate")["KEY"] == ELSEWHERE
    assert set(uses(made)) == {"manage", "claimer", "migrate"}


@PROFILES
def test_the_functions_reach_kms_as_they_reach_the_rest_of_aws(template: Synthesize, profile: str) -> None:
    """Through the NAT, on 443; nothing but security groups filters in between."""
    made = template(profile)
    (group,) = (one for name, one in resources(made, "EC2::SecurityGroup").items() if "FunctionsGroup" in name)
    assert ("0.0.0.0/0", 443) in {(rule["CidrIp"], rule["ToPort"]) for rule in group["SecurityGroupEgress"]}
    assert not resources(made, "EC2::NetworkAcl")
