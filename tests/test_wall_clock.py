"""Where the functions look at a clock of their own machine: nowhere but where it is told here why they may.

A function's clock may be wrong. Due times, leases, breakers, signatures and retention go by the database's clock, read
through `forbear.now()`; spans go by a monotonic clock, which nobody sets.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

FUNCTIONS = Path(__file__).parent.parent / "functions"

# What tells the time of day, by the module or class that it is an attribute of. Not what converts a time that it is
# given; `gmtime` and the like do both, so they are listed, too.
TELLS = {
    "time": {
        "time",
        "time_ns",
        "clock_gettime",
        "clock_gettime_ns",
        "gmtime",
        "localtime",
        "ctime",
        "asctime",
        "strftime",
    },
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "uuid": {"uuid1", "uuid6", "uuid7"},
}
REASONS = {
    ("forbear/db.py", "Target.arguments", "datetime.now"): (
        "an IAM token is signed with the time, and AWS compares it with its own: Signature Version 4 wants it so"
    ),
    ("forbear/db.py", "Database._attempt", "time.time"): (
        "how long a connection rested: the monotonic clock may stand still while an environment is frozen"
    ),
    ("forbear/db.py", "Database._open", "time.time"): (
        "the other end of that; a clock that was set meanwhile costs a new connection, nothing else"
    ),
    ("forbear/metrics.py", "write", "time.time"): (
        "CloudWatch files a line under its own time of day, and takes none that is hours off"
    ),
}

# PostgreSQL's own clock: what must move with the shifted clock may not be read past forbear.now().
SQL_CLOCKS = re.compile(
    r"\b(?:clock_timestamp|statement_timestamp|transaction_timestamp|timeofday|uuidv7)\s*\(\s*\)"
    r"|\b(?:current_timestamp|current_date|current_time|localtimestamp|localtime)\b"
    r"|(?<![\w.])now\s*\(\s*\)",
    re.IGNORECASE,
)
SQL_REASONS = {
    ("0001_clock_and_endpoints.sql", "SELECT coalesce(frozen_at, clock_timestamp() + shift) FROM forbear.clock"): (
        "forbear.now() itself"
    ),
    ("0001_clock_and_endpoints.sql", "SELECT uuidv7(forbear.now() - clock_timestamp())"): (
        "uuidv7 takes an offset from PostgreSQL's clock: this one makes it forbear.now()"
    ),
    (
        "0003_ingest.sql",
        "v_ids uuid[] := ARRAY(SELECT uuidv7(v_now - clock_timestamp()) FROM generate_subscripts(p_types, 1));",
    ): "the same, for a time read once",
    ("0003_ingest.sql", "SELECT uuidv7(v_now - clock_timestamp()), g.id, m.endpoint_id,"): "the same",
    ("0003_ingest.sql", "v_id uuid := uuidv7(v_now - clock_timestamp());"): "the same",
    (
        "0003_ingest.sql",
        "SELECT uuidv7(v_now - clock_timestamp()), v_id, e.id, v_now, octet_length(p_payload), p_expires_at",
    ): "the same",
    (
        "0008_gauges.sql",
        (
            "SELECT greatest(0, extract(epoch FROM clock_timestamp() - min(a.xact_start))) "
            "INTO oldest_snapshot_age_seconds"
        ),
    ): "the age of a transaction, which PostgreSQL's own clock has stamped",
}


class _Readers(ast.NodeVisitor):
    """Finds what tells the time, and in which function that stands."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._within: list[str] = []
        self._modules: dict[str, str] = {}
        """Local names of modules and classes, by what they are: `import time as t` makes t a time."""

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._modules[alias.asname or alias.name] = alias.name

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if alias.name in TELLS.get(str(node.module), ()) and str(node.module) != "datetime":
                self.found.append((".".join(self._within), f"{node.module}.{alias.name}"))
            self._modules[alias.asname or alias.name] = alias.name

    def visit_Attribute(self, node: ast.Attribute) -> None:
        owner = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
        owner = self._modules.get(owner, owner)
        if node.attr in TELLS.get(owner, ()):
            self.found.append((".".join(self._within), f"{owner}.{node.attr}"))
        self.generic_visit(node)

    def _enter(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self._within.append(node.name)
        self.generic_visit(node)
        self._within.pop()

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _enter  # noqa: N815 - ast's names


def readers(source: str) -> list[tuple[str, str]]:
    """The function and the clock of each place in a module that reads the time of day."""
    found = _Readers()
    found.visit(ast.parse(source))
    return found.found


def sql_readers() -> Iterator[tuple[str, str]]:
    """The file and the line, its spaces made one, of each place in our SQL that reads PostgreSQL's own clock."""
    for path in sorted((FUNCTIONS / "forbear" / "sql").rglob("*.sql")):
        for line in path.read_text(encoding="utf-8").splitlines():
            statement = line.partition("--")[0]
            if SQL_CLOCKS.search(statement):
                yield path.name, " ".join(statement.split())


def test_every_look_at_the_clock_of_the_machine_has_its_reason() -> None:
    found = {
        (path.relative_to(FUNCTIONS).as_posix(), within, clock)
        for path in FUNCTIONS.rglob("*.py")
        for within, clock in readers(path.read_text(encoding="utf-8"))
    }
    assert found == REASONS.keys(), "ask the database's clock, or a monotonic one; or say here why it must be this one"


def test_every_look_past_the_clock_that_can_be_moved_has_its_reason() -> None:
    assert set(sql_readers()) == SQL_REASONS.keys(), "read forbear.now(), or say here why not"


@pytest.mark.parametrize(
    ("source", "clock"),
    [
        ("import time\ndef f():\n    return time.time()", "time.time"),
        ("import time as t\ndef f(key=t.time_ns): ...", "time.time_ns"),
        ("from time import time\n", "time.time"),
        ("from datetime import datetime, UTC\nclass f:\n    at = datetime.now(UTC)", "datetime.now"),
        ("import datetime\ndef f():\n    return datetime.datetime.today()", "datetime.today"),
        ("from datetime import date as day\nasync def f():\n    return day.today()", "date.today"),
        ("import time\ndef f():\n    return time.strftime('%H')", "time.strftime"),
    ],
)
def test_the_search_sees_through_names(source: str, clock: str) -> None:
    assert [found for _, found in readers(source)] == [clock]


@pytest.mark.parametrize(
    "source",
    ["import time\ntime.monotonic()", "store.now()", "from datetime import datetime\ndatetime.fromtimestamp(0)"],
)
def test_the_search_takes_nothing_else_for_a_clock(source: str) -> None:
    assert readers(source) == []
