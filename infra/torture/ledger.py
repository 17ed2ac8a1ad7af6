"""The ledger of a round: what was acknowledged, what receivers got by their own count, what the database says.

Pure: plain values in, an `Account` out. Knows no fault, no clock and no I/O; whoever fills it in reads the database and
the receivers. It trusts neither alone: an event is delivered only if both say so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Receipt:
    """A request as a receiver saw it.

    Attributes:
        delivery: the `idempotency-key`, a delivery's id.
        event: the `webhook-id`.
        number: the attempt's, from `forbear-attempt`.
        path: where it was sent.
        body: what was sent.
        status: what it was answered with, written out whole; None while it was not, or if it never was.
    """

    delivery: str
    event: str
    number: int
    path: str
    body: bytes
    status: int | None = None

    @property
    def succeeded(self) -> bool:
        """Whether it was answered with a 2xx."""
        return self.status is not None and 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An event that the producer was told is stored: to how many endpoints it goes, and its payload (None: any)."""

    deliveries: int
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery as the database has it in the end; `reason` of a dead one. `attempts`: the latest one's number."""

    id: str
    event: str
    state: str
    reason: str | None
    generation: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt as the database has it; `late`: its result came after its lease had lapsed."""

    delivery: str
    number: int
    generation: int
    verdict: str
    late: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What came of a round. Everything but `acknowledged` and `events` counts deliveries.

    Attributes:
        acknowledged: events that the producer was told are stored.
        delivered: the database and the receiver agree that they succeeded.
        dead: ended without success, as the scenario allows.
        pending: not ended.
        lost: events or deliveries that are not there, and those that ended as they must not.
        duplicated: requests that came again after one that was answered with success, or never answered.
        explained: those among them whose earlier attempt the database knows as lost, or failed if it was not answered.
        problems: everything that is wrong, a sentence each; empty: every promise was kept.
    """

    acknowledged: int
    delivered: int
    dead: int
    pending: int
    lost: int
    duplicated: int
    explained: int
    problems: tuple[str, ...]

    @property
    def unexplained(self) -> int:
        """Duplicates that no attempt in the database accounts for."""
        return self.duplicated - self.explained


@dataclass(slots=True)
class _Findings:
    delivered: int = 0
    dead: int = 0
    pending: int = 0
    lost: int = 0
    duplicated: int = 0
    explained: int = 0
    problems: list[str] = field(default_factory=list)


def balance(
    acknowledged: Mapping[str, Acknowledged],
    receipts: Iterable[Receipt],
    deliveries: Iterable[Delivery],
    attempts: Iterable[Attempt],
    *,
    stored: Iterable[str],
    unacknowledged: int = 0,
    may_die: frozenset[str] = frozenset(),
) -> Account:
    """Close the books of a round.

    Args:
        acknowledged: the events by their ids.
        receipts: what receivers got, in the order in which it came.
        deliveries: all of the round's tenant.
        attempts: likewise.
        stored: the ids of all events of the tenant that the database has.
        unacknowledged: how many posts ended without an answer: so many events more may be stored.
        may_die: the reasons for which deliveries may be dead.
    """
    found = _Findings()
    got: dict[str, list[Receipt]] = defaultdict(list)
    for receipt in receipts:
        got[receipt.delivery].append(receipt)
    known: dict[str, dict[int, Attempt]] = defaultdict(dict)
    for attempt in attempts:
        known[attempt.delivery][attempt.number] = attempt
    ends: dict[str, dict[str, Delivery]] = defaultdict(dict)
    for delivery in deliveries:
        if delivery.id in ends[delivery.event]:
            found.problems.append(f"{delivery.id} is there twice")
        ends[delivery.event][delivery.id] = delivery
    _check_events(found, acknowledged, ends, set(stored), unacknowledged)
    every = {one: delivery for of_event in ends.values() for one, delivery in of_event.items()}
    for delivery in every.values():
        _check_end(found, delivery, got[delivery.id], may_die)
        _check_numbers(found, delivery, known[delivery.id])
        _check_repeats(found, got[delivery.id], known[delivery.id])
        _check_bodies(found, got[delivery.id], acknowledged.get(delivery.event))
    for stranger in sorted(got.keys() - every.keys()):
        found.problems.append(f"a receiver got {stranger}, of which the database knows nothing")
    return Account(
        acknowledged=len(acknowledged),
        delivered=found.delivered,
        dead=found.dead,
        pending=found.pending,
        lost=found.lost,
        duplicated=found.duplicated,
        explained=found.explained,
        problems=tuple(found.problems),
    )


