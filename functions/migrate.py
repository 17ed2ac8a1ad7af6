"""The migrate function: brings the schema up to date before new code serves."""

from __future__ import annotations

from typing import Any

import psycopg
from aws_lambda_powertools.logging import Logger

from forbear.migrations import migrate
from forbear.settings import settings

logger = Logger(service="forbear-migrate")


def handler(_event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Apply what is missing.

    Returns:
        {"applied": [names of the migrations applied]}.

    Raises:
        MigrationError: the schema cannot be brought up to date; nothing was changed.
    """
    with psycopg.connect(settings().database_url, autocommit=True) as connection:
        applied = [migration.name for migration in migrate(connection)]
    logger.info("migrated", extra={"applied": applied})
    return {"applied": applied}
