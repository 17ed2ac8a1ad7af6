"""The policy of an endpoint as one validated, immutable value, and its JSON schema as part of the public API.

Owns names, units, bounds and defaults. It must not know how a rule is applied: that is the subject of the sibling
modules. Seconds are the only unit of time and end in `_s`. Values are strict: `"5"` and `true` are no numbers.
"""

import math
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

_DAY_S = 86_400.0
_WEEK_S = 7 * _DAY_S


class _Part(BaseModel):
    """What every part of a policy has in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Exponential(_Part):
    """Gaps that grow by a factor up to a cap: before retry n, `min(cap_s, base_s * multiplier ** (n - 1))` seconds.

    It ends after `retries`, or when the next attempt would begin after `window_s`, whichever comes first.
    """

    kind: Literal["exponential"] = Field(default="exponential", description="Which kind of schedule this is.")
    base_s: float = Field(
        default=5.0,
        ge=0.01,
        le=_WEEK_S,
        description="The gap between the first attempt and the first retry, in seconds.",
    )
    multiplier: float = Field(
        default=2.0, ge=1, le=100, description="By what each gap is multiplied to give the next; 1 is a fixed interval."
    )
    cap_s: float = Field(
        default=14_400.0,
        ge=0.01,
        le=_WEEK_S,
        description="The longest gap before jitter, in seconds; not below `base_s`.",
    )
    retries: int | None = Field(
        default=29,
        ge=0,
        le=1_000_000,
        description="How many attempts may follow the first one: n retries are n + 1 attempts. Null sets no limit, "
        "and then `window_s` must set one.",
    )
    window_s: float | None = Field(
        default=None,
        gt=0,
        le=30 * _DAY_S,
        description="How long after the first attempt the last one may begin, in seconds; time during which the "
        "endpoint was paused or disabled does not count. Null sets no limit, and then `retries` must set one.",
    )
    jitter: Literal["full", "none"] = Field(
        default="full",
        description="How a gap is spread: `full` draws it evenly from 0 to the gap, `none` takes the gap as it is.",
    )

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.cap_s < self.base_s:
            raise ValueError(f"cap_s ({self.cap_s:g}) is below base_s ({self.base_s:g}): raise cap_s or lower base_s")
        if self.retries is None and self.window_s is None:
            raise ValueError("retries and window_s are both null, so the schedule would never end: set at least one")
        return self


# A further kind of schedule makes this a union discriminated by `kind`, and adds its branch in `schedule.py`.
Schedule = Exponential


class Verdicts(_Part):
    """What the answers of a receiver mean, as far as a policy may choose it."""

    limited_attempts: int = Field(
        default=3,
        ge=1,
        le=100,
        description="How many attempts may be answered with a 4xx that is probably final (any but 408, 410, 425 and "
        "429) before the delivery ends as dead (`permanent`).",
    )


class RetryAfterRule(_Part):
    """How far a receiver may set the pace of its own retries (RFC 9110 section 10.2.3)."""

    mode: Literal["floor", "ignore"] = Field(
        default="floor",
        description="`floor`: the next attempt is never earlier than asked for, up to `cap_s`; with 429 and 503 the "
        "whole endpoint waits. `ignore`: the header is not read.",
    )
    cap_s: float = Field(
        default=14_400.0,
        gt=0,
        le=_WEEK_S,
        description="The longest wait that is honoured, in seconds; more is cut to it.",
    )


class BreakerRule(_Part):
    """When attempts to a failing endpoint stop, and for how long."""

    failures: int = Field(
        default=5,
        ge=1,
        le=10_000,
        description="How many failures in a row open the breaker: 5xx, 408, 425 and transport errors, from any of the "
        "endpoint's deliveries. Other 4xx and 429 neither count nor reset.",
    )
    cooldown_s: float = Field(
        default=30.0,
        ge=0.1,
        le=_DAY_S,
        description="How long the breaker stays open before it lets one probe go, in seconds.",
    )
    cooldown_multiplier: float = Field(
        default=2.0,
        ge=1,
        le=100,
        description="By what the cool-down is multiplied with each further opening, until a probe is answered.",
    )
    cooldown_cap_s: float = Field(
        default=600.0, gt=0, le=_DAY_S, description="The longest cool-down, in seconds; not below `cooldown_s`."
    )

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.cooldown_cap_s < self.cooldown_s:
            raise ValueError(
                f"cooldown_cap_s ({self.cooldown_cap_s:g}) is below cooldown_s ({self.cooldown_s:g}): "
                "raise cooldown_cap_s or lower cooldown_s"
            )
        return self


class Limits(_Part):
    """How much may go to an endpoint at once and a second."""

    concurrency: int = Field(
        default=100, ge=1, le=1_000, description="How many requests to the endpoint may be in flight at once."
    )
    rate_per_s: float | None = Field(
        default=None,
        ge=0.001,
        le=10_000,
        description="How many requests a second may go to the endpoint on average; null sets no limit.",
    )
    burst: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="How many requests may go at once after a pause under `rate_per_s`; null is one second's worth, "
        "and at least 1.",
    )

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.burst is not None and self.rate_per_s is None:
            raise ValueError("burst says nothing without rate_per_s: set rate_per_s or leave burst out")
        return self

    @property
    def bucket_size(self) -> int | None:
        """How many tokens the bucket of `rate_per_s` holds: `burst`, or one second's worth; None without a rate."""
        if self.rate_per_s is None:
            return None
        return self.burst if self.burst is not None else max(1, math.ceil(self.rate_per_s))


class Policy(_Part):
    """How deliveries to an endpoint are attempted, retried, held back and given up.

    `Policy()` is the default policy. It keeps trying for 73.7 hours on paper, and for about half of that in
    expectation, because full jitter halves the mean gap.
    """

    schedule: Schedule = Field(
        default=Exponential(), description="The gaps between the attempts of a delivery, and when they end."
    )
    verdicts: Verdicts = Field(default=Verdicts(), description="What the receiver's answers mean.")
    retry_after: RetryAfterRule = Field(
        default=RetryAfterRule(), description="What is done with a `Retry-After` header of a retryable answer."
    )
    breaker: BreakerRule = Field(
        default=BreakerRule(), description="When attempts to the endpoint stop because it fails, and for how long."
    )
    limits: Limits = Field(default=Limits(), description="How much may go to the endpoint at once and a second.")
    timeout_s: float = Field(
        default=15.0,
        ge=1,
        le=30,
        description="How long one attempt may take, from resolving the name to the end of the answer, in seconds.",
    )
    connect_timeout_s: float = Field(
        default=5.0,
        ge=0.1,
        le=30,
        description="How long connecting may take, in seconds; `timeout_s` ends it too.",
    )
