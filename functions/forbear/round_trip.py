"""A transaction, and a question that must be asked after its COMMIT, in one network round trip.

Owns the pipeline. Knows neither the statement nor the question.
"""

from __future__ import annotations

import logging
from typing import Any, LiteralString

import psycopg
from psycopg.rows import DictRow

from forbear.db import Connection

logger = logging.getLogger(__name__)


def commit_and_ask(
    connection: Connection,
    statement: str,
    parameters: dict[str, Any],
    question: LiteralString,
    *,
    condition: tuple[str, dict[str, Any]] | None = None,
) -> tuple[list[DictRow], DictRow | None]:
    """Run a statement as a transaction, and a second one after it as a transaction of its own.

    Four messages leave together: BEGIN, the statement, COMMIT, the question; a failure skips those behind it. A
    condition is a fifth, before the statement: where it fails, nothing is stored. The
    question has a snapshot of its own, taken after the COMMIT. (`Pipeline.sync` between two statements would make two
    transactions as well, but waits for the first one's answer: a second round trip.)

    Args:
        connection: in autocommit mode, no transaction open.
        statement: what to commit.
        parameters: the statement's.
        question: gives one row.
        condition: a statement that fails unless this may be done, and its parameters.

    Returns:
        The statement's rows, and the answer; None if the question failed, or the connection behind it, once the
        COMMIT was confirmed.

    Raises:
        psycopg.Error: the condition or the statement failed and is rolled back, or the connection was lost before the
            COMMIT's answer came: then nobody knows.
    """
    committed: psycopg.Cursor[DictRow] | None = None
    try:
        with connection.pipeline():
            connection.execute("BEGIN")
            if condition is not None:
                connection.execute(*condition)
            stored = connection.execute(statement, parameters)
            committed = connection.execute("COMMIT")
            asked = connection.execute(question)
    except psycopg.Error as error:
        if committed is None or committed.statusmessage != "COMMIT":
            if not connection.closed:
                connection.rollback()
            raise
        logger.warning("a question after a commit failed", exc_info=error)
        return stored.fetchall(), None
    return stored.fetchall(), asked.fetchone()
