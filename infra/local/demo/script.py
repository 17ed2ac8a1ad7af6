"""The demo's course: endpoints with short policies, a stream of events, a repair and a replay, and what must hold.

Talks to Forbear through its HTTP API and function URL only, like a producer and an operator.
"""

import asyncio
import hashlib
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from infra.local.demo.receivers import RETRY_AFTER_S, Receivers

TENANT = "demo"
# Two of three requests to the flaky one are retries, which is more than the default's budget lets go in a short time.
QUICK = {"schedule": {"kind": "exponential", "base_s": 0.5, "multiplier": 2, "cap_s": 4, "retries": 8}, "budget": None}
BREAKER = {"failures": 5, "cooldown_s": 1, "cooldown_multiplier": 2, "cooldown_cap_s": 3}
# Receiver → what it subscribes to, its policy, what it stands for.
ENDPOINTS: dict[str, tuple[str, dict[str, Any], str]] = {
    "healthy": ("*", QUICK, "answers 204 at once"),
    "flaky": ("order.*", {**QUICK, "breaker": {"failures": 1000}}, "fails twice, then answers"),
    "slow": ("order.paid", QUICK, "takes two seconds"),
    "throttled": ("invoice.*", QUICK, f"429 with Retry-After: {RETRY_AFTER_S} first"),
    "broken": (
        "billing.*",
        {"schedule": {"kind": "ladder", "gaps_s": [0.5, 1]}, "breaker": BREAKER},
        "answers 500, three attempts each",
    ),
    "gone": ("user.*", QUICK, "answers 410"),
}
OFTEN = ("order.paid", "order.shipped", "invoice.created")
RARE = ("billing.failed", "user.deleted")
RARE_COUNT = 3
EVENTS_PER_S = 3.0


@dataclass(frozen=True, slots=True)
class Accepted:
    """An acknowledged event: its id, type, and the digest of the payload's bytes."""

    id: str
    type: str
    digest: str


@dataclass(frozen=True, slots=True)
class Promise:
    """Something that must hold at the end, and whether it did; `detail` says by what figures."""

    text: str
    held: bool
    detail: str


