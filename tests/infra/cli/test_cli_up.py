"""`forbear up`, where it does not start: the rest of it is what the demonstration shows."""

from __future__ import annotations

import json
import signal
import stat
from pathlib import Path
from typing import Any

import psycopg
import pytest

from forbear.vault import make_key_file
from tests.functions.builders import make_endpoint, one
from tests.infra.cli.processes import PATIENCE_S, finish, start

type Connection = psycopg.Connection[tuple[Any, ...]]


@pytest.mark.parametrize(
    ("other", "message"),
    [(True, "is not the one that this database was made with: put the right one there"), (False, "cannot be read: No")],
)
def test_a_database_that_was_made_with_another_key_file_is_left_alone(
    connection: Connection, database_url: str, tmp_path: Path, *, other: bool, message: str
) -> None:
    make_endpoint(connection)
    if other:
        make_key_file(tmp_path / "key")
    code, out, err = finish(start("up", "--database-url", database_url, "--data", str(tmp_path)))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("forbear: the key")
    assert message in err
    assert (tmp_path / "key").exists() == other
    assert one(connection, "SELECT count(*) FROM forbear.data_keys") == 2


def test_a_new_database_gets_its_key_file_beside_the_data(
    connection: Connection, database_url: str, tmp_path: Path
) -> None:
    connection.execute("DELETE FROM forbear.data_keys")
    ports = ("--port", "0", "--replay-port", "0")
    process = start("up", *ports, "--database-url", database_url, "--data", str(tmp_path), "--json")
    with process:
        assert process.stdout
        where = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert where["api_url"].startswith("http://127.0.0.1:")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert one(connection, "SELECT count(*) FROM forbear.data_keys") == 2
