"""A transaction, and a question that must be asked after its COMMIT, in one network round trip.

Owns the pipeline. Knows neither the statement nor the question.

It speaks to libpq itself, through psycopg's wrapper: psycopg's own pipeline turns to the socket once a statement and
more, which took almost half of ingest's Python time. Each statement is prepared once a connection, by the first round
trip that has it: to parse and plan it took a third of the server's time for an event.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

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
    """A statement, and the parameters for its `$1`, `$2` and so on: texts, bytes, times. Its text says the types."""

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
    lost: psycopg.Error | None = None
    pgconn = connection.pgconn
    prepared = _PREPARED.setdefault(connection, {})
    exchange = _Exchange(pgconn, prepared)
    pgconn.enter_pipeline_mode()
    try:
        connection.wait(exchange.steps([_encoded(connection, one) for one in (*work, question)]))
    except psycopg.Error as error:
        lost = error
    else:
        pgconn.exit_pipeline_mode()
    answers = exchange.answers
    fault = lost if exchange.failed is None else psycopg.errors.error_from_result(exchange.failed)
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

# A statement, its parameters' bytes and their formats.
type _Message = tuple[bytes, Sequence[Any] | None, Sequence[int] | None]
# What is prepared on each connection, and its names there.
_PREPARED: WeakKeyDictionary[Connection, dict[bytes, bytes]] = WeakKeyDictionary()


def _encoded(connection: Connection, statement: Statement) -> _Message:
    """A statement as libpq takes it. Its text says the parameters' types."""
    sql = statement.sql.encode()
    if not statement.parameters:
        return sql, None, None
    transformer = Transformer(connection)
    formats = [_format(value) for value in statement.parameters]
    values = transformer.dump_sequence(statement.parameters, formats)
    return sql, values, transformer.formats


def _format(value: Any) -> PyFormat:
    """Bytes travel as they are: as text they would be twice as long."""
    first = value[0] if isinstance(value, list) and value else value
    return PyFormat.BINARY if isinstance(first, bytes) else PyFormat.AUTO


def _rows(connection: Connection, answer: PGresult) -> list[TupleRow]:
    transformer = Transformer(connection)
    transformer.set_pgresult(answer)
    return transformer.load_rows(0, answer.ntuples, tuple)


class _Exchange:
    """Several statements sent at once, and the answers to them.

    Args:
        pgconn: in pipeline mode.
        prepared: the names of the texts that are prepared; those that are not yet are prepared on the way, and added.

    Attributes:
        answers: one a statement, in order, up to where the connection was lost.
        failed: the answer of the first that failed, or could not be prepared.
    """

    def __init__(self, pgconn: PGconn, prepared: dict[bytes, bytes]) -> None:
        self.answers: list[PGresult] = []
        self.failed: PGresult | None = None
        self._pgconn = pgconn
        self._prepared = prepared

    def steps(self, messages: Sequence[_Message]) -> PQGen[None]:
        """Send statements, and wait for an answer to each; psycopg drives this, as it drives its own exchanges."""
        pgconn = self._pgconn
        names = dict(self._prepared)
        # What is answered, in order: the text that was prepared, or None for a statement that was run.
        sent: deque[bytes | None] = deque()
        for sql, values, formats in messages:
            if sql not in names:
                names[sql] = b"forbear_%d" % len(names)
                pgconn.send_prepare(names[sql], sql)
                sent.append(sql)
            pgconn.send_query_prepared(names[sql], values, formats, result_format=Format.BINARY)
            sent.append(None)
        pgconn.pipeline_sync()
        while pgconn.flush():
            # A server that cannot get rid of its answers reads nothing more.
            if (yield Wait.RW) & Ready.R:
                pgconn.consume_input()
        while (answer := (yield from self._answer())).status != ExecStatus.PIPELINE_SYNC:
            self._take(answer, sent.popleft(), names)

    def _answer(self) -> PQGen[PGresult]:
        """Wait for the next answer."""
        while True:
            while self._pgconn.is_busy():
                if (yield Wait.R):
                    self._pgconn.consume_input()
            answer = self._pgconn.get_result()
            if answer is not None:
                return answer
            # There is none behind each answer; and none at all when it is over.
            if self._pgconn.status == ConnStatus.BAD:
                raise psycopg.OperationalError("the connection is lost")

    def _take(self, answer: PGresult, text: bytes | None, names: dict[bytes, bytes]) -> None:
        if answer.status == ExecStatus.FATAL_ERROR and self.failed is None:
            self.failed = answer
        if text is None:
            self.answers.append(answer)
        elif answer.status == ExecStatus.COMMAND_OK:
            self._prepared[text] = names[text]
