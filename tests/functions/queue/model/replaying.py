"""What replays and backfills do, at once, slowly or later, and when they are cancelled."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from forbear.event_types import matching_patterns
from forbear.ids import Prefix, decode, encode
from tests.functions.manage.calling import ENDPOINT, call, dlv, ep, ok
from tests.functions.queue.model.expected import Delivery
from tests.functions.queue.model.playing import Play, nth, pick, picks, untouched
from tests.functions.queue.model.world import CLAIMERS


class Replaying(Play):
    """The replay function, and the steps that claimers run."""

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
                untouched(replace(after, replay=None))
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
