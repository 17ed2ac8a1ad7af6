import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from forbear.policy.model import BreakerRule, Exponential, Limits, Policy, RetryAfterRule, Verdicts
from forbear.policy.schedule import gap_s


def test_the_default_policy_is_what_the_documentation_says() -> None:
    policy = Policy()
    assert policy.schedule == Exponential(
        base_s=5, multiplier=2, cap_s=14_400, retries=29, window_s=None, jitter="full"
    )
    assert policy.verdicts == Verdicts(limited_attempts=3)
    assert policy.retry_after == RetryAfterRule(mode="floor", cap_s=14_400)
    assert policy.breaker == BreakerRule(failures=5, cooldown_s=30, cooldown_multiplier=2, cooldown_cap_s=600)
    assert policy.limits == Limits(concurrency=100, rate_per_s=None, burst=None)
    assert (policy.timeout_s, policy.connect_timeout_s) == (15, 5)


def test_the_default_policy_gives_up_after_three_days() -> None:
    gaps = [gap_s(Policy().schedule, n) for n in range(1, 30)]
    assert sum(gap for gap in gaps if gap is not None) / 3_600 == pytest.approx(73.7, abs=0.05)


def test_an_empty_document_is_the_default_policy() -> None:
    assert Policy.model_validate_json("{}") == Policy()


def test_a_policy_survives_its_way_through_json() -> None:
    policy = Policy(schedule=Exponential(retries=None, window_s=3_600), limits=Limits(rate_per_s=0.5, burst=7))
    assert Policy.model_validate_json(policy.model_dump_json()) == policy
    assert Policy.model_validate(json.loads(policy.model_dump_json())) == policy


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Policy().timeout_s = 20


@pytest.mark.parametrize(
    ("document", "at", "says"),
    [
        ({"schedule": {"retries": None}}, "schedule", "never end: set at least one"),
        ({"schedule": {"base_s": 60, "cap_s": 30}}, "schedule", "cap_s (30) is below base_s (60)"),
        ({"schedule": {"base_s": 0}}, "schedule.base_s", "greater than or equal to 0.01"),
        ({"schedule": {"base_s": -1}}, "schedule.base_s", "greater than or equal to 0.01"),
        ({"schedule": {"multiplier": 0.5}}, "schedule.multiplier", "greater than or equal to 1"),
        ({"schedule": {"multiplier": math.inf}}, "schedule.multiplier", "finite"),
        ({"schedule": {"cap_s": math.nan}}, "schedule.cap_s", "finite"),
        ({"schedule": {"retries": -1}}, "schedule.retries", "greater than or equal to 0"),
        ({"schedule": {"retries": True}}, "schedule.retries", "valid integer"),
        ({"schedule": {"retries": 2.5}}, "schedule.retries", "valid integer"),
        ({"schedule": {"window_s": 0}}, "schedule.window_s", "greater than 0"),
        ({"schedule": {"jitter": "some"}}, "schedule.jitter", "'full' or 'none'"),
        ({"schedule": {"kind": "fibonacci"}}, "schedule.kind", "'exponential'"),
        ({"schedule": {"base": 3}}, "schedule.base", "not permitted"),
        ({"verdicts": {"limited_attempts": 0}}, "verdicts.limited_attempts", "greater than or equal to 1"),
        ({"retry_after": {"mode": "obey"}}, "retry_after.mode", "'floor' or 'ignore'"),
        ({"retry_after": {"cap_s": "4h"}}, "retry_after.cap_s", "valid number"),
        ({"breaker": {"failures": 0}}, "breaker.failures", "greater than or equal to 1"),
        ({"breaker": {"cooldown_s": 700}}, "breaker", "cooldown_cap_s (600) is below cooldown_s (700)"),
        ({"breaker": {"cooldown_s": 0}}, "breaker.cooldown_s", "greater than or equal to 0.1"),
        ({"limits": {"concurrency": 0}}, "limits.concurrency", "greater than or equal to 1"),
        ({"limits": {"concurrency": 1_001}}, "limits.concurrency", "less than or equal to 1000"),
        ({"limits": {"rate_per_s": 0}}, "limits.rate_per_s", "greater than or equal to 0.001"),
        ({"limits": {"burst": 5}}, "limits", "set rate_per_s or leave burst out"),
        ({"timeout_s": 0.5}, "timeout_s", "greater than or equal to 1"),
        ({"timeout_s": 31}, "timeout_s", "less than or equal to 30"),
        ({"connect_timeout_s": 0}, "connect_timeout_s", "greater than or equal to 0.1"),
        ({"retires": 3}, "retires", "not permitted"),
    ],
)
def test_a_refusal_says_where_and_why(document: dict[str, Any], at: str, says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Policy.model_validate(document)
    (error,) = refused.value.errors()
    assert ".".join(map(str, error["loc"])) == at
    assert says in error["msg"]


@pytest.mark.parametrize(
    ("limits", "size"),
    [
        (Limits(), None),
        (Limits(rate_per_s=0.2), 1),
        (Limits(rate_per_s=1), 1),
        (Limits(rate_per_s=2.5), 3),
        (Limits(rate_per_s=50, burst=4), 4),
    ],
)
def test_a_bucket_holds_one_second_and_at_least_one_request_unless_told(limits: Limits, size: int | None) -> None:
    assert limits.bucket_size == size


@given(st.floats(min_value=0.001, max_value=10_000))
def test_a_bucket_is_never_empty_and_never_smaller_than_its_rate(rate: float) -> None:
    size = Limits(rate_per_s=rate).bucket_size
    assert size is not None
    assert size >= max(1, rate)
    assert size < rate + 1 or size == 1


def _fields(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for part in (schema, *schema["$defs"].values()):
        for name, field in part["properties"].items():
            yield f"{part['title']}.{name}", field


def test_the_schema_describes_and_bounds_every_field_and_gives_its_default() -> None:
    schema = Policy.model_json_schema()
    assert "required" not in schema
    for name, field in _fields(schema):
        assert field["description"].endswith("."), name
        assert "default" in field, name
        for kind in field.get("anyOf", [field]):
            if kind.get("type") in {"number", "integer"}:
                assert {"minimum", "exclusiveMinimum"} & kind.keys(), name
                assert "maximum" in kind, name


def test_every_number_of_seconds_carries_its_unit() -> None:
    for name, field in _fields(Policy.model_json_schema()):
        if "seconds" in field["description"]:
            assert name.endswith("_s"), name


def test_the_schema_refuses_unknown_fields_everywhere() -> None:
    schema = Policy.model_json_schema()
    assert all(part["additionalProperties"] is False for part in (schema, *schema["$defs"].values()))
