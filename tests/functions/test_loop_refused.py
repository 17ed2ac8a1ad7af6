from __future__ import annotations

from typing import Any

import psycopg

from forbear.sender import Request, Response
from tests.functions.builders import make_endpoint, one, post, run
from tests.functions.scripted import Claimer, ScriptedSender, answer, running, until

type Connection = psycopg.Connection[tuple[Any, ...]]
NO_STATUS = 999  # no sender gives it, and the table of attempts does not take it


def test_a_result_that_the_database_refuses_does_not_hold_up_the_others(
    connection: Connection, database_url: str
) -> None:
    make_endpoint(connection)
    post(connection, *[b"fine"] * 40, b"odd", *[b"fine"] * 40)

    def script(request: Request, _number: int) -> Response:
        return answer(NO_STATUS if request.body == b"odd" else 200)

    async def settled() -> Any:
        claimer = Claimer(database_url, ScriptedSender(script))
        async with running(claimer, 20) as task:
            await until(lambda: one(connection, "SELECT count(*) FROM forbear.history") == 80)
            claimer.loop.stop()
            return await task

    assert run(settled()).delivered == 80
    assert one(connection, "SELECT count(*) FROM forbear.queue WHERE lease_token IS NOT NULL") == 1