@dataclass(slots=True)
class Demo:
    """A run of the demonstration.

    Attributes:
        api_url, replay_url: where Forbear is.
        receivers_url: where the receivers are.
        receivers: the receivers.
        say: told in a line what happens.
    """

    api_url: str
    replay_url: str
    receivers_url: str
    receivers: Receivers
    say: Callable[[str], None]
    endpoints: dict[str, str] = field(default_factory=dict)
    accepted: list[Accepted] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    dead_letters: int = 0
    replayed: bool = False
    _client: httpx.AsyncClient = field(default_factory=lambda: httpx.AsyncClient(timeout=30, trust_env=False))

    async def prepare(self) -> None:
        """Make the endpoints; those of an earlier run go."""
        listed = await self._call("GET", f"/v1/endpoints?tenant={TENANT}&limit=100")
        for old in listed["items"]:
            await self._call("DELETE", f"/v1/endpoints/{old['id']}")
        for name, (pattern, policy, description) in ENDPOINTS.items():
            made = await self._call(
                "POST",
                "/v1/endpoints",
                {
                    "tenant": TENANT,
                    "url": f"{self.receivers_url}/{name}",
                    "event_types": [pattern],
                    "policy": policy,
                    "description": description,
                },
            )
            self.endpoints[name] = made["id"]
            self.receivers.secrets[name] = made["secret"]

    async def stream(self, seconds: float | None) -> None:
        """Post events, a few a second, for so many seconds (None: until cancelled)."""
        rng = random.Random(7)  # noqa: S311 - any sample will do
        began, number = time.monotonic(), 0
        while seconds is None or time.monotonic() - began < seconds:
            if number < RARE_COUNT:
                for rare in RARE:
                    await self._post(rare, number)
            await self._post(OFTEN[number % len(OFTEN)], number, amount=rng.randrange(1, 10_000) / 100)
            number += 1
            await asyncio.sleep(max(0.0, began + number / EVENTS_PER_S - time.monotonic()))

    async def repair_and_replay(self, deadline: float) -> None:
        """Wait for the broken receiver's dead letters, repair it, and give them another life.

        Args:
            deadline: `time.monotonic()` when to go on with what is there.
        """
        expected = sum(1 for event in self.accepted if event.type == "billing.failed")
        while time.monotonic() < deadline:
            self.dead_letters = (await self.statuses("broken"))["dead"]
            if self.dead_letters == expected:
                break
            await asyncio.sleep(0.3)
        self.receivers.repaired = True
        self.say(f"broken is repaired: replaying its {self.dead_letters} dead letters")
        response = await self._client.post(
            self.replay_url, json={"filter": {"endpoint": self.endpoints["broken"], "status": "dead"}}
        )
        self.replayed = response.is_success
        if not self.replayed:
            self.say(f"the replay was refused: {response.text}")

    async def finished(self) -> bool:
        """Whether nothing is under way any more (what a disabled endpoint holds stays)."""
        for name in self.endpoints:
            counts = await self.statuses(name)
            if name != "gone" and counts["pending"] + counts["leased"]:
                return False
        return True

    async def statuses(self, name: str) -> Counter[str]:
        """How many deliveries of an endpoint are in which state."""
        counts: Counter[str] = Counter()
        cursor = ""
        while True:
            page = await self._call("GET", f"/v1/deliveries?endpoint={self.endpoints[name]}&limit=200{cursor}")
            counts.update(delivery["status"] for delivery in page["items"])
            if not page["next"]:
                return counts
            cursor = f"&cursor={page['next']}"

    async def circuit(self, name: str) -> dict[str, Any]:
        """How an endpoint is doing."""
        return dict((await self._call("GET", f"/v1/endpoints/{self.endpoints[name]}"))["circuit"])

    async def promises(self) -> list[Promise]:
        """What the run shows of what Forbear promises."""
        statuses = {name: await self.statuses(name) for name in self.endpoints}
        receipts = self.receivers.receipts
        digests = {event.id: event.digest for event in self.accepted}
        found = [Promise("every event was accepted", not self.refused, f"{len(self.accepted)} accepted")]
        lost = []
        for name in ("healthy", "flaky", "slow", "throttled", "broken"):
            wanted = {event.id for event in self.accepted if _matches(ENDPOINTS[name][0], event.type)}
            got = {receipt.event_id for receipt in receipts if receipt.receiver == name and receipt.status < 300}
            lost += [f"{event_id} to {name}" for event_id in wanted - got]
            if statuses[name]["delivered"] != len(wanted):
                lost.append(f"{name} has {dict(statuses[name])} for {len(wanted)} events")
        detail = "; ".join(lost[:3]) or f"{sum(status['delivered'] for status in statuses.values())} deliveries"
        found.append(Promise("nothing was lost", not lost, detail))
        found.append(
            Promise(
                "every signature verified",
                bool(receipts) and not self.receivers.forged,
                f"{len(receipts) - len(self.receivers.forged)} of {len(receipts)} requests",
            )
        )
        changed = [receipt for receipt in receipts if digests.get(receipt.event_id) != receipt.digest]
        found.append(Promise("the bytes that came in went out", not changed, f"{len(changed)} bodies differ"))
        wanted_dead = sum(1 for event in self.accepted if event.type == "billing.failed")
        found.append(
            Promise(
                "what was exhausted became a dead letter",
                self.dead_letters == wanted_dead,
                f"{self.dead_letters} of {wanted_dead}",
            )
        )
        again = {receipt.event_id for receipt in receipts if receipt.replayed and receipt.status == 200}
        found.append(Promise("dead letters were replayed", len(again) == wanted_dead, f"{len(again)} delivered"))
        circuit = await self.circuit("gone")
        disabled = any(hold["by"] == "disabled" for hold in circuit["held"])
        found.append(
            Promise(
                "410 disabled the endpoint, visibly",
                disabled and statuses["gone"]["dead"] >= 1,
                f"{statuses['gone']['dead']} dead, {statuses['gone']['pending']} held",
            )
        )
        found.append(self._waited())
        return found

    def _waited(self) -> Promise:
        first: dict[str, float] = {}
        gaps = []
        for receipt in self.receivers.receipts:
            if receipt.receiver == "throttled":
                if receipt.event_id in first:
                    gaps.append(receipt.at - first.pop(receipt.event_id))
                elif receipt.status == 429:
                    first[receipt.event_id] = receipt.at
        return Promise(
            f"Retry-After: {RETRY_AFTER_S} was honoured",
            bool(gaps) and min(gaps) >= RETRY_AFTER_S,
            f"{len(gaps)} waits, the shortest {min(gaps, default=0):.2f} s",
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _post(self, event_type: str, number: int, **more: Any) -> None:
        # Spaces and key order as no serialiser would write them: they must arrive like this.
        payload = json.dumps({"z": number, "type": event_type, **more}, separators=(" , ", ":  "))
        document = f'{{"tenant":"{TENANT}","type":"{event_type}","payload":{payload}}}'
        response = await self._client.post(
            f"{self.api_url}/v1/events", content=document, headers={"content-type": "application/json"}
        )
        if response.status_code != 202:
            self.refused.append(response.text)
            self.say(f"{event_type} was refused: {response.text}")
            return
        answer = response.json()
        self.accepted.append(Accepted(answer["id"], event_type, hashlib.sha256(payload.encode()).hexdigest()))
        self.say(f"{event_type} accepted as {answer['id']}, {answer['deliveries']} deliveries")

    async def _call(self, method: str, path: str, body: Any = None) -> Any:
        response = await self._client.request(method, f"{self.api_url}{path}", json=body)
        response.raise_for_status()
        return response.json() if response.content else None


def _matches(pattern: str, event_type: str) -> bool:
    return pattern in {"*", event_type} or (pattern.endswith(".*") and event_type.startswith(pattern[:-1]))
