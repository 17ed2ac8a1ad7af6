"""Times inside ids: a UUIDv7 begins with the milliseconds since 1970 (RFC 9562 section 5.7).

So lists in the order of ids are in the order of time, and a range of time is a range of ids. Knows no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
LOWEST_ID = UUID(int=0)
HIGHEST_ID = UUID(int=(1 << 128) - 1)


def made_at(value: UUID) -> datetime:
    """The time in a UUIDv7, to the millisecond. Of other UUIDs it is some time or other; the last one at most."""
    return EPOCH + min(value.int >> 80, 253_402_300_799_999) * _MILLISECOND


def first_id(at: datetime) -> UUID:
    """The smallest UUID that a UUIDv7 of that millisecond can be; `at` is not before 1970."""
    return UUID(int=((at - EPOCH) // _MILLISECOND) << 80)


@dataclass(frozen=True, slots=True)
class IdRange:
    """The ids from `first` on and below `end`."""

    first: UUID
    end: UUID


def id_range(since: datetime | None, until: datetime | None, cursor: UUID | None = None) -> IdRange:
    """The ids made in a range of time, below the cursor of a list that runs from the newest down.

    Args:
        since: from then on; None: from the first.
        until: before then; None: to the last.
        cursor: the last id that has been seen.
    """
    end = min(HIGHEST_ID if until is None else first_id(until), cursor or HIGHEST_ID)
    return IdRange(LOWEST_ID if since is None else first_id(since), end)
