"""The claimer function in a made-up internet: the production handler, with another sender behind it.

Owns which sender: the production one with its own seams filled otherwise (look-ups, connections, trusted certificates).
The guard is as the settings have it. Everything else is functions/claimer.py's.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

import claimer as production
from forbear.guard import Guard
from forbear.sender.dialer import tls_context
from forbear.sender.lean import LeanSender
from forbear.settings import settings
from infra.torture.authority import CA_FILE
from infra.torture.names import Internet
from infra.torture.wrong_clock import FOLDER


@cache
def sender() -> LeanSender:
    """The sender of this process."""
    internet, known = Internet(Path(os.environ[FOLDER])), settings()
    return LeanSender(
        Guard(known.allow_networks, known.allow_http, frozenset(known.ports) or None),
        tls=tls_context(str(internet.folder / CA_FILE)),
        lookup=internet.lookup,
        connect=internet.connect,
    )


production._sender = sender  # noqa: SLF001 - the one place where the function makes its sender
handler = production.handler
