"""A made-up internet: names, their addresses, and where connections to those addresses really go.

Owns the file that a round writes and the tortured claimer reads, and the log of what the claimer dialled. Nothing
here weakens the address guard: a connection is made only where the sender asks for one, which is after the guard, and
goes to loopback whatever was asked for. Knows no behaviour of receivers.
"""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from forbear.sender.dialer import tcp_connect

DIRECT = frozenset({"127.0.0.1", "::1"})
"""What is really connected to; every other address is made up."""


class Route(StrEnum):
    """What becomes of a connection to a made-up address."""

    LOOPBACK = "loopback"  # the same port of 127.0.0.1
    REFUSED = "refused"
    SWALLOWED = "swallowed"  # no answer, ever


@dataclass(frozen=True, slots=True)
class Name:
    """A name's addresses.

    Attributes:
        answers: what each look-up gives, in turn, the last one again and again; without addresses it does not resolve.
        after_s: how long a look-up takes; infinity: it never ends.
    """

    answers: tuple[tuple[str, ...], ...]
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Dialled:
    """A connection that the sender asked for."""

    address: str
    port: int


class Internet:
    """The files. One object writes them, in the round; others read them, in the claimers.

    Args:
        folder: where they are.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._table, self._log = folder / "names.json", folder / "log"
        self._looked_up: dict[str, int] = {}

    # The round's side.

    def set(self, names: dict[str, Name], routes: dict[str, Route], elsewhere: int | None = None) -> None:
        """Say what there is from now on.

        Args:
            names: every name; others do not resolve.
            routes: every address.
            elsewhere: the port of loopback that connections to any other address reach: a receiver that must stay
                alone. None: they are refused.
        """
        content = {
            "names": {name: {"answers": one.answers, "after_s": one.after_s} for name, one in names.items()},
            "routes": routes,
            "elsewhere": elsewhere,
        }
        written = self._table.with_suffix(".new")
        written.write_text(json.dumps(content))
        written.replace(self._table)

    def dialled(self) -> list[Dialled]:
        """Every connection to a made-up address that was asked for, since `forget`."""
        lines = self._log.read_text().splitlines() if self._log.exists() else ()
        return [Dialled(**json.loads(line)) for line in lines]

    def forget(self) -> None:
        """Begin the log anew."""
        self._log.unlink(missing_ok=True)

    # The claimer's side.

    async def lookup(self, host: str) -> Sequence[str]:
        """The addresses of a name; a `forbear.sender.resolver.Lookup`.

        Raises:
            socket.gaierror: it does not resolve.
        """
        name = self._read()["names"].get(host, {"answers": [[]], "after_s": 0.0})
        place = self._looked_up.get(host, 0)
        self._looked_up[host] = place + 1
        addresses: list[str] = name["answers"][min(place, len(name["answers"]) - 1)]
        await (asyncio.Event().wait() if math.isinf(name["after_s"]) else asyncio.sleep(name["after_s"]))
        if not addresses:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return addresses

    async def connect(self, address: str, port: int) -> socket.socket:
        """A connection to a made-up address; a `forbear.sender.dialer.Connect`.

        Raises:
            OSError: it cannot be reached.
        """
        if address in DIRECT:
            return await tcp_connect(address, port)
        with self._log.open("a") as log:  # one write each, so that the lines of several claimers do not mix
            log.write(f"{json.dumps({'address': address, 'port': port})}\n")
        table = self._read()
        match table["routes"].get(address):
            case Route.LOOPBACK:
                return await tcp_connect("127.0.0.1", port)
            case Route.SWALLOWED:
                await asyncio.Event().wait()
            case None if table["elsewhere"] is not None:
                return await tcp_connect("127.0.0.1", table["elsewhere"])
        raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))

    def _read(self) -> Any:
        try:
            return json.loads(self._table.read_text())
        except FileNotFoundError:
            return {"names": {}, "routes": {}, "elsewhere": None}
