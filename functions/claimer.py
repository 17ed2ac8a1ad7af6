"""The claimer function: started by the schedule's tick, by ingest's call, or by another claimer."""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from dataclasses import asdict
from functools import cache
from typing import Any

import uvloop
from aws_lambda_powertools.logging import Logger

from forbear.data_keys import DataKeys
from forbear.db import Target
from forbear.guard import Guard
from forbear.loop import ClaimLoop, Limits
from forbear.maintenance import EVERY
from forbear.metrics import Collector
from forbear.sender.lean import LeanSender
from forbear.settings import Settings, settings
from forbear.store import Store
from forbear.vault import Purpose
from forbear.waking import AwsWaking, invoke_maintenance

logger = Logger(service="forbear-claimer")
logging.getLogger("forbear").setLevel(logging.INFO)

# One event loop for the life of the execution environment: pooled connections belong to it.
runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)


@cache
def _store() -> Store:
    return Store(Target.of(settings()), DataKeys.of(settings(), Purpose.SECRETS))


@cache
def _sender() -> LeanSender:
    known = settings()
    return LeanSender(Guard(known.allow_networks, known.allow_http, frozenset(known.ports) or None))


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Claim and send until there is nothing to do or the time is nearly up.

    Args:
        event: {"forbear": "tick"} from the schedule, "sweep" from the one that ticks a few times a day; "wake", "full"
            or "successor" from a call.
        context: AWS's, for the time left.

    Returns:
        What this claimer did, in numbers.
    """
    return runner.run(_run(str(event.get("forbear", "tick")), context.get_remaining_time_in_millis() / 1000))


async def _run(why: str, time_left_s: float) -> dict[str, Any]:
    known = settings()
    loop = ClaimLoop(
        _store(),
        _sender(),
        AwsWaking(known),
        Limits(known.max_in_flight, known.max_batch_bytes, known.max_claimers, known.linger_s, known.tick_s),
        random.Random(),  # noqa: S311 - jitter needs no secrecy
        collector=Collector(known.metrics_namespace),
    )
    events = asyncio.get_running_loop()
    events.add_signal_handler(signal.SIGTERM, loop.stop)
    try:
        tally = asdict(await loop.run(time_left_s, only_if_alone=why in ("tick", "sweep"), sweeping=why == "sweep"))
    finally:
        events.remove_signal_handler(signal.SIGTERM)
    await _keep_house(known)
    if tally["claimed"] or tally["reaped"]:
        logger.info("claimer done", extra={"why": why, **tally})
    return tally


async def _keep_house(known: Settings) -> None:
    """Have the maintenance function called when it is due, after the loop: deliveries do not depend on it."""
    if known.maintenance_function is None:
        return
    try:
        if await _store().must_call_maintenance(EVERY):
            await asyncio.to_thread(invoke_maintenance, known)
    except Exception:
        logger.exception("whether maintenance is due could not be asked; the next claimer asks again")
