"""The policy model: its default, its bounds, what its refusals say, and its schema."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from forbear.policy.model import (
    Adaptive,
    AutoDisable,
    BreakerRule,
    Limits,
    Policy,
    RetryAfterRule,
    RetryBudget,
    Verdicts,
)
from forbear.policy.schedule import EqualJitter, Exponential, Ladder, TwoPhase

LADDER = {"kind": "ladder", "gaps_s": [1]}
EXPONENTIAL = {"kind": "exponential", "base_s": 30, "multiplier": 3, "retries": 13}
TWO_PHASE = {"kind": "two_phase", "fast_s": [1], "slow_s": 60, "retries": 5}


def test_the_default_policy_is_what_the_documentation_says() -> None:
    """One quick retry, a ramp to four hours for three days, and every restraint."""
    policy = Policy()
    assert policy.schedule == Ladder(
        gaps_s=(5, 30, 120, 480, 1_800, 7_200, 14_400),
        repeat_last=True,
        retries=None,
        window_s=259_200,
        jitter=EqualJitter(),
    )
    assert policy.verdicts == Verdicts(
        success=("2xx",),
        retry=("408", "425", "429", "5xx"),
        limited=("4xx",),
        permanent=("3xx",),
        gone=("410",),
        limited_attempts=3,
    )
    assert policy.retry_after == RetryAfterRule(mode="floor", cap_s=14_400, fractions=False)
    assert policy.breaker == BreakerRule(
        failures=5, cooldown_s=30, cooldown_multiplier=2, cooldown_cap_s=300, slow_start=True, dead_letter=False
    )
    assert policy.disable == AutoDisable(after_s=432_000, failures=5, spread_s=43_200)
    assert policy.budget == RetryBudget(ratio=0.1, floor_per_s=1, window_s=10)
    assert policy.limits == Limits(concurrency=100, rate_per_s=None, burst=None)
    assert policy.adaptive == Adaptive(decrease=0.9, slow_s=None)
    assert (policy.timeout_s, policy.connect_timeout_s) == (15, 5)


def test_an_empty_document_is_the_default_policy() -> None:
    assert Policy.model_validate_json("{}") == Policy()


@pytest.mark.parametrize(
    "policy",
    [
        Policy(),
        Policy(schedule=Exponential(base_s=1, multiplier=2, window_s=3_600), limits=Limits(rate_per_s=0.5, burst=7)),
        Policy(schedule=TwoPhase(fast_s=(0, 1), slow_s=60, retries=9), breaker=None, disable=None, budget=None),
        Policy(adaptive=None, limits=Limits(concurrency=None), schedule=Ladder(gaps_s=())),
    ],
)
def test_a_policy_survives_its_way_through_json(policy: Policy) -> None:
    assert Policy.model_validate_json(policy.model_dump_json()) == policy
    assert Policy.model_validate(json.loads(policy.model_dump_json())) == policy


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Policy().timeout_s = 20


@pytest.mark.parametrize(
    ("document", "at", "says"),
    [
        ({"schedule": {"gaps_s": [1]}}, "schedule", "discriminator 'kind'"),
        ({"schedule": {"kind": "fibonacci"}}, "schedule", "'exponential', 'ladder', 'two_phase'"),
        ({"schedule": EXPONENTIAL | {"retries": None}}, "schedule.exponential", "never end: set at least one"),
        ({"schedule": EXPONENTIAL | {"cap_s": 20}}, "schedule.exponential", "cap_s (20) is below base_s (30)"),
        ({"schedule": EXPONENTIAL | {"base_s": 0}}, "schedule.exponential.base_s", "greater than or equal to 0.01"),
        ({"schedule": EXPONENTIAL | {"multiplier": 0.5}}, "schedule.exponential.multiplier", "greater than or equal"),
        ({"schedule": EXPONENTIAL | {"multiplier": math.inf}}, "schedule.exponential.multiplier", "finite"),
        ({"schedule": EXPONENTIAL | {"cap_s": math.nan}}, "schedule.exponential.cap_s", "finite"),
        ({"schedule": EXPONENTIAL | {"retries": -1}}, "schedule.exponential.retries", "greater than or equal to 0"),
        ({"schedule": EXPONENTIAL | {"retries": True}}, "schedule.exponential.retries", "valid integer"),
        ({"schedule": EXPONENTIAL | {"retries": 2.5}}, "schedule.exponential.retries", "valid integer"),
        ({"schedule": EXPONENTIAL | {"window_s": 0}}, "schedule.exponential.window_s", "greater than 0"),
        ({"schedule": EXPONENTIAL | {"base": 3}}, "schedule.exponential.base", "not permitted"),
        ({"schedule": LADDER | {"gaps_s": [1, -1]}}, "schedule.ladder.gaps_s.1", "greater than or equal to 0"),
        ({"schedule": LADDER | {"gaps_s": [1] * 101}}, "schedule.ladder.gaps_s", "at most 100 items"),
        ({"schedule": LADDER | {"gaps_s": "1"}}, "schedule.ladder.gaps_s", "valid tuple"),
        ({"schedule": LADDER | {"retries": 2}}, "schedule.ladder", "retries (2) is more than the 1 gaps"),
        ({"schedule": LADDER | {"repeat_last": True}}, "schedule.ladder", "never end: set at least one"),
        ({"schedule": LADDER | {"gaps_s": [], "repeat_last": True}}, "schedule.ladder", "needs a last gap"),
        ({"schedule": LADDER | {"gaps_s": [0], "repeat_last": True}}, "schedule.ladder", "needs a last gap"),
        ({"schedule": TWO_PHASE | {"retries": None}}, "schedule.two_phase", "never end: set at least one"),
        ({"schedule": TWO_PHASE | {"slow_s": 0}}, "schedule.two_phase.slow_s", "greater than or equal to 0.01"),
        ({"schedule": LADDER | {"jitter": "none"}}, "schedule.ladder.jitter", "valid dictionary"),
        ({"schedule": LADDER | {"jitter": {"kind": "some"}}}, "schedule.ladder.jitter", "'full', 'equal'"),
        (
            {"schedule": LADDER | {"jitter": {"kind": "proportional"}}},
            "schedule.ladder.jitter.proportional.ratio",
            "required",
        ),
        (
            {"schedule": LADDER | {"jitter": {"kind": "proportional", "ratio": 1.5}}},
            "schedule.ladder.jitter.proportional.ratio",
            "less than or equal to 1",
        ),
        (
            {"schedule": LADDER | {"jitter": {"kind": "additive", "ratio": 0.1, "min_s": 2, "max_s": 1}}},
            "schedule.ladder.jitter.additive",
            "max_s (1) is below min_s (2): raise max_s or lower min_s",
        ),
        ({"verdicts": {"limited_attempts": 0}}, "verdicts.limited_attempts", "greater than or equal to 1"),
        ({"verdicts": {"retry": ["4xx", "5xx"]}}, "verdicts", "4xx has more than one verdict: leave it in one list"),
        ({"verdicts": {"limited": []}}, "verdicts", "4xx has no verdict"),
        ({"verdicts": {"gone": ["99"]}}, "verdicts.gone.0", "match pattern"),
        ({"verdicts": {"gone": [410]}}, "verdicts.gone.0", "valid string"),
        ({"retry_after": {"mode": "obey"}}, "retry_after.mode", "'floor', 'exact', 'tiered' or 'ignore'"),
        ({"retry_after": {"cap_s": "4h"}}, "retry_after.cap_s", "valid number"),
        ({"retry_after": {"mode": "tiered"}}, "retry_after", "ignore_above_s belongs to the mode tiered"),
        ({"retry_after": {"ignore_above_s": 9e4}}, "retry_after", "ignore_above_s belongs to the mode tiered"),
        (
            {"retry_after": {"mode": "tiered", "ignore_above_s": 60}},
            "retry_after",
            "ignore_above_s (60) is below cap_s (14400)",
        ),
        ({"retry_after": {"min_s": 60, "cap_s": 30}}, "retry_after", "min_s (60) is over cap_s (30)"),
        ({"breaker": {"failures": 0}}, "breaker.failures", "greater than or equal to 1"),
        ({"breaker": {"failures": None}}, "breaker", "nothing opens the breaker"),
        ({"breaker": {"volume": 20}}, "breaker", "volume and volume_window_s belong together"),
        ({"breaker": {"failures": 201, "within_s": 60}}, "breaker", "within_s needs failures, and no more than 200"),
        ({"breaker": {"cooldown_s": 700}}, "breaker", "cooldown_cap_s (300) is below cooldown_s (700)"),
        ({"breaker": {"cooldown_s": 0}}, "breaker.cooldown_s", "greater than or equal to 0.1"),
        ({"disable": {"failures": 1}}, "disable.failures", "greater than or equal to 2"),
        ({"budget": {"floor_per_s": 0}}, "budget.floor_per_s", "greater than or equal to 0.001"),
        ({"budget": {"window_s": 61}}, "budget.window_s", "less than or equal to 60"),
        ({"limits": {"concurrency": 0}}, "limits.concurrency", "greater than or equal to 1"),
        ({"limits": {"concurrency": 1_001}}, "limits.concurrency", "less than or equal to 1000"),
        ({"limits": {"rate_per_s": 0}}, "limits.rate_per_s", "greater than or equal to 0.001"),
        ({"limits": {"burst": 5}}, "limits", "set rate_per_s or leave burst out"),
        ({"limits": None}, "limits", "valid dictionary"),
        ({"limits": {"concurrency": None}}, "", "adaptive needs limits.concurrency to stay under"),
        ({"adaptive": {"decrease": 1}}, "adaptive.decrease", "less than or equal to 0.99"),
        ({"timeout_s": 0.5}, "timeout_s", "greater than or equal to 1"),
        ({"timeout_s": 31}, "timeout_s", "less than or equal to 30"),
        ({"timeout_s": None}, "timeout_s", "valid number"),
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
            if name != "kind":
                yield f"{part['title']}.{name}", field


def test_the_schema_describes_and_bounds_every_field() -> None:
    schema = Policy.model_json_schema()
    assert "required" not in schema
    for name, field in _fields(schema):
        assert field["description"].endswith("."), name
        for kind in field.get("anyOf", [field]):
            if kind.get("type") in {"number", "integer"}:
                assert {"minimum", "exclusiveMinimum"} & kind.keys(), name
                assert {"maximum", "exclusiveMaximum"} & kind.keys(), name
            if kind.get("type") == "array":
                assert "maxItems" in kind, name


def test_only_what_makes_a_schedule_or_a_jitter_what_it_is_has_no_default() -> None:
    required = {
        (part["title"], name)
        for part in Policy.model_json_schema()["$defs"].values()
        for name in part.get("required", ())
    }
    assert required == {
        ("Exponential", "base_s"),
        ("Exponential", "multiplier"),
        ("Ladder", "gaps_s"),
        ("TwoPhase", "fast_s"),
        ("TwoPhase", "slow_s"),
        ("ProportionalJitter", "ratio"),
        ("AdditiveJitter", "ratio"),
    }


def test_every_number_of_seconds_carries_its_unit() -> None:
    for name, field in _fields(Policy.model_json_schema()):
        if "in seconds" in field["description"]:
            assert name.endswith("_s"), name


def test_the_schema_refuses_unknown_fields_everywhere() -> None:
    schema = Policy.model_json_schema()
    assert all(part["additionalProperties"] is False for part in (schema, *schema["$defs"].values()))
