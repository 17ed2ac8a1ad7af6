"""A transaction, and a question that must be asked after its COMMIT, in one network round trip.

Owns the pipeline. Knows neither the statement nor the question.

It speaks to libpq itself, through psycopg's wrapper: psycopg's own pipeline turns to the socket once a statement and
more, which took almost half of ingest's Python time.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult
from psycopg.rows import TupleRow
from psycopg.waiting import Ready, Wait

from forbear.db import Connection

logger = logging.getLogger(__name__)


class Statement(NamedTuple):
    """A statement, and the parameters for its `$1`, `$2` and so on."""

    sql: str
    parameters: Sequence[Any] = ()


def commit_and_ask(
    connection: Connection, statement: Statement, question: Statement, *, condition: Statement | None = None
) -> tuple[list[TupleRow], TupleRow | None]:
    """Run a statement as a transaction, and a second one after it as a transaction of its own.

    Four messages leave together: BEGIN, the statement, COMMIT, the question; a failure skips those behind it. A
    condition is a fifth, before the statement: where it fails, nothing is stored. The question has a snapshot of its
    own, taken after the COMMIT. (A sync between the two instead of BEGIN and COMMIT would have the question asked after
    a failure, too, and save the server next to nothing.)

    Args:
        connection: in autocommit mode, no transaction open.
        statement: what to commit.
        question: gives one row.
        condition: fails unless this may be done.

    Returns:
        The statement's rows, and the answer; None if the question failed, or the connection behind it, once the
        COMMIT was confirmed.

    Raises:
        psycopg.Error: the condition or the statement failed and is rolled back, or the connection was lost before the
            COMMIT's answer came: then nobody knows.
    """
    work = [_BEGIN, statement, _COMMIT] if condition is None else [_BEGIN, condition, statement, _COMMIT]
    answers: list[PGresult] = []
    lost: psycopg.Error | None = None
    pgconn = connection.pgconn
    pgconn.enter_pipeline_mode()
    try:
        connection.wait(_exchange(pgconn, [_encoded(connection, one) for one in (*work, question)], answers))
    except psycopg.Error as error:
        lost = error
    else:
        pgconn.exit_pipeline_mode()
    failed = next((answer for answer in answers if answer.status == ExecStatus.FATAL_ERROR), None)
    fault = lost if failed is None else psycopg.errors.error_from_result(failed)
    if len(answers) < len(work) or answers[len(work) - 1].command_status != b"COMMIT":
        if lost is None:
            connection.rollback()
        raise fault or psycopg.OperationalError("the transaction was not committed")
    if fault is not None:
        logger.warning("a question after a commit failed", exc_info=fault)
        return _rows(connection, answers[len(work) - 2]), None
    return _rows(connection, answers[len(work) - 2]), _rows(connection, answers[-1])[0]


_BEGIN = Statement("BEGIN")
_COMMIT = Statement("COMMIT")

type _Message = tuple[bytes, Sequence[Any] | None, Sequence[int] | None, Sequence[int] | None]


def _encoded(connection: Connection, statement: Statement) -> _Message:
    """A statement as libpq takes it: with its parameters' bytes, types and formats."""
    sql = statement.sql.encode()
    if not statement.parameters:
        return sql, None, None, None
    transformer = Transformer(connection)
    formats = [_format(value) for value in statement.parameters]
    values = transformer.dump_sequence(statement.parameters, formats)
    return sql, values, transformer.types, transformer.formats


def _format(value: Any) -> PyFormat:
    """Bytes travel as they are: as text they would be twice as long."""
    first = value[0] if isinstance(value, list) and value else value
    return PyFormat.BINARY if isinstance(first, bytes) else PyFormat.AUTO


def _rows(connection: Connection, answer: PGresult) -> list[TupleRow]:
    transformer = Transformer(connection)
    transformer.set_pgresult(answer)
    return transformer.load_rows(0, answer.ntuples, tuple)


def _exchange(pgconn: PGconn, messages: Sequence[_Message], answers: list[PGresult]) -> PQGen[None]:
    """Send statements, and wait for an answer to each; psycopg drives this, as it drives its own exchanges.

    Args:
        pgconn: in pipeline mode.
        messages: the statements.
        answers: filled, up to where the connection is lost.
    """
    for message in messages:
        pgconn.send_query_params(*message, result_format=Format.BINARY)
    pgconn.pipeline_sync()
    while pgconn.flush():
        # A server that cannot get rid of its answers reads nothing more.
        if (yield Wait.RW) & Ready.R:
            pgconn.consume_input()
    while True:
        while pgconn.is_busy():
            if (yield Wait.R):
                pgconn.consume_input()
        answer = pgconn.get_result()
        if answer is None:  # behind each statement's
            if pgconn.status == ConnStatus.BAD:
                raise psycopg.OperationalError("the connection is lost")
        elif answer.status == ExecStatus.PIPELINE_SYNC:
            return
        else:
            answers.append(answer)
