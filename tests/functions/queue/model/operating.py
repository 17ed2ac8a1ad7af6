"""What operators and producers do: endpoints, what holds them, events, and deliveries that are cancelled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from forbear.envelope import NewEvent
from forbear.ids import Prefix, decode
from forbear.policy.model import Policy
from tests.functions.manage.calling import ENDPOINT, call, dlv, ep, evt, ok
from tests.functions.queue.model.expected import Delivery, Endpoint
from tests.functions.queue.model.playing import TENANTS, Play, event, nth, pick, picks, policy, tenant
from tests.functions.queue.model.policies import POLICIES

URL = "https://receiver.example/"
PATTERNS = (("*",), ("order.*",), ("order.paid", "ping"))
MOST_ENDPOINTS = 5


class Operating(Play):
    """The management API and the intake."""

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
