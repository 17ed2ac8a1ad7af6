"""What a claimer measures: when it asks the database, and what it makes of the results that it settles.

Owns the rhythm of gauges and lines, once a minute and at the end. Measuring must not stop deliveries: a failure of it
is logged and that is all. Knows neither SQL nor how metrics are written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import datetime

from forbear import metrics
from forbear.attempting import Attempted
from forbear.db import Unavailable
from forbear.metrics import Collector
from forbear.store import Store

logger = logging.getLogger(__name__)

EVERY_S = 60.0


class Measuring:
    """One claimer's measuring.

    Args:
        store: its database.
        collector: keeps what is measured.
    """

    def __init__(self, store: Store, collector: Collector) -> None:
        self._store = store
        self._collector = collector
        self._wrote_at = time.monotonic()

    async def gauge(self) -> float:
        """Ask the database for the gauges, and for ends that nobody has counted.

        Returns:
            By how many seconds work is overdue; 0 if none is, or if nobody knows.
        """
        try:
            measured = await self._store.measure()
            for gauge in metrics.GAUGES:
                value = measured[gauge.name]
                self._collector.sample(gauge, [0 if value is None else value])
            self._collector.count(metrics.FINAL_STATUS, int(measured["uncounted_dead"]), "dead")
            return float(measured["overdue_s"] or 0)
        except Unavailable as error:
            logger.warning("database unavailable, no gauges: %s", error)
        except Exception:
            logger.exception("the gauges could not be read; deliveries go on, and they are read again within a minute")
        return 0.0

    async def now_and_then(self) -> None:
        """Read the gauges and write everything down, if it is time to."""
        if time.monotonic() - self._wrote_at > EVERY_S:
            self._wrote_at = time.monotonic()
            await self.gauge()
            self._collector.flush()

    async def finish(self) -> None:
        """Write everything down, and then the last gauges: the time may be up before the database answers."""
        self._collector.flush()
        await self.gauge()
        self._collector.flush()


def count_settled(collector: Collector, settled: Sequence[Attempted], now: datetime) -> None:
    """Count results that were settled, none of them late.

    Args:
        collector: where.
        settled: what.
        now: the time, by the database's clock.
    """
    results = [one.result for one in settled]
    now_ms = now.timestamp() * 1000
    collector.count_each(metrics.ATTEMPTS, (one.attempt.verdict for one in results if one.attempt is not None))
    collector.count_each(metrics.FINAL_STATUS, (one.outcome for one in results if one.outcome in ("delivered", "dead")))
    collector.sample(metrics.RETRY_DELAY, (one.delay_s for one in results if one.outcome == "retry"))
    # What a replay or a backfill put back says nothing about how long its event had to wait.
    collector.sample(
        metrics.TIME_TO_SUCCESS,
        (
            max(0.0, now_ms - (one.lease.event_id.int >> 80)) / 1000  # a UUIDv7's milliseconds (RFC 9562 5.7)
            for one in results
            if one.outcome == "delivered" and one.lease.replay_id is None
        ),
    )
