"""The maintenance function: called by a claimer, without waiting for it, once an hour of work."""

from __future__ import annotations

import logging
from typing import Any

from aws_lambda_powertools.logging import Logger

from forbear.db import Target
from forbear.maintenance import maintain
from forbear.settings import settings

logger = Logger(service="forbear-maintain")
logging.getLogger("forbear").setLevel(logging.INFO)


def handler(_event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Make partitions ahead, drop what retention is over for, purge old keys. Nothing is done twice at once.

    Returns:
        {"dropped": [names of the partitions dropped]}.

    Raises:
        psycopg.Error: the database was lost on the way. What is left is done the next time.
    """
    dropped = maintain(Target.of(settings()), settings().retention_days)
    logger.info("maintained", extra={"dropped": dropped})
    return {"dropped": dropped}
