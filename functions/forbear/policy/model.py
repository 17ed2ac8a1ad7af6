"""The policy of an endpoint as one validated, immutable value, and its JSON schema as part of the public API.

Owns names, units, bounds and defaults. It must not know how a rule is applied: that is the subject of the sibling
modules; the schedules stand in `schedule.py`. Seconds are the only unit of time and end in `_s`. Values are strict:
`"5"` and `true` are no numbers.
"""

import math
from collections import Counter
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from forbear.policy.part import DAY_S, HOUR_S, YEAR_S, Part
from forbear.policy.schedule import Ladder, Schedule

_CLASSES = ("2xx", "3xx", "4xx", "5xx")

Statuses = Annotated[
    tuple[Annotated[str, Field(pattern="^[2-5](xx|[0-9]{2})$")], ...],
    Field(strict=False, max_length=50),
]


class Verdicts(Part):
    """What the statuses of a receiver mean: each status, or class of statuses, stands in one of the five lists.

    A status of its own beats its class. Transport errors, and what is no status at all, are retried.
    """

    success: Statuses = Field(default=("2xx",), description="The delivery has succeeded.")
    retry: Statuses = Field(
        default=("408", "425", "429", "5xx"), description="Another attempt follows, as the schedule has it."
    )
    limited: Statuses = Field(
        default=("4xx",), description="Probably final: another attempt follows, but only `limited_attempts` in all."
    )
    permanent: Statuses = Field(default=("3xx",), description="Final: the delivery is dead (`permanent`).")
    gone: Statuses = Field(
        default=("410",), description="Final for the endpoint: the delivery is dead (`gone`), the endpoint disabled."
    )
    limited_attempts: int = Field(
        default=3,
        ge=1,
        le=100,
        description="How many attempts may be answered with one of `limited` before the delivery is dead.",
    )

    @model_validator(mode="after")
    def _complete(self) -> Self:
        named = Counter((*self.success, *self.retry, *self.limited, *self.permanent, *self.gone))
        if twice := [status for status, times in named.items() if times > 1]:
            raise ValueError(f"{', '.join(twice)} has more than one verdict: leave it in one list")
        if missing := [each for each in _CLASSES if each not in named]:
            raise ValueError(f"{', '.join(missing)} has no verdict: put each of 2xx, 3xx, 4xx and 5xx into a list")
        return self


class RetryAfterRule(Part):
    """How far a receiver may set the pace of its own retries (RFC 9110 section 10.2.3)."""

    mode: Literal["floor", "exact", "tiered", "ignore"] = Field(
        default="floor",
        description="`floor`: the next attempt is never earlier than asked for. `exact`: it comes when asked for, "
        "even if the schedule would wait longer. `tiered`: like `exact`, but a wait of more than `ignore_above_s` is "
        "not believed. All three honour up to `cap_s`, add jitter only on top, and let the whole endpoint wait after "
        "429 and 503. `ignore`: the header is not read.",
    )
    cap_s: float = Field(
        default=4 * HOUR_S,
        gt=0,
        le=7 * DAY_S,
        description="The longest wait that is honoured, in seconds; more is cut to it.",
    )
    min_s: float = Field(
        default=1.0, ge=0, le=HOUR_S, description="The shortest wait under `exact` and `tiered`, in seconds."
    )
    ignore_above_s: float | None = Field(
        default=None,
        gt=0,
        le=YEAR_S,
        description="Under `tiered`, a wait of more than this is ignored, in seconds; not below `cap_s`.",
    )
    fractions: bool = Field(
        default=False,
        description="Whether `1.5` is read as a second and a half. RFC 9110 knows whole seconds only; without this, "
        "such a header is ignored.",
    )

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if (self.mode == "tiered") != (self.ignore_above_s is not None):
            raise ValueError("ignore_above_s belongs to the mode tiered: set both or neither")
        if self.ignore_above_s is not None and self.ignore_above_s < self.cap_s:
            raise ValueError(
                f"ignore_above_s ({self.ignore_above_s:g}) is below cap_s ({self.cap_s:g}): raise it or lower cap_s"
            )
        if self.min_s > self.cap_s:
            raise ValueError(f"min_s ({self.min_s:g}) is over cap_s ({self.cap_s:g}): lower min_s or raise cap_s")
        return self


