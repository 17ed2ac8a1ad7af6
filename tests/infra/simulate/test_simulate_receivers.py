"""Simulated receivers: capacity, queues, outages, limits. What they answer follows from what came, and when."""

from __future__ import annotations

from itertools import accumulate, pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forbear.policy.verdict import ErrorClass
from infra.simulate.receivers import (
    REFUSAL_S,
    Capacity,
    Mode,
    Outage,
    RateLimit,
    Receiver,
    Reply,
    Working,
)

GAPS = st.lists(st.floats(0, 3), min_size=1, max_size=80)


def replies(receiver: Receiver, times: list[float], timeout_s: float = 15) -> list[Reply]:
    working = Working(receiver, Random(1))
    return [working.receive(at, timeout_s) for at in times]


def times_of(gaps: list[float]) -> list[float]:
    return list(accumulate(gaps))


# Capacity


@given(GAPS, st.floats(0.5, 20), st.floats(0, 2), st.floats(1, 10))
@settings(max_examples=60)
def test_no_more_is_served_than_the_capacity_has_time_for(
    gaps: list[float], per_s: float, latency_s: float, timeout_s: float
) -> None:
    """Whatever comes, between any two whole answers but the first there is the time that the work takes."""
    times = times_of(gaps)
    got = replies(Receiver(latency_s, Capacity(per_s)), times, timeout_s)
    answered = sorted(at + reply.latency_s for at, reply in zip(times, got, strict=True) if reply.status == 200)
    for before, after in pairwise(answered):
        assert after - before >= 1 / per_s - 1e-6
    assert all(reply.latency_s <= timeout_s for reply in got)


def test_a_queue_longer_than_the_timeout_makes_all_work_futile() -> None:
    """Twice the capacity for a minute: at first all is well, then the receiver works for those that have gone."""
    got = replies(Receiver(0, Capacity(10)), [n / 20 for n in range(1200)], timeout_s=5)
    in_time = [reply.error is None for reply in got]
    assert all(in_time[:95])
    assert not any(in_time[105:])
    assert {reply.error for reply in got[105:]} == {ErrorClass.TIMEOUT}


def test_what_waits_is_served_in_order() -> None:
    got = replies(Receiver(0.5, Capacity(2)), [0, 0, 0, 10])
    assert [reply.latency_s for reply in got] == [1.0, 1.5, 2.0, 1.0]


def test_one_that_comes_out_of_order_waits_no_longer_than_the_queue_is() -> None:
    assert replies(Receiver(0, Capacity(10)), [5.0, 1.0])[1].latency_s == pytest.approx(0.2)


def test_a_full_queue_answers_503_at_once() -> None:
    got = replies(Receiver(0.1, Capacity(1, queue=2)), [0, 0, 0, 0, 0])
    assert [reply.status for reply in got] == [200, 200, 200, 503, 503]
    assert got[-1].latency_s == 0.1


def test_after_an_outage_the_capacity_comes_back_bit_by_bit() -> None:
    receiver = Receiver(0, Capacity(10, ramp_s=100), outages=(Outage(0, 10, Mode.REFUSE),))
    assert replies(receiver, [10])[0].latency_s == pytest.approx(2.0)
    assert replies(receiver, [60])[0].latency_s == pytest.approx(0.2)
    assert replies(receiver, [111])[0].latency_s == pytest.approx(0.1)


# Outages


@pytest.mark.parametrize(
    ("mode", "during"),
    [
        (Mode.REFUSE, Reply(None, ErrorClass.CONNECT, REFUSAL_S)),
        (Mode.UNAVAILABLE, Reply(503, None, 0.1, 60)),
        (Mode.HANG, Reply(None, ErrorClass.TIMEOUT, 5)),
    ],
)
def test_an_outage_begins_and_ends_when_it_says(mode: Mode, during: Reply) -> None:
    receiver = Receiver(0.1, outages=(Outage(10, 20, mode, 60),))
    well = Reply(200, None, 0.1)
    assert replies(receiver, [9.8, 10, 19.999, 20], timeout_s=5) == [well, during, during, well]


@pytest.mark.parametrize(
    ("mode", "error", "after_s"), [(Mode.REFUSE, ErrorClass.RESET, 1), (Mode.HANG, ErrorClass.TIMEOUT, 5)]
)
def test_an_outage_cuts_off_what_waits_for_an_answer(mode: Mode, error: ErrorClass, after_s: float) -> None:
    receiver = Receiver(2, outages=(Outage(10, 20, mode),))
    assert replies(receiver, [9], timeout_s=5) == [Reply(None, error, after_s)]
    assert replies(receiver, [7.9], timeout_s=5)[0].status == 200


def test_a_receiver_that_refused_comes_back_with_an_empty_queue_and_one_that_hung_does_not() -> None:
    def first_after(mode: Mode) -> Reply:
        receiver = Receiver(0, Capacity(1), outages=(Outage(10, 20, mode),))
        return replies(receiver, [*[9.0] * 30, 20], timeout_s=30)[-1]

    assert first_after(Mode.REFUSE).latency_s == 1
    assert first_after(Mode.HANG).latency_s == 20


@pytest.mark.parametrize(
    "outages",
    [
        (Outage(5, 10, Mode.HANG), Outage(9, 12, Mode.HANG)),
        (Outage(5, 5, Mode.HANG),),
        (Outage(-1, 5, Mode.HANG),),
    ],
)
def test_outages_that_cannot_be_are_refused(outages: tuple[Outage, ...]) -> None:
    with pytest.raises(ValueError, match=r"give outages that do not overlap|give it one"):
        Receiver(outages=outages)


# Errors and limits


def test_the_share_of_errors_is_about_what_was_asked_for() -> None:
    statuses = [reply.status for reply in replies(Receiver(error_share=0.3), [float(n) for n in range(2000)])]
    assert 500 < statuses.count(500) < 700
    assert set(statuses) == {200, 500}


@given(GAPS, st.floats(0.1, 5), st.integers(1, 10))
@settings(max_examples=60)
def test_no_more_is_let_in_than_the_limit_allows(gaps: list[float], per_s: float, burst: int) -> None:
    times = times_of(gaps)
    got = replies(Receiver(0, rate_limit=RateLimit(per_s, burst, 30)), times)
    let_in = [at for at, reply in zip(times, got, strict=True) if reply.status == 200]
    for first in range(len(let_in)):
        for last in range(first, len(let_in)):
            assert last - first + 1 <= burst + (let_in[last] - let_in[first]) * per_s + 1e-6
    assert {reply.retry_after_s for reply in got if reply.status == 429} <= {30}


@given(st.lists(st.floats(0, 100), min_size=1, max_size=40), st.integers(0, 2**32))
@settings(max_examples=40)
def test_the_same_seed_gives_the_same_answers(times: list[float], seed: int) -> None:
    """Also out of order: nothing depends on anything but what came before."""
    receiver = Receiver(0.1, Capacity(3, 10, 20), RateLimit(5, 3, 2), 0.2, (Outage(20, 40, Mode.HANG),))
    one, other = Working(receiver, Random(seed)), Working(receiver, Random(seed))
    for at in times:
        reply = one.receive(at, 5)
        assert reply == other.receive(at, 5)
        assert (reply.status is None) != (reply.error is None)
        assert 0 <= reply.latency_s <= 5
