"""The machine: random operations on the queue, each compared with what it should have come to.

Owns the rules. What an argument picks, it picks by its remainder, so that a rule draws the same whatever the rows are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from forbear.attempting import Attempted
from forbear.envelope import NewEvent
from forbear.event_types import matching_patterns
from forbear.ids import Prefix, decode, encode
from forbear.leases import Lease
from forbear.policy.model import Policy
from tests.functions.manage.calling import ENDPOINT, call, dlv, ep, evt, ok
from tests.functions.queue.model.expected import Delivery, Endpoint, Expected
from tests.functions.queue.model.invariants import check
from tests.functions.queue.model.policies import POLICIES
from tests.functions.queue.model.reaching import check_within_a_tick, drain
from tests.functions.queue.model.world import CLAIMERS, KINDS, World

URL = "https://receiver.example/"
TENANTS = ("acme", "blue")
TYPES = ("order.paid", "order.sent", "ping")
PATTERNS = (("*",), ("order.*",), ("order.paid", "ping"))
MOST_ENDPOINTS = 5
# The rows that a step may leave due within a tick are tried out every so many steps: that takes as long as ten others.
TRY_EVERY = 5

claimer = st.integers(0, CLAIMERS - 1)
pick = st.integers(0, 30)
picks = st.lists(pick, min_size=1, max_size=4)
tenant = st.sampled_from((*TENANTS, "acme"))
policy = st.sampled_from(sorted(POLICIES))
kind = st.sampled_from(KINDS)
event = st.tuples(
    tenant,
    st.sampled_from(TYPES),
    st.sampled_from((b"", b"1", b"four", b"x" * 200)),
    st.sampled_from((None, None, None, 20.0, 4000.0)),  # seconds until it is stale
    st.sampled_from((None, None, None, "k1", "k2")),
)


def nth[T](of: Sequence[T], number: int) -> T | None:
    """The one that a number picks; None of nothing."""
    return of[number % len(of)] if of else None


class QueueMachine(RuleBasedStateMachine):
    """One run on an empty database."""

    def __init__(self, world: World) -> None:
        super().__init__()
        world.reset()
        self.world = world
        self.expected = Expected(world)
        self.replays: list[str] = []
        self.steps = 0

    @property
    def deliveries(self) -> list[Delivery]:
        return list(self.expected.deliveries.values())

    @property
    def now(self) -> Any:
        return self.world.now

    # Endpoints.

    @initialize(policies=st.lists(policy, min_size=3, max_size=4))
    def start(self, policies: list[str]) -> None:
        for number, name in enumerate(policies):
            self.create(TENANTS[number // 2], name, number)

    def create(self, tenant: str, name: str, patterns: int) -> None:
        subscribed = PATTERNS[patterns % len(PATTERNS)]
        made = ok(
            call(
                "POST",
                "/v1/endpoints",
                body={"tenant": tenant, "url": URL, "event_types": list(subscribed), "policy": POLICIES[name]},
            ),
            201,
        )
        timeout_s = Policy.model_validate(POLICIES[name]).timeout_s
        self.expected.endpoints.append(Endpoint(decode(Prefix.ENDPOINT, made["id"]), tenant, subscribed, timeout_s))
        self.world.move(0.001)  # so that endpoints' ids are in their order

    @rule(
        how=st.sampled_from(("create", "change", "change", "rotate", "test", "test", "delete")),
        which=pick,
        tenant=tenant,
        name=policy,
    )
    def change_endpoints(self, how: str, which: int, tenant: str, name: str) -> None:
        one = nth(self.expected.live(), which)
        if how == "create" and len(self.expected.live()) < MOST_ENDPOINTS:
            self.create(tenant, name, which)
        elif how == "change" and one:
            one.patterns = PATTERNS[which % len(PATTERNS)]
            one.timeout_s = Policy.model_validate(POLICIES[name]).timeout_s
            body = {"preset": None, "policy": POLICIES[name], "event_types": list(one.patterns)}
            ok(call("PATCH", ENDPOINT, ep(one.id), body=body))
        elif how == "rotate" and one:
            answer = call("POST", f"{ENDPOINT}/rotate-secret", ep(one.id), body={})
            assert answer.status in {200, 409}  # five sign already
        elif how == "test" and one:
            self.send_test(one)
        elif how == "delete" and one and len(self.expected.live()) > 2:
            assert call("DELETE", ENDPOINT, ep(one.id)).status == 204
            one.deleted = True
            self.cancelled([each for each in self.deliveries if each.endpoint_id == one.id and not each.finished])
        self.expected.confirm()

    # What holds them.

    @rule(which=pick, how=st.sampled_from(("pause", "resume", "enable", "enable", "reset-breaker")))
    def switch_endpoint(self, which: int, how: str) -> None:
        if one := nth(self.expected.live(), which):
            ok(call("POST", f"{ENDPOINT}/{how}", ep(one.id)))
            if how in {"pause", "resume"}:
                one.paused = how == "pause"
        self.expected.confirm()

    @rule(tenant=st.sampled_from((*TENANTS, None)), paused=st.sampled_from((True, False, False)))
    def switch_many(self, tenant: str | None, paused: bool) -> None:
        how = "pause" if paused else "resume"
        if tenant is None:
            ok(call("POST", f"/v1/{how}"))
            self.expected.paused = paused
        else:
            ok(call("POST", f"/v1/tenants/{{tenant}}/{how}", tenant))
            (self.expected.paused_tenants.add if paused else self.expected.paused_tenants.discard)(tenant)
        self.expected.confirm()

    # Producers.

    @rule(posted=st.lists(event, min_size=1, max_size=3))
    def ingest(self, posted: list[tuple[str, str, bytes, float | None, str | None]]) -> None:
        self.post(posted)

    @rule(tenant=tenant, number=st.integers(3, 8))
    def ingest_alike(self, tenant: str, number: int) -> None:
        self.post([(tenant, "order.paid", b"alike", None, None)] * number)

    def post(self, posted: list[tuple[str, str, bytes, float | None, str | None]]) -> None:
        events = [
            NewEvent(
                *(tenant, name, "text/plain", payload),
                *(None if stale_s is None else self.now + timedelta(seconds=stale_s), key),
            )
            for tenant, name, payload, stale_s, key in posted
        ]
        answers = self.world.post(events)
        made: Counter[tuple[UUID, UUID]] = Counter()
        for one, answer in zip(events, answers, strict=True):
            first, same = answer.event_id, True
            if one.key is not None:
                first, same = self.expected.first_under((one.tenant, one.key), answer.event_id, one.digest())
            repeats = first in self.expected.events
            assert (answer.event_id, answer.duplicate, answer.conflict) == (first, repeats and same, not same)
            if not repeats:
                self.expected.events[first] = one
                made.update((first, endpoint_id) for endpoint_id in self.expected.subscribers(one))
        self.made(made, self.now - timedelta(microseconds=len(events)))
        for answer in answers:
            of = [each for each in self.deliveries if each.event_id == answer.event_id]
            assert answer.deliveries == len(of)

    def send_test(self, one: Endpoint) -> None:
        sent = ok(call("POST", f"{ENDPOINT}/test", ep(one.id)), 202)
        event_id = decode(Prefix.EVENT, sent["event_id"])
        (row,) = self.world.rows("SELECT payload FROM forbear.events WHERE id = %s", event_id)
        self.expected.events[event_id] = NewEvent(
            one.tenant, "forbear.test", "application/json", row["payload"], None, None
        )
        self.made(Counter([(event_id, one.id)]), self.now)

    def made(self, wanted: Counter[tuple[UUID, UUID]], due_from: Any) -> None:
        """These deliveries and no others are new, and due now."""

        def new(before: Delivery | None, after: Delivery) -> bool:
            assert after.due is not None
            return before is None and due_from <= after.due <= self.now and _untouched(after)

        changes = self.expected.confirm(may=new)
        assert Counter((one.event_id, one.endpoint_id) for _, one in changes) == wanted

    # Claimers.

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
        assert not (leases and self.expected.paused)
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
        assert not (endpoint.paused or endpoint.deleted or endpoint.tenant in self.expected.paused_tenants)
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
        hand = self.hand(number)
        chosen = {lease.delivery_id: (lease, kind) for place, kind in picks if (lease := nth(hand, place))}
        self.settle_some(number, list(chosen.values()), lose=lose)

    @rule(number=claimer, kinds=st.lists(kind, min_size=1, max_size=3))
    def settle_all(self, number: int, kinds: list[str]) -> None:
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
        done = {lease.token: {lease.delivery_id} for lease, _ in chosen}
        for lease, _ in chosen:
            done[lease.token].add(lease.delivery_id)
        claimer.hand = [lease for lease in claimer.hand if lease.delivery_id not in done.get(lease.token, ())]
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

    def in_time(self, lease: Lease) -> bool:
        """Whether a lease still stands."""
        one = self.expected.deliveries.get(lease.delivery_id)
        return one is not None and one.token == lease.token and one.until is not None and one.until > self.now

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
        how=st.sampled_from(("reap", "overtake", "overtake", "give up", "crash", "awake", "asleep")),
    )
    def move_claimer(self, number: int, how: str) -> None:
        match how:
            case "reap":
                self.reap(number)
            case "overtake":
                # The one that holds something freezes; another one takes over, and may be late itself.
                self.world.move(46.0)
                self.reap(number)
                self.claim_some((self.busy(number) + 1) % CLAIMERS, 200, 1 << 20, keep=True)
            case "give up":
                self.give_up(self.busy(number))
            case "crash":
                self.world.crash(self.busy(number))
            case _:
                self.world.mark(number, awake=how == "awake")

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

    # Replays and backfills.

    @rule(picks=picks, how=st.sampled_from(("now", "now", "slowly", "later")))
    def replay_some(self, picks: list[int], how: str) -> None:
        finished = [one for one in self.deliveries if one.finished]
        chosen = {one.id for place in picks if (one := nth(finished or self.deliveries, place))}
        if chosen:
            wanted = [one for one in self.deliveries if one.id in chosen and self.expected.replayable(one)]
            self.replay({"deliveries": [dlv(one) for one in chosen]}, how, wanted)

    @rule(
        which=pick,
        status=st.sampled_from(("dead", "dead", "delivered", "cancelled")),
        pattern=st.sampled_from((None, None, "order.*")),
        how=st.sampled_from(("now", "now", "slowly", "later")),
    )
    def replay_filter(self, which: int, status: str, pattern: str | None, how: str) -> None:
        endpoint = nth(self.expected.live(), which)
        if endpoint is None:
            return
        wanted = [
            one
            for one in self.deliveries
            if one.endpoint_id == endpoint.id
            and one.state == status
            and (
                pattern is None
                or (
                    one.event_id in self.expected.events
                    and pattern in matching_patterns(self.expected.events[one.event_id].type)
                )
            )
        ]
        chosen = {"endpoint": ep(endpoint.id), "status": status} | ({"type": pattern} if pattern else {})
        _, counted = self.world.replays("POST", {"filter": chosen, "dry_run": True})
        assert (counted["matched"], counted["more"]) == (len(wanted), False)
        self.replay({"filter": chosen}, how, [one for one in wanted if self.expected.replayable(one)])

    def replay(self, order: dict[str, Any], how: str, wanted: list[Delivery]) -> None:
        """Replay what is wanted and replayable: at once, or in steps of which this is the first."""
        if how == "slowly":
            order["rate"] = 0.2
        if how == "later":
            order["at"] = f"{self.now + timedelta(seconds=20):%Y-%m-%dT%H:%M:%S.%f}Z"
        status, answer = self.world.replays("POST", order)
        assert status == 202, answer
        self.replays.append(answer["id"])
        replay_id = decode(Prefix.REPLAY, answer["id"])
        ids = {one.id for one in wanted}

        def back(before: Delivery | None, after: Delivery) -> bool:
            return before is not None and before.id in ids and after == before.revived(replay_id, after.due)

        changes = self.expected.confirm(may=back)
        assert len(changes) == answer["matched"]
        if how == "now":
            assert len(changes) == len(wanted)
            assert answer["state"] == "done"
            assert all(after.due is not None and after.due <= self.now for _, after in changes)
        if how == "later":
            assert not changes

    @rule(
        how=st.sampled_from(("step", "step", "cancel", "backfill")),
        which=pick,
        since_s=st.sampled_from((10.0, 3600.0, 4 * 86_400.0)),
    )
    def go_on_replaying(self, how: str, which: int, since_s: float) -> None:
        match how:
            case "step":
                self.step_replays(which % CLAIMERS)
            case "cancel":
                self.cancel_replay(which)
            case _:
                self.backfill(which, since_s)

    def backfill(self, which: int, since_s: float) -> None:
        endpoint = nth(self.expected.live(), which)
        if endpoint is None:
            return
        body = {"since": f"{self.now - timedelta(seconds=since_s):%Y-%m-%dT%H:%M:%S.%f}Z"}
        accepted = ok(call("POST", f"{ENDPOINT}/backfill", ep(endpoint.id), body=body), 202)
        self.replays.append(accepted["id"])
        self.expected.confirm(may=self.replayed)

    def replayed(self, before: Delivery | None, after: Delivery) -> bool:
        """Whether a step of a replay, a backfill or a cancelled one may do this."""
        replay = after.replay
        if replay is None or encode(Prefix.REPLAY, replay) not in self.replays:
            return False
        if before is None:
            event, endpoint = self.expected.events[after.event_id], self.expected.endpoint(after.endpoint_id)
            return (
                _untouched(replace(after, replay=None))
                and after.due is not None
                and after.due <= self.now
                and endpoint.id in self.expected.subscribers(event)
                and event.type != "forbear.test"
                and (event.expires_at is None or event.expires_at > self.now)
            )
        if after.state == "cancelled":
            return before.state == "pending" and after == before.over("cancelled", None, self.now)
        return self.expected.replayable(before) and after == before.revived(replay, after.due)

    def step_replays(self, number: int) -> None:
        for _ in range(5):
            if not self.world.replay_step(number):
                break
            self.expected.confirm(may=self.replayed)

    def cancel_replay(self, which: int) -> None:
        replay = nth(self.replays, which)
        if replay is None:
            return
        status, answer = self.world.replays("DELETE", id=replay)
        if status == 404:  # retention has dropped it
            return
        assert (status, answer["state"]) == (200, "cancelled")
        replay_id = decode(Prefix.REPLAY, replay)
        self.cancelled([one for one in self.deliveries if one.replay == replay_id and one.state == "pending"])

    # Cancelling and retention.

    @rule(by=st.sampled_from(("id", "id", "id", "endpoint", "tenant", "event", "type")), picks=picks)
    def cancel(self, by: str, picks: list[int]) -> None:
        unfinished = [one for one in self.deliveries if not one.finished]
        chosen = {one.id: one for place in picks if (one := nth(unfinished or self.deliveries, place))}
        if not chosen:
            return
        first = next(iter(chosen.values()))
        event = self.expected.events.get(first.event_id)
        if by == "id" or event is None:
            body: dict[str, Any] = {"deliveries": [dlv(one) for one in chosen]}
            wanted = [one for one in chosen.values() if not one.finished]
        else:
            members, takes = self.cancelling(by, first, event)
            body = {"filter": members}
            wanted = [one for one in unfinished if takes(one)]
        done = ok(call("POST", "/v1/deliveries/cancel", body=body))
        assert (done["cancelled"], done["next"]) == (len(wanted), None)
        self.cancelled(wanted)

    def cancelling(
        self, by: str, first: Delivery, event: NewEvent
    ) -> tuple[dict[str, str], Callable[[Delivery], bool]]:
        """A filter that takes a delivery, and which others it takes."""
        match by:
            case "endpoint":
                return {"endpoint": ep(first.endpoint_id)}, lambda one: one.endpoint_id == first.endpoint_id
            case "event":
                return {"event": evt(first.event_id)}, lambda one: one.event_id == first.event_id
        of_type = by == "type"
        members = {"tenant": event.tenant} | ({"type": event.type} if of_type else {})
        return (
            members,
            lambda one: (
                self.expected.endpoint(one.endpoint_id).tenant == event.tenant
                and not (of_type and self.expected.events[one.event_id].type != event.type)
            ),
        )

    def cancelled(self, wanted: list[Delivery]) -> None:
        """These are cancelled now, and nothing else has changed."""
        self.expected.confirm({one.id: one.over("cancelled", None, self.now) for one in wanted})

    def maintain(self) -> None:
        self.world.maintain()
        kept = (self.now - timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
        old = {one.id for one in self.deliveries if one.ended is not None and one.ended < kept}
        known = {row["id"] for row in self.world.rows("SELECT id FROM forbear.events")}
        needed = {one.event_id for one in self.deliveries if one.id not in old}
        assert needed <= known, "retention has dropped the event of what is unfinished, or kept"
        for event_id in [one for one in self.expected.events if one not in known]:
            del self.expected.events[event_id]
        self.expected.confirm(gone=frozenset(old))

    # After each step.

    @invariant()
    def all_is_well(self) -> None:
        check(self.world.connection)
        self.check_probes()
        self.steps += 1
        if self.steps % TRY_EVERY == 0:
            check_within_a_tick(self.world.connection)

    def check_probes(self) -> None:
        """Of each half-open breaker one probe at most is in flight."""
        probes = Counter(
            (lease.lane.endpoint_id, lease.epoch)
            for one in self.world.claimers
            for lease in one.hand
            if lease.probe and self.in_time(lease)
        )
        assert all(number == 1 for number in probes.values())

    def teardown(self) -> None:
        drain(self.world.connection)


def _untouched(one: Delivery) -> bool:
    """Whether nothing has happened yet to a delivery."""
    counted = (one.attempts, one.tries, one.limited, one.lost)
    return (one.state, one.generation, one.token, one.replay) == ("pending", 1, None, None) and not any(counted)
