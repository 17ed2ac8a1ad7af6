"""The ledger can fail: whatever is planted into honest books is found, and honest books are found to be honest."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from infra.torture.ledger import Account, Acknowledged, Attempt, Delivery, Receipt, balance


@dataclass
class Books:
    """What `balance` is given."""

    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)
    receipts: list[Receipt] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)
    unacknowledged: int = 0
    may_die: frozenset[str] = frozenset()

    def balance(self) -> Account:
        return balance(
            self.acknowledged,
            self.receipts,
            self.deliveries,
            self.attempts,
            stored=self.stored,
            unacknowledged=self.unacknowledged,
            may_die=self.may_die,
        )


# What an attempt before the last one came to: the verdict, and what the receiver answered; False: it never got it.
EARLIER = st.sampled_from(
    [("retry", 500), ("retry", None), ("retry", False), ("lost", 204), ("lost", None), ("lost", False), ("lost", 500)]
)


@st.composite
def honest(draw: st.DrawFn) -> Books:
    """Books of a round in which every promise was kept."""
    books = Books()
    for event in range(draw(st.integers(1, 4))):
        name, fan_out = f"evt_{event}", draw(st.integers(0, 3))
        books.acknowledged[name] = Acknowledged(fan_out, b"body")
        books.stored.add(name)
        for place in range(fan_out):
            delivery = f"dlv_{event}_{place}"
            earlier = draw(st.lists(EARLIER, max_size=4))
            for number, (verdict, status) in enumerate([*earlier, ("success", 204)], 1):
                books.attempts.append(Attempt(delivery, number, 1, verdict))
                if status is not False:
                    books.receipts.append(Receipt(delivery, name, number, "/", b"body", status))
            books.deliveries.append(Delivery(delivery, name, "delivered", None, 1, len(earlier) + 1))
    return books


def some_receipt(books: Books, draw: Any, *, succeeded: bool) -> Receipt:
    """One of the receipts, that of a last attempt if it succeeded."""
    last = {delivery.id: delivery.attempts for delivery in books.deliveries}
    fitting = [one for one in books.receipts if (one.number == last[one.delivery]) is succeeded]
    assume(fitting)
    return draw(st.sampled_from(fitting))  # type: ignore[no-any-return]


@given(honest())
def test_honest_books_have_no_problem(books: Books) -> None:
    account = books.balance()
    assert account.problems == ()
    assert account.acknowledged == len(books.acknowledged)
    assert account.delivered == len(books.deliveries)
    assert (account.dead, account.pending, account.lost, account.unexplained) == (0, 0, 0, 0)


@given(honest())
def test_each_request_that_came_again_without_need_is_counted_and_explained(books: Books) -> None:
    needless = [one for one in books.receipts if one.succeeded or one.status is None]
    assert books.balance().duplicated == len(needless) - len(books.deliveries)
    assert books.balance().explained == books.balance().duplicated


@given(honest(), st.data())
def test_an_acknowledged_event_that_is_not_stored_is_lost(books: Books, data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(sorted(books.acknowledged)))
    books.stored.remove(gone)
    books.deliveries = [one for one in books.deliveries if one.event != gone]
    books.receipts = [one for one in books.receipts if one.event != gone]
    account = books.balance()
    assert account.lost == 1
    assert f"the acknowledged event {gone} is not stored" in account.problems


@given(honest(), st.data(), st.booleans())
def test_a_delivery_that_is_not_there_is_lost(books: Books, data: st.DataObject, received: bool) -> None:
    assume(books.deliveries)
    gone = data.draw(st.sampled_from(books.deliveries))
    books.deliveries.remove(gone)
    if not received:
        books.receipts = [one for one in books.receipts if one.delivery != gone.id]
    account = books.balance()
    assert account.lost == 1
    assert account.problems


@given(honest(), st.data())
def test_delivered_is_only_what_its_receiver_took(books: Books, data: st.DataObject) -> None:
    assume(books.deliveries)
    claimed = data.draw(st.sampled_from(books.deliveries))
    books.receipts = [one for one in books.receipts if not (one.delivery == claimed.id and one.succeeded)]
    account = books.balance()
    assert account.lost == 1
    assert f"{claimed.id} is delivered, and its receiver never said so" in account.problems


@given(honest(), st.data(), st.sampled_from(["success", "retry", "permanent"]))
def test_what_came_again_after_a_success_is_unexplained_unless_the_attempt_was_lost(
    books: Books, data: st.DataObject, verdict: str
) -> None:
    repeated = some_receipt(books, data.draw, succeeded=False)
    repeated.status = 200
    books.attempts = [
        replace(one, verdict=verdict) if (one.delivery, one.number) == (repeated.delivery, repeated.number) else one
        for one in books.attempts
    ]
    assert books.balance().unexplained == 1
    assert books.balance().problems


@given(honest(), st.data())
def test_an_attempt_that_came_twice_is_unexplained(books: Books, data: st.DataObject) -> None:
    twice = some_receipt(books, data.draw, succeeded=True)
    books.receipts.append(replace(twice))
    assert books.balance().unexplained == 1


@given(honest(), st.data())
def test_a_request_that_the_database_does_not_know_is_a_problem(books: Books, data: st.DataObject) -> None:
    known = some_receipt(books, data.draw, succeeded=True)
    books.receipts.append(replace(known, number=known.number + 1))
    assert books.balance().problems


@given(honest(), st.data())
def test_an_attempt_that_is_missing_from_the_row_is_a_problem(books: Books, data: st.DataObject) -> None:
    assume(books.attempts)
    missing = data.draw(st.sampled_from(books.attempts))
    books.attempts.remove(missing)
    assert any(problem.startswith(f"{missing.delivery} has had") for problem in books.balance().problems)


@given(honest(), st.data())
def test_another_body_is_a_problem(books: Books, data: st.DataObject) -> None:
    some_receipt(books, data.draw, succeeded=True).body = b"other"
    assert len(books.balance().problems) == 1


@given(honest(), st.integers(0, 2), st.integers(0, 2))
def test_a_post_is_one_event_and_no_more(books: Books, more: int, unacknowledged: int) -> None:
    books.stored |= {f"evt_more_{number}" for number in range(more)}
    books.unacknowledged = unacknowledged
    assert bool(books.balance().problems) is (more > unacknowledged)


@pytest.mark.parametrize(("state", "reason"), [("dead", "exhausted"), ("cancelled", None)])
def test_an_end_without_success_is_lost_unless_the_scenario_allows_it(state: str, reason: str | None) -> None:
    books = Books(
        {"evt": Acknowledged(1)},
        [Receipt("dlv", "evt", 1, "/", b"", 500)],
        [Delivery("dlv", "evt", state, reason, 1, 1)],
        [Attempt("dlv", 1, 1, "retry")],
        {"evt"},
    )
    assert books.balance().lost == 1
    books.may_die = frozenset({"exhausted"})
    account = books.balance()
    assert (account.lost, account.dead) == ((0, 1) if state == "dead" else (1, 0))


@pytest.mark.parametrize("state", ["pending", "leased"])
def test_what_has_not_ended_is_pending_and_a_problem(state: str) -> None:
    books = Books({"evt": Acknowledged(1)}, [], [Delivery("dlv", "evt", state, None, 1, 0)], [], {"evt"})
    account = books.balance()
    assert (account.pending, account.lost, len(account.problems)) == (1, 0, 1)


def test_what_a_replay_sends_again_is_no_duplicate() -> None:
    books = Books(
        {"evt": Acknowledged(1)},
        [Receipt("dlv", "evt", number, "/", b"", 200) for number in (1, 2)],
        [Delivery("dlv", "evt", "delivered", None, 2, 2)],
        [Attempt("dlv", 1, 1, "success"), Attempt("dlv", 2, 2, "success")],
        {"evt"},
    )
    account = books.balance()
    assert (account.duplicated, account.problems) == (0, ())


def test_a_resend_on_another_connection_is_explained_and_one_after_an_answer_is_not() -> None:
    """The sender sends once more, under the same number, when a kept connection ends before any answer."""
    books = Books(
        {"evt": Acknowledged(1)},
        [Receipt("dlv", "evt", 1, "/", b"", None), Receipt("dlv", "evt", 1, "/", b"", 204)],
        [Delivery("dlv", "evt", "delivered", None, 1, 1)],
        [Attempt("dlv", 1, 1, "success")],
        {"evt"},
    )
    assert (books.balance().duplicated, books.balance().explained, books.balance().problems) == (1, 1, ())
    books.receipts[0].status = 204
    assert books.balance().unexplained == 1
