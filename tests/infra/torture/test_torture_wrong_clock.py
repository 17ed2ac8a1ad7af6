"""A clock that is wrong: whoever asks what time it is, is told so, and nothing else is any different."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.torture.wrong_clock import offsets, set_clocks

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, sys
from pathlib import Path
from infra.torture.wrong_clock import install, offsets, set_clocks
folder = Path(sys.argv[1])
true = install(lambda: offsets(folder).get("ingest", 0.0))
import time, logging
from datetime import UTC, datetime
import psycopg, pydantic

class Stamped(pydantic.BaseModel):
    at: datetime

def looks():
    return [time.time(), time.time_ns() / 1e9, datetime.now(UTC).timestamp(), datetime.now().timestamp(),
            datetime.today().timestamp(), logging.makeLogRecord({}).created]

began, monotonic = true.time(), time.monotonic()
off = [round((look - began) / 60) for look in looks()]
set_clocks(folder, {})
right = [round((look - began) / 60) for look in looks()]
made = datetime(2026, 1, 2, tzinfo=UTC)
read = Stamped.model_validate_json('{"at": "2026-01-02T00:00:00Z"}').at
print(json.dumps({
    "off": off, "right": right, "same": read == made, "is": isinstance(read, datetime),
    "sql": psycopg.adapt.Transformer().as_literal(made).decode(), "type": type(datetime.now(UTC)).__mro__[0].__module__,
    "parsed": datetime.fromisoformat("2026-01-02T00:00:00+00:00") == made,
    "monotonic": time.monotonic() - monotonic < 60,
}))
"""


@pytest.mark.parametrize("off_s", [3600, -3600])
def test_every_way_to_ask_for_the_time_is_off_until_the_clock_is_set_right(tmp_path: Path, off_s: float) -> None:
    set_clocks(tmp_path, {"ingest": off_s})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'functions'}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert seen.pop("off") == [off_s / 60] * 6
    assert seen.pop("right") == [0] * 6
    assert seen.pop("sql").startswith("'2026-01-02 00:00:00+00")
    assert seen.pop("type") == "datetime"
    assert all(seen.values()), seen


def test_no_file_is_no_wrong_clock(tmp_path: Path) -> None:
    assert offsets(tmp_path) == {}
    set_clocks(tmp_path, {"claimer": -1.5})
    assert offsets(tmp_path) == {"claimer": -1.5}
