"""What claimers and time do: leases, results, take-overs, retention."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import rule

from forbear.attempting import Attempted
from forbear.leases import Lease
from tests.functions.queue.model.expected import Delivery
from tests.functions.queue.model.playing import Play, claimer, kind, nth, pick
from tests.functions.queue.model.world import CLAIMERS, RETENTION_DAYS


class Claiming(Play):
    """Several claimers, each with what it holds, and maintenance."""

    @rule(number=claimer, slots=st.sampled_from((1, 3, 60)), room=st.sampled_from((1, 250, 1 << 20)), lost=pick)
    def claim(self, number: int, slots: int, room: int, lost: int) -> None:
        self.claim_some(number, slots, room, keep=lost != 1)

    @rule(number=claimer)
    def claim_all(self, number: int) -> None:
        self.claim_some(number, 200, 1 << 20, keep=True)

    def claim_some(self, number: int, slots: int, room: int, *, keep: bool) -> None:
        lanes = self.world.lanes()
        leases = self.world.claim(number, slots, room, None)
        after = self.world.lanes()
        assert len(leases) <= slots
        assert len(leases) <= 1 or sum(len(lease.payload) for lease in leases) <= room
        assert not leases or not self.expected.paused
        tokens = {lease.token for lease in leases}
        assert len(tokens) <= 1
        assert not tokens & self.expected.tokens, "a token was given twice"
        self.expected.tokens |= tokens
        taken = {lease.delivery_id: self.leased(lease, lanes[lease.lane.endpoint_id]) for lease in leases}
        assert len(taken) == len(leases)

        def dead_lettered(before: Delivery | None, now: Delivery) -> bool:
            lane = lanes[now.endpoint_id]
            return (
                before is not None
                and before.state == "pending"
                and now == before.over("dead", "circuit_open", self.now)
                and lane["dead_letter"]
                and lane["breaker_until"] is not None
                and lane["breaker_until"] > self.now
                and before.due is not None
                and before.due <= self.now
                and not lane["held"]
                and not self.expected.paused
            )

        before = dict(self.expected.deliveries)
        self.expected.confirm(taken, dead_lettered)
        for lane_id in {lease.lane.endpoint_id for lease in leases}:
            self.check_lane([lease for lease in leases if lease.lane.endpoint_id == lane_id], before, after[lane_id])
        if keep:
            self.world.claimers[number].hand += sorted(leases, key=lambda one: list(before).index(one.delivery_id))

    def leased(self, lease: Lease, lane: dict[str, Any]) -> Delivery:
        """What a leased delivery must have been, and is now."""
        before = self.expected.deliveries[lease.delivery_id]
        endpoint = self.expected.endpoint(before.endpoint_id)
        event = self.expected.events[before.event_id]
        assert before.state == "pending"
        assert before.due is not None
        assert before.due <= self.now
        assert not endpoint.paused
        assert not endpoint.deleted
        assert endpoint.tenant not in self.expected.paused_tenants
        assert not lane["held"]
        bars = (lane["wait_until"], lane["breaker_until"], lane["probe_until"])
        assert all(bar is None or bar <= self.now for bar in bars)
        assert (lease.event_type, lease.content_type, lease.payload) == (event.type, event.content_type, event.payload)
        assert (lease.number, lease.replay_id) == (before.attempts + 1, before.replay)
        progress = lease.progress
        assert (progress.tries, progress.limited) == (before.tries, before.limited)
        assert (progress.started_at is None) == (before.tries + before.lost == 0)
        assert progress.held_s >= 0
        if progress.started_at is not None:
            assert progress.held_s <= (self.now - progress.started_at).total_seconds() + 0.001
        return before.leased(lease.token, self.now + timedelta(seconds=endpoint.timeout_s + 30))

    def check_lane(self, leases: list[Lease], before: dict[UUID, Delivery], lane: dict[str, Any]) -> None:
        """A lane gives no more than its limits, one probe at a time, and what has been due longest."""
        given = {lease.delivery_id for lease in leases}
        own = [one for one in self.deliveries if one.endpoint_id == lane["endpoint_id"]]
        live = sum(one.state == "leased" and one.until is not None and one.until > self.now for one in own)
        widths = (lane["concurrency"], lane["concurrency_limit"], lane["breaker_allows"])
        assert live <= min((width for width in widths if width is not None), default=live)
        if any(lease.probe for lease in leases):
            assert len(leases) == 1
        for retries in (False, True):
            same = [one for one in before.values() if one.endpoint_id == lane["endpoint_id"] and one.state == "pending"]
            same = [one for one in same if (one.tries + one.lost > 0) == retries and one.due is not None]
            taken = [one.due for one in same if one.id in given and one.due is not None]
            left = [one.due for one in same if one.id not in given and one.due is not None]
            assert not taken or not left or max(taken) <= min(left)

    @rule(number=claimer, picks=st.lists(st.tuples(pick, kind), min_size=1, max_size=4), lose=st.booleans())
    def settle(self, number: int, picks: list[tuple[int, str]], lose: bool) -> None:
        number = self.busy(number)
        hand = self.hand(number)
        chosen = {lease.delivery_id: (lease, kind) for place, kind in picks if (lease := nth(hand, place))}
        self.settle_some(number, list(chosen.values()), lose=lose)

    @rule(number=claimer, kinds=st.lists(kind, min_size=1, max_size=3))
    def settle_all(self, number: int, kinds: list[str]) -> None:
        number = self.busy(number)
        hand = self.hand(number)
        self.settle_some(number, [(lease, kinds[n % len(kinds)]) for n, lease in enumerate(hand)], lose=False)

    def hand(self, number: int) -> list[Lease]:
        """What a claimer holds; if that is nothing, it claims first."""
        if not self.world.claimers[number].hand:
            self.claim_some(number, 200, 1 << 20, keep=True)
        return self.world.claimers[number].hand

    def busy(self, number: int) -> int:
        """This claimer, or the next one that holds something."""
        numbers = [(number + n) % CLAIMERS for n in range(CLAIMERS)]
        return next((one for one in numbers if self.world.claimers[one].hand), number)

    def settle_some(self, number: int, chosen: list[tuple[Lease, str]], *, lose: bool) -> None:
        claimer = self.world.claimers[number]
        batch = [self.world.attempted(lease, kind) for lease, kind in chosen]
        done = {(lease.token, lease.delivery_id) for lease, _ in chosen}
        claimer.hand = [lease for lease in claimer.hand if (lease.token, lease.delivery_id) not in done]
        self.settle_batch(number, batch, lose=lose)
        claimer.settled = (claimer.settled + batch)[-6:]

    @rule(number=claimer)
    def settle_again(self, number: int) -> None:
        self.settle_batch(number, self.world.claimers[number].settled, lose=False)

    def settle_batch(self, number: int, batch: list[Attempted], *, lose: bool) -> None:
        if not batch:
            return
        lanes = self.world.lanes()
        on_time = [one for one in batch if self.in_time(one.result.lease)]
        self.world.settle(number, batch, lose=lose)
        self.expected.confirm({one.result.lease.delivery_id: self.settled(one) for one in on_time})
        for lane in self.world.lanes().values():
            own = [one for one in on_time if one.result.lease.lane.endpoint_id == lane["endpoint_id"]]
            if any(one.result.reason == "gone" for one in own):
                assert lane["disabled_at"] is not None
            elif lane["disabled_at"] != lanes[lane["endpoint_id"]]["disabled_at"]:
                assert any(one.result.outcome != "delivered" for one in own), "disabled by what came too late"

    def settled(self, attempted: Attempted) -> Delivery:
        """What a delivery is after a result that came in time."""
        result = attempted.result
        before = self.expected.deliveries[result.lease.delivery_id]
        attempts = before.attempts - (result.attempt is None)
        if result.outcome in {"delivered", "dead"}:
            return before.over(result.outcome, result.reason, self.now, attempts=attempts)
        if result.outcome == "return":
            return before.pending(self.now, attempts=attempts)
        due = self.now + timedelta(seconds=result.delay_s)
        return before.pending(due, tries=before.tries + 1, limited=before.limited + result.limited)

    def lapsed(self) -> dict[UUID, Delivery]:
        """What becomes of the leases that have lapsed, when they are taken over."""
        return {
            one.id: one.taken_over(self.now)
            for one in self.deliveries
            if one.state == "leased" and one.until is not None and one.until <= self.now
        }

    @rule(
        number=claimer,
        how=st.sampled_from(("reap", "give up", "crash", "awake", "asleep")),
    )
    def move_claimer(self, number: int, how: str) -> None:
        if how in {"give up", "crash"}:
            number = self.busy(number)
            self.hand(number)
        match how:
            case "reap":
                self.reap(number)
            case "give up":
                self.give_up(number)
            case "crash":
                self.world.crash(number)
            case _:
                self.world.mark(number, awake=how == "awake")

    @rule(number=claimer, kind=kind)
    def overtake(self, number: int, kind: str) -> None:
        """A claimer freezes, another one takes over, and when the first one thaws it comes with what is late."""
        number = self.busy(number)
        frozen = [(lease, kind) for lease in self.hand(number)]
        self.world.move(46.0)
        self.reap(number)
        self.claim_some((number + 1) % CLAIMERS, 200, 1 << 20, keep=True)
        self.settle_some(number, frozen, lose=False)

    def reap(self, number: int) -> None:
        wanted = self.lapsed()
        assert self.world.reap(number) == len(wanted)
        self.expected.confirm(wanted)

    def give_up(self, number: int) -> None:
        claimer = self.world.claimers[number]
        held = {lease.delivery_id for lease in claimer.hand if self.in_time(lease)}
        wanted = self.lapsed()
        wanted |= {one.id: one.taken_over(self.now) for one in self.deliveries if one.id in held}
        assert self.world.give_up(number, claimer.hand) == len(wanted)
        claimer.hand = []
        self.expected.confirm(wanted)

    @rule(seconds=st.sampled_from((0.001, 1.0, 2.5, 7.0, 7.0, 31.0, 46.0)))
    def wait(self, seconds: float) -> None:
        self.world.move(seconds)

    @rule(seconds=st.sampled_from((60.0, 60.0, 600.0, 3600.0, 86_400.0, 2 * 86_400.0)), maintained=pick)
    def wait_long(self, seconds: float, maintained: int) -> None:
        self.world.move(seconds)
        if maintained % 4 == 1:
            self.maintain()

    def maintain(self) -> None:
        self.world.maintain()
        kept = (self.now - timedelta(days=RETENTION_DAYS)).replace(hour=0, minute=0, second=0, microsecond=0)
        old = {one.id for one in self.deliveries if one.ended is not None and one.ended < kept}
        known = {row["id"] for row in self.world.rows("SELECT id FROM forbear.events")}
        needed = {one.event_id for one in self.deliveries if one.id not in old}
        assert needed <= known, "retention has dropped the event of what is unfinished, or kept"
        for event_id in [one for one in self.expected.events if one not in known]:
            del self.expected.events[event_id]
        self.expected.confirm(gone=frozenset(old))
