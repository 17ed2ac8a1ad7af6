"""Waits at the gate that its environment names, whatever the event."""

import os
from typing import Any

from tests.infra.local.handlers import plain


def handler(_event: Any, context: Any) -> Any:
    return plain.handler({"gate": int(os.environ["GATE"])}, context)
