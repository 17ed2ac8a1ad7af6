import heapq
from dataclasses import replace
from datetime import datetime
from itertools import count
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.policy.breaker import Outcome
from forbear.policy.concurrency import after
from forbear.policy.model import Adaptive
from forbear.policy.verdict import ErrorClass, Verdict
from tests.functions.policy.outcomes import BATCHES, BEGAN, NOW, answered, failed, seconds

RULE = Adaptive(decrease=0.9)
EARLIER = NOW - seconds(60)


def limited(limit: int | None, batch: list[Outcome], *, cap: int = 100, slow: bool = False) -> int | None:
    return after(RULE, cap, limit, None, batch, now=NOW, slow=slow)[0]


# The vectors of AIMDLimitTest in Netflix's concurrency-limits


def test_a_good_answer_with_half_of_the_limit_in_use_makes_it_one_more() -> None:
    assert limited(20, [answered(200, in_flight=10)]) == 21
    assert limited(20, [answered(200, in_flight=9)]) == 20


def test_a_drop_makes_it_nine_tenths() -> None:
    assert limited(30, [answered(503)]) == 27


def test_it_never_passes_its_maximum() -> None:
    """A limit of 21 under a maximum of 21 stays; at the maximum it is kept as None, so that the policy's own holds."""
    assert limited(21, [answered(200, in_flight=21)], cap=21) is None
    assert limited(None, [answered(200, in_flight=21)], cap=21) is None


# Ours


@pytest.mark.parametrize("outcome", [answered(429), answered(503), failed(ErrorClass.TIMEOUT)])
def test_overload_is_a_timeout_a_429_or_a_503(outcome: Outcome) -> None:
    assert after(RULE, 100, None, None, [outcome], now=NOW) == (90, NOW)


@pytest.mark.parametrize(
    "outcome",
    [answered(500), answered(502), *(failed(error) for error in ErrorClass if error is not ErrorClass.TIMEOUT)],
)
def test_what_says_nothing_of_the_load_moves_nothing(outcome: Outcome) -> None:
    """A refused connection is an outage, which is the breaker's; a 500 may be a quick way of not doing the work."""
    assert after(RULE, 100, 20, EARLIER, [replace(outcome, in_flight=20)], now=NOW) == (20, EARLIER)


@pytest.mark.parametrize("status", [200, 302, 404, 410])
def test_any_answer_under_500_may_increase(status: int) -> None:
    assert limited(20, [answered(status, in_flight=20)]) == 21


def test_what_a_policy_calls_a_success_is_no_overload() -> None:
    assert limited(20, [replace(answered(429, in_flight=20), verdict=Verdict.SUCCESS)]) == 21


def test_it_never_falls_below_one() -> None:
    assert after(RULE, 100, 1, EARLIER, [answered(429)], now=NOW) == (1, EARLIER)
    assert after(Adaptive(decrease=0.1), 100, 2, EARLIER, [answered(429)], now=NOW) == (1, NOW)


def test_a_batch_is_at_most_one_step_and_the_decrease_wins() -> None:
    """A hundred answers of one overload are one overload."""
    assert limited(20, [answered(200, in_flight=20)] * 100) == 21
    assert limited(20, [answered(429)] * 100) == 18
    assert limited(20, [answered(200, in_flight=20), answered(429), answered(200, in_flight=20)]) == 18


def test_what_began_before_the_last_step_moves_nothing() -> None:
    """It went out under another limit: a step takes a round trip to show."""
    before = [
        answered(429, started=NOW - seconds(0.001)),
        answered(200, in_flight=20, started=NOW - seconds(0.001)),
    ]
    later = NOW + seconds(1)
    assert after(RULE, 100, 20, NOW, before, now=later) == (20, NOW)
    assert after(RULE, 100, 20, NOW, before, now=later, slow=True) == (20, NOW)
    assert after(RULE, 100, 20, NOW, [answered(429, started=NOW)], now=later) == (18, later)


def test_reaching_the_cap_gives_the_policys_own_limit_back() -> None:
    assert after(RULE, 100, 99, EARLIER, [answered(200, in_flight=99)], now=NOW) == (None, NOW)


def test_a_cap_that_was_lowered_holds() -> None:
    assert after(RULE, 10, 50, EARLIER, [answered(404)], now=NOW) == (None, EARLIER)
    assert after(RULE, 10, 50, EARLIER, [answered(429)], now=NOW) == (9, NOW)


@pytest.mark.parametrize(("rule", "cap"), [(None, 100), (RULE, None), (None, None)])
def test_without_a_rule_or_a_cap_there_is_no_limit(rule: Adaptive | None, cap: int | None) -> None:
    assert after(rule, cap, 20, EARLIER, [answered(429)], now=NOW) == (None, None)


# Latency


def test_a_slow_percentile_halves_and_what_is_fast_again_restores() -> None:
    """100 in flight, halved while the percentile is too high, one more a round trip after."""
    rule = Adaptive(decrease=0.5, slow_s=3, window_s=60)
    limit, since = after(rule, 100, None, None, [answered(200)], now=NOW, slow=True)
    assert (limit, since) == (50, NOW)
    fast = [answered(200, in_flight=50, started=NOW + seconds(1))]
    assert after(rule, 100, limit, since, fast, now=NOW + seconds(2)) == (51, NOW + seconds(2))