class BreakerRule(Part):
    """When attempts to a failing endpoint stop, for how long, and how they start again.

    Failures are the verdicts of the kind retry but for answers under 500: 5xx and transport errors. Any other answer
    under 500 neither counts nor resets, a success resets. Each of `failures`, `volume` and `failing_s` that is set
    opens the breaker on its own.
    """

    failures: int | None = Field(
        default=5, ge=1, le=10_000, description="So many failures in a row open it. Null: not by failures in a row."
    )
    within_s: float | None = Field(
        default=None,
        gt=0,
        le=DAY_S,
        description="The `failures` in a row must lie within so many seconds (and be 200 at most). Null: however long "
        "they take.",
    )
    volume: int | None = Field(
        default=None,
        ge=1,
        le=200,
        description="So many failures within `volume_window_s` open it, successes between them or not. Null: not by "
        "volume.",
    )
    volume_window_s: float | None = Field(
        default=None, gt=0, le=DAY_S, description="The window of `volume`, in seconds."
    )
    failing_s: float | None = Field(
        default=None,
        gt=0,
        le=7 * DAY_S,
        description="Nothing but failures for so many seconds opens it. Null: not by the time.",
    )
    cooldown_s: float = Field(
        default=30.0,
        ge=0.1,
        le=DAY_S,
        description="How long the breaker stays open before it lets one probe go, in seconds.",
    )
    cooldown_multiplier: float = Field(
        default=2.0,
        ge=1,
        le=100,
        description="By what the cool-down is multiplied with each further opening, until the breaker has closed.",
    )
    cooldown_cap_s: float = Field(
        default=300.0, gt=0, le=DAY_S, description="The longest cool-down, in seconds; not below `cooldown_s`."
    )
    slow_start: bool = Field(
        default=True,
        description="Whether the endpoint gets a trickle that doubles, and no more at once, after an answered probe "
        "and after a hold (a pause, say); a failure in it opens the breaker again.",
    )
    dead_letter: bool = Field(
        default=False,
        description="Whether deliveries that come due while the breaker is open end as dead (`circuit_open`) instead "
        "of waiting.",
    )

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.cooldown_cap_s < self.cooldown_s:
            raise ValueError(
                f"cooldown_cap_s ({self.cooldown_cap_s:g}) is below cooldown_s ({self.cooldown_s:g}): "
                "raise cooldown_cap_s or lower cooldown_s"
            )
        if self.failures is None and self.volume is None and self.failing_s is None:
            raise ValueError("nothing opens the breaker: set failures, volume or failing_s, or make breaker null")
        if (self.volume is None) != (self.volume_window_s is None):
            raise ValueError("volume and volume_window_s belong together: set both or neither")
        if self.within_s is not None and (self.failures is None or self.failures > 200):
            raise ValueError("within_s needs failures, and no more than 200")
        return self


class AutoDisable(Part):
    """When an endpoint that never succeeds is disabled: the reason is stored with it, and it waits to be enabled."""

    after_s: float = Field(
        default=5 * DAY_S,
        ge=60,
        le=YEAR_S,
        description="So many seconds without any success, counted from the first failure.",
    )
    failures: int = Field(default=5, ge=2, le=10_000, description="And at least so many failures in that time.")
    spread_s: float = Field(
        default=12 * HOUR_S,
        ge=0,
        le=YEAR_S,
        description="And at least so many seconds between the first of them and the last.",
    )


class RetryBudget(Part):
    """How many retries an endpoint gets for its first attempts. What is over waits, it does not fail.

    After Finagle's RetryBudget: a share of the first attempts of the last `window_s`, and a floor beside it.
    """

    ratio: float = Field(
        default=0.1, ge=0, le=10, description="So many retries for each recent first attempt: 0.1 is one for ten."
    )
    floor_per_s: float = Field(
        default=1.0, ge=0.001, le=1000, description="So many retries a second in any case, so that none waits for ever."
    )
    window_s: float = Field(
        default=10.0,
        ge=1,
        le=60,
        description="For how many seconds first attempts count, and how many seconds of the floor may be saved up.",
    )


class Limits(Part):
    """How much may go to an endpoint at once and a second."""

    concurrency: int | None = Field(
        default=100,
        ge=1,
        le=1_000,
        description="How many requests to the endpoint may be in flight at once; null sets no limit.",
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


class Adaptive(Part):
    """How the concurrency follows what the receiver bears, between 1 and `limits.concurrency`.

    Additive increase, multiplicative decrease (AIMD), at most one step a round trip: one more while at least half of it
    is used and answers are good, `decrease` times as much after a timeout, a 429, a 503 or a slow 99th percentile.
    """

    decrease: float = Field(
        default=0.9,
        ge=0.1,
        le=0.99,
        description="By what the concurrency is multiplied when the receiver is overloaded.",
    )
    slow_s: float | None = Field(
        default=None,
        gt=0,
        le=30,
        description="A 99th percentile of the latency over this, in seconds, is overload. Null: latency is not judged.",
    )
    window_s: float = Field(default=60.0, ge=1, le=3600, description="Over how many seconds the percentile is taken.")
    samples: int = Field(
        default=100, ge=10, le=1000, description="With fewer answers than this in the window, latency is not judged."
    )


class Policy(Part):
    """How deliveries to an endpoint are attempted, retried, held back and given up.

    `Policy()` is the default policy: one retry after seconds, then gaps that grow to four hours, for three days.
    """

    schedule: Schedule = Field(
        default=Ladder(gaps_s=(5, 30, 120, 480, 1_800, 7_200, 14_400), repeat_last=True, window_s=3 * DAY_S),
        description="The gaps between the attempts of a delivery, and when they end.",
    )
    verdicts: Verdicts = Field(default=Verdicts(), description="What the receiver's answers mean.")
    retry_after: RetryAfterRule = Field(
        default=RetryAfterRule(), description="What is done with a `Retry-After` header of a retryable answer."
    )
    breaker: BreakerRule | None = Field(
        default=BreakerRule(),
        description="When attempts to the endpoint stop because it fails, and for how long. Null: never.",
    )
    disable: AutoDisable | None = Field(
        default=AutoDisable(), description="When an endpoint that never succeeds is disabled. Null: never."
    )
    budget: RetryBudget | None = Field(
        default=RetryBudget(), description="How many retries there may be for the first attempts. Null: any number."
    )
    limits: Limits = Field(default=Limits(), description="How much may go to the endpoint at once and a second.")
    adaptive: Adaptive | None = Field(
        default=Adaptive(),
        description="How the concurrency follows what the receiver bears. Null: it stays at `limits.concurrency`.",
    )
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

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.adaptive is not None and self.limits.concurrency is None:
            raise ValueError("adaptive needs limits.concurrency to stay under: set it, or make adaptive null")
        return self
