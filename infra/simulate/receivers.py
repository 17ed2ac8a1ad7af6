"""Simulated receivers: what an endpoint answers, when, and what it does when more comes than it can take.

Owns what a receiver is (values) and one that is at work (a queue in virtual time). Pure: the time of a request is an
argument, randomness comes from a source that is given, and nothing is sent. Times are virtual seconds from the start of
the simulation.

A receiver with a capacity works off one queue in the order of arrival and does not know that a client has hung up: once
the queue is longer than the client's timeout, all its work is for nothing, however busy it is. That is the sustaining
effect of a metastable failure (Bronson et al., "Metastable Failures in Distributed Systems", HotOS 2021).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from forbear.policy.verdict import ErrorClass

# How long it takes to hear that nobody listens.
REFUSAL_S = 0.002
# Right after an outage a receiver that warms up does this share of its capacity.
COLD = 0.05


class Mode(StrEnum):
    """How a receiver is out: it refuses connections, answers 503 at once, or swallows requests (a black hole)."""

    REFUSE = "refuse"
    UNAVAILABLE = "503"
    HANG = "hang"


@dataclass(frozen=True, slots=True)
class Outage:
    """A time during which a receiver is out, from `from_s` to before `to_s`.

    Attributes:
        retry_after_s: What its 503s ask for, in whole seconds; None: nothing.
    """

    from_s: float
    to_s: float
    mode: Mode
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """How much a receiver can do.

    Attributes:
        per_s: Requests a second.
        queue: How many may wait; one more is answered 503 at once. None: any number.
        ramp_s: For how long after an outage it warms up: its capacity grows linearly from next to nothing.
    """

    per_s: float
    queue: int | None = None
    ramp_s: float = 0.0


@dataclass(frozen=True, slots=True)
class RateLimit:
    """A token bucket of `burst` tokens, `per_s` more a second; a request that finds none is answered 429."""

    per_s: float
    burst: int = 1
    retry_after_s: int | None = None


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver.

    Attributes:
        latency_s: What every whole answer takes, waiting and work aside.
        capacity: How much it can do; None: anything.
        rate_limit: How much it lets in; None: anything.
        error_share: The share of requests that it works on and then answers with 500, from 0 to 1.
        outages: When it is out: in order, and none overlapping another.

    Raises:
        ValueError: Outages overlap, or a number is out of its bounds.
    """

    latency_s: float = 0.05
    capacity: Capacity | None = None
    rate_limit: RateLimit | None = None
    error_share: float = 0.0
    outages: tuple[Outage, ...] = ()

    def __post_init__(self) -> None:
        if self.latency_s < 0 or not 0 <= self.error_share <= 1:
            raise ValueError("a receiver's latency is 0 or more, its share of errors between 0 and 1")
        if (self.capacity and self.capacity.per_s <= 0) or (self.rate_limit and self.rate_limit.per_s <= 0):
            raise ValueError("a receiver's capacity and its rate limit are above 0")
        end = 0.0
        for outage in self.outages:
            if not outage.from_s < outage.to_s:
                raise ValueError(f"the outage at {outage.from_s:g} s has no length: give it one")
            if outage.from_s < end:
                raise ValueError(
                    f"the outage from {outage.from_s:g} s to {outage.to_s:g} s begins before the one before it has"
                    " ended: give outages that do not overlap"
                )
            end = outage.to_s

    @property
    def edges(self) -> tuple[float, ...]:
        """When it changes, in order: outages begin and end."""
        return tuple(sorted({at for outage in self.outages for at in (outage.from_s, outage.to_s)}))

    @property
    def asks_to_wait(self) -> bool:
        """Whether any of its answers carries a Retry-After."""
        limit = self.rate_limit
        return (limit is not None and limit.retry_after_s is not None) or any(
            outage.retry_after_s is not None for outage in self.outages
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """What a client sees: a status or an error, after so many seconds."""

    status: int | None
    error: ErrorClass | None
    latency_s: float
    retry_after_s: int | None = None


class Working:
    """A receiver at work.

    Args:
        receiver: What it is.
        rng: Decides which requests fail, by its `error_share`.
    """

    def __init__(self, receiver: Receiver, rng: Random) -> None:
        self._receiver = receiver
        self._rng = rng
        self._begins = [outage.from_s for outage in receiver.outages]
        self._latest = 0.0  # the latest arrival
        self._free_at = 0.0  # when all that has arrived is worked off
        self._tokens = float(receiver.rate_limit.burst) if receiver.rate_limit else 0.0
        self._tokens_at = 0.0

    def receive(self, at: float, timeout_s: float) -> Reply:
        """Take a request.

        Args:
            at: When it arrives. Requests arrive in order, or nearly: one that comes after a later one is served as if
                the queue had been then what it is now.
            timeout_s: After how many seconds its client hangs up.
        """
        past = bisect_right(self._begins, at)
        outages = self._receiver.outages
        outage = outages[past - 1] if past and at < outages[past - 1].to_s else None
        if outage is not None:
            return self._out(outage, timeout_s)
        reply = self._served(at, outages[past - 1] if past else None)
        if past < len(outages) and outages[past].from_s < at + reply.latency_s:
            reply = _cut_off(reply, outages[past], at)
        return Reply(None, ErrorClass.TIMEOUT, timeout_s) if reply.latency_s > timeout_s else reply

    def _out(self, outage: Outage, timeout_s: float) -> Reply:
        match outage.mode:
            case Mode.REFUSE:
                return Reply(None, ErrorClass.CONNECT, REFUSAL_S)
            case Mode.UNAVAILABLE if self._receiver.latency_s <= timeout_s:
                return Reply(503, None, self._receiver.latency_s, outage.retry_after_s)
            case _:
                return Reply(None, ErrorClass.TIMEOUT, timeout_s)

    def _served(self, at: float, before: Outage | None) -> Reply:
        """The answer of a receiver that is there. `before`: the outage that ended last."""
        latency_s = self._receiver.latency_s
        limit = self._receiver.rate_limit
        if limit is not None and not self._let_in(limit, at):
            return Reply(429, None, latency_s, limit.retry_after_s)
        waited_s = self._worked_off(self._receiver.capacity, at, before)
        if waited_s is None:
            return Reply(503, None, latency_s)
        failed = self._receiver.error_share > 0 and self._rng.random() < self._receiver.error_share
        return Reply(500 if failed else 200, None, waited_s + latency_s)

    def _let_in(self, limit: RateLimit, at: float) -> bool:
        if at > self._tokens_at:
            self._tokens = min(limit.burst, self._tokens + (at - self._tokens_at) * limit.per_s)
            self._tokens_at = at
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _worked_off(self, capacity: Capacity | None, at: float, before: Outage | None) -> float | None:
        """Queue a request. Gives the seconds until it has been worked on; None: the queue is full."""
        if capacity is None:
            return 0.0
        if before is not None and before.mode is Mode.REFUSE and self._latest < before.to_s:
            self._free_at = min(self._free_at, before.from_s)  # it came back with an empty queue
        self._latest = max(self._latest, at)
        waits_s = max(0.0, self._free_at - self._latest)
        if capacity.queue is not None and waits_s * capacity.per_s > capacity.queue:
            return None
        work_s = 1 / capacity.per_s
        if before is not None and capacity.ramp_s > 0:
            warm = (self._latest + waits_s - before.to_s) / capacity.ramp_s
            work_s /= min(1.0, max(COLD, warm))
        self._free_at = self._latest + waits_s + work_s
        return waits_s + work_s


def _cut_off(reply: Reply, outage: Outage, at: float) -> Reply:
    """What an outage that begins before the answer is there makes of it. Only a 503 lets it through."""
    match outage.mode:
        case Mode.REFUSE:
            return Reply(None, ErrorClass.RESET, outage.from_s - at)
        case Mode.HANG:
            return Reply(None, ErrorClass.TIMEOUT, float("inf"))
        case Mode.UNAVAILABLE:
            return reply
