"""What an error says, which is logged, shows no values of rows."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import psycopg
import pytest
from pydantic import BaseModel

from forbear import api
from forbear.api import ApiRequest, ApiResponse, respond
from forbear.db import Database
from forbear.store import Store
from tests.functions.builders import data_keys
from tests.functions.events import http_event

SETUP = "CREATE TABLE told (id int PRIMARY KEY, note text CONSTRAINT short CHECK (length(note) < 9), at uuid)"
WRONG = {
    "a broken constraint": ("INSERT INTO told VALUES (1, 's3cret-and-long')", "short"),
    "a key that is there": ("INSERT INTO told VALUES (7, 'x')", "told_pkey"),
    "no value of the type": ("SELECT 's3cret'::uuid", "SQLSTATE 22P02"),
    "what raises with a detail": (
        "DO $$BEGIN RAISE EXCEPTION 'no' USING DETAIL = 's3cret', HINT = 's3cret'; END$$", "no",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_an_error_of_the_database_names_what_was_broken_and_shows_no_value(database_url: str, case: str) -> None:
    sql, says = WRONG[case]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(SETUP)
        connection.execute("INSERT INTO told VALUES (7, 's3cret')")

    async def by_the_store() -> None:
        store = Store(database_url, data_keys())
        try:
            await store._rows(sql)
        finally:
            await store.aclose()

    database = Database(database_url)
    for run in (
        lambda: database.run(lambda on: on.execute(sql), repeatable=False),
        lambda: asyncio.run(by_the_store()),
    ):
        with pytest.raises(psycopg.Error, match=says) as raised:
            run()
        assert "s3cret" not in str(raised.value)
        assert raised.value.sqlstate
    database.close()


class Told(BaseModel):
    """A model that a row does not fit."""

    number: int


def test_a_row_that_fits_no_model_is_logged_without_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(api.logger.registered_handler, "stream", written)

    def operation(_request: ApiRequest) -> ApiResponse:
        row: dict[str, Any] = {"number": "s3cret"}
        return ApiResponse(200, Told(**row))

    result = respond(http_event("GET", "/v1/health"), {"GET /v1/health": operation}, None, lambda: Database(""))
    assert result["statusCode"] == 500
    (line,) = written.getvalue().splitlines()
    assert json.loads(line)["faults"][0]["loc"] == ["number"]
    assert "s3cret" not in line