def _check_events(
    found: _Findings,
    acknowledged: Mapping[str, Acknowledged],
    ends: Mapping[str, Mapping[str, Delivery]],
    stored: set[str],
    unacknowledged: int,
) -> None:
    """Every acknowledged event is there with all its deliveries, and no post has become two."""
    for event, promised in acknowledged.items():
        there = len(ends.get(event, ()))
        if event not in stored:
            found.lost += 1
            found.problems.append(f"the acknowledged event {event} is not stored")
        elif there < promised.deliveries:
            found.lost += promised.deliveries - there
            found.problems.append(f"{event} was acknowledged with {promised.deliveries} deliveries and has {there}")
        elif there > promised.deliveries:
            found.problems.append(f"{event} was acknowledged with {promised.deliveries} deliveries and has {there}")
    more = len(stored - acknowledged.keys())
    if more > unacknowledged:
        found.problems.append(
            f"{more} events are stored beside the acknowledged ones, and {unacknowledged} posts were not answered"
        )


def _check_end(found: _Findings, delivery: Delivery, got: Sequence[Receipt], may_die: frozenset[str]) -> None:
    succeeded = any(receipt.succeeded for receipt in got)
    match delivery.state:
        case "delivered" if succeeded:
            found.delivered += 1
        case "delivered":
            found.lost += 1
            found.problems.append(f"{delivery.id} is delivered, and its receiver never said so")
        case "dead" if delivery.reason in may_die:
            found.dead += 1
        case "dead" | "cancelled":
            found.lost += 1
            found.problems.append(f"{delivery.id} is {delivery.state} ({delivery.reason}), which it must not be here")
        case _:
            found.pending += 1
            found.problems.append(f"{delivery.id} has not ended: it is {delivery.state}")


def _check_numbers(found: _Findings, delivery: Delivery, known: Mapping[int, Attempt]) -> None:
    if delivery.state in {"pending", "leased"}:
        return  # a lease is an attempt without a row
    if sorted(known) != list(range(1, delivery.attempts + 1)):
        found.problems.append(f"{delivery.id} has had {delivery.attempts} attempts, and there are {sorted(known)}")


def _check_repeats(found: _Findings, got: Sequence[Receipt], known: Mapping[int, Attempt]) -> None:
    """What came again after it had succeeded, or had no answer: the database must know why.

    A replay's request comes again because somebody asked for it.
    """
    for place, earlier in enumerate(got):
        attempt = known.get(earlier.number)
        if attempt is None:
            found.problems.append(
                f"a receiver got attempt {earlier.number} of {earlier.delivery}, of which the database knows nothing"
            )
        later = next(iter(got[place + 1 :]), None)
        if later is None or not (earlier.succeeded or earlier.status is None):
            continue
        again = known.get(later.number)
        if attempt is not None and again is not None and again.generation > attempt.generation:
            continue
        found.duplicated += 1
        if attempt is not None and (
            attempt.verdict == "lost"
            or (earlier.status is None and attempt.verdict != "success")
            # A kept connection on which the receiver hung up before any answer: the sender's own resend, no attempt.
            or (earlier.status is None and later.number == earlier.number)
        ):
            found.explained += 1
        else:
            verdict = "unknown" if attempt is None else attempt.verdict
            found.problems.append(
                f"{earlier.delivery} came again as attempt {later.number} after attempt {earlier.number}, which was "
                f"answered {earlier.status} and is {verdict}"
            )


def _check_bodies(found: _Findings, got: Sequence[Receipt], promised: Acknowledged | None) -> None:
    bodies = {receipt.body for receipt in got}
    if promised is not None and promised.payload is not None:
        bodies |= {promised.payload}
    if got and len(bodies) > 1:
        found.problems.append(f"{got[0].delivery} came with {len(bodies)} different bodies")