def test_one_peak_in_the_window_decreases_once() -> None:
    """The percentile sees the peak for the whole window; a round trip later is no reason to halve again."""
    rule = Adaptive(decrease=0.5, slow_s=3, window_s=60)
    limit, since = after(rule, 100, None, None, [answered(200)], now=NOW, slow=True)
    for passed_s in range(1, 60):
        now = NOW + seconds(passed_s)
        batch = [answered(200, in_flight=50, started=now)]
        assert after(rule, 100, limit, since, batch, now=now, slow=True) == (50, NOW)
    again = NOW + seconds(60)
    assert after(rule, 100, limit, since, [answered(200, started=again)], now=again, slow=True) == (25, again)


def test_overload_decreases_while_latency_waits_for_its_window() -> None:
    now = NOW + seconds(1)
    assert after(RULE, 100, 50, NOW, [answered(429, started=now)], now=now, slow=True) == (45, now)


# In a loop with a receiver


class Receiver:
    """Answers so many at once in about a second each; a 429 to more comes at once."""

    def __init__(self, capacity: int, rng: Random) -> None:
        self.capacity = capacity
        self.rng = rng
        self.busy = 0
        self.served = 0

    def answer(self) -> tuple[int, float]:
        """A status, and after how many seconds it comes."""
        if self.busy >= self.capacity:
            return 429, 0.01
        self.busy += 1
        return 200, self.rng.uniform(0.9, 1.1)


def run(receiver: Receiver, until_s: float, settled_s: float) -> tuple[list[int], float]:
    """A sender with more to send than may go, settling each answer by itself.

    Returns:
        Every limit after `settled_s`, and what was served a second from then on.
    """
    limit, since = None, None
    in_flight, served, clock_s = 0, 0, 0.0
    sequence = count()
    limits: list[int] = []
    ends: list[tuple[float, int, Outcome]] = []
    while clock_s < until_s:
        while in_flight < (limit or 100):
            in_flight += 1
            status, latency_s = receiver.answer()
            sent = answered(status, started=BEGAN + seconds(clock_s), in_flight=in_flight)
            heapq.heappush(ends, (clock_s + latency_s, next(sequence), sent))
        clock_s, _, ended = heapq.heappop(ends)
        in_flight -= 1
        receiver.busy -= ended.status == 200
        limit, since = after(RULE, 100, limit, since, [ended], now=BEGAN + seconds(clock_s))
        if clock_s >= settled_s:
            limits.append(limit or 100)
            served += ended.status == 200
    return limits, served / (until_s - settled_s)


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_what_a_receiver_bears_and_saw_tooths_below_it(seed: int) -> None:
    """A receiver of 50 at once: the limit stays from 45 to 51, at nine tenths of its capacity or more."""
    limits, goodput_per_s = run(Receiver(50, Random(seed)), until_s=180, settled_s=30)
    assert (min(limits), max(limits)) == (45, 51)
    assert goodput_per_s >= 0.9 * 50


# Properties

LIMITS = st.one_of(st.none(), st.integers(1, 60))
SINCES = st.one_of(st.none(), st.integers(-30, 30).map(lambda offset_s: NOW + seconds(offset_s)))
LATER = NOW + seconds(60)


@given(st.floats(0.1, 0.99), st.integers(1, 50), st.tuples(LIMITS, SINCES), BATCHES, st.booleans())
@settings(max_examples=200)
def test_it_stays_from_one_to_the_cap_and_takes_one_step_at_most(
    decrease: float, cap: int, stored: tuple[int | None, datetime | None], batch: list[Outcome], slow: bool
) -> None:
    limit, since = stored
    result, changed = after(Adaptive(decrease=decrease), cap, limit, since, batch, now=LATER, slow=slow)
    before, width = min(limit or cap, cap), result or cap
    assert result is None or 1 <= result < cap
    assert width in {before, min(cap, before + 1), max(1, int(before * decrease))}
    assert changed == (LATER if width != before else since)


@given(st.integers(1, 50), LIMITS, SINCES, BATCHES)
@settings(max_examples=100)
def test_a_second_settling_of_the_same_batch_moves_nothing(
    cap: int, limit: int | None, since: datetime | None, batch: list[Outcome]
) -> None:
    once = after(RULE, cap, limit, since, batch, now=LATER)
    if once[1] == LATER:
        older = [outcome for outcome in batch if outcome.started < LATER]
        assert after(RULE, cap, *once, older, now=LATER) == once
    else:
        assert after(RULE, cap, *once, batch, now=LATER) == once
    assert after(RULE, cap, *once, [], now=LATER, slow=True) == once


@given(st.integers(1, 50), LIMITS, SINCES, BATCHES, st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_the_order_within_a_batch_does_not_matter(
    cap: int, limit: int | None, since: datetime | None, batch: list[Outcome], rng: Random
) -> None:
    shuffled = batch.copy()
    rng.shuffle(shuffled)
    assert after(RULE, cap, limit, since, shuffled, now=LATER) == after(RULE, cap, limit, since, batch, now=LATER)
