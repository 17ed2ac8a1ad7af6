"""What `forbear up --demo` shows: a live table on a terminal, plain lines elsewhere."""

import asyncio
import contextlib
import json
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from infra.local.demo.receivers import Receipt
from infra.local.demo.script import ENDPOINTS, Demo

LAST_LINES = 8
EVERY_S = 0.5


class Showing:
    """Shows a demo as it runs; lines are kept below the table, or printed where there is no terminal."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json
        self._console = Console()
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._answers: dict[str, Counter[int]] = {name: Counter() for name in ENDPOINTS}
        self._table: Table | None = None

    def say(self, line: str) -> None:
        """Tell what happened."""
        now = datetime.now().astimezone()
        self._lines.append(f"{now:%H:%M:%S}  {line}")
        if self._as_json:
            print(json.dumps({"at": now.isoformat(), "line": line}), flush=True)
        elif not self._console.is_terminal:
            print(self._lines[-1], flush=True)

    def receipt(self, receipt: Receipt) -> None:
        """Tell what a receiver answered."""
        self._answers[receipt.receiver][receipt.status] += 1
        replayed = ", replayed" if receipt.replayed else ""
        self.say(f"{receipt.event_id} → {receipt.receiver}: attempt {receipt.attempt}{replayed}, {receipt.status}")

    @contextlib.asynccontextmanager
    async def live(self, demo: Demo) -> AsyncIterator[None]:
        """Keep the table up to date while the context lasts; does nothing without a terminal."""
        if self._as_json or not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, refresh_per_second=4, transient=False, get_renderable=self._render):
            following = asyncio.create_task(self._follow(demo))
            try:
                yield
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, demo: Demo) -> None:
        while True:
            if len(demo.endpoints) == len(ENDPOINTS):
                try:
                    self._table = await self._drawn(demo)
                except Exception as error:  # noqa: BLE001 - a picture that fails is no reason to stop the show
                    print(f"cannot read the state: {error}", file=sys.stderr)
            await asyncio.sleep(EVERY_S)

    async def _drawn(self, demo: Demo) -> Table:
        table = Table(title=f"{len(demo.accepted)} events accepted", title_justify="left")
        for heading in ("endpoint", "manners", "answers", "delivered", "pending", "dead", "circuit"):
            table.add_column(heading, justify="left" if heading in {"endpoint", "manners", "circuit"} else "right")
        for name, (_, _, manners) in ENDPOINTS.items():
            counts = await demo.statuses(name)
            answers = " ".join(f"{count} of {status}" for status, count in sorted(self._answers[name].items()))
            table.add_row(
                name,
                manners,
                answers,
                *(str(counts["delivered"]), str(counts["pending"] + counts["leased"]), str(counts["dead"])),
                _circuit(await demo.circuit(name)),
            )
        return table

    def _render(self) -> Group:
        return Group(self._table or Text("starting"), *(Text(line, style="dim") for line in self._lines))


def _circuit(circuit: dict[str, Any]) -> str:
    held = ", ".join(hold["by"] for hold in circuit["held"])
    return f"{circuit['state'].replace('_', '-')}{f' ({held})' if held else ''}"
