"""The plans that statements inside of functions really ran with, and what they read, from auto_explain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

type Connection = psycopg.Connection[Any]

SETTINGS = {
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_buffers": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_parameter_max_length": "0",
    "client_min_messages": "log",
}


@dataclass(frozen=True)
class Scan:
    """A node of a plan that read a table: how, by which condition, and how many rows it looked at in all."""

    node: str
    table: str
    index: str | None
    condition: str | None
    rows: int
    statement: str


@dataclass
class Plans:
    """All plans of what ran."""

    scans: list[Scan] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many rows were looked at in all."""
        return sum(scan.rows for scan in self.scans)


@contextmanager
def explained(connection: Connection) -> Iterator[Plans]:
    """Collect the plans of everything that runs on a connection meanwhile, statements inside of functions included."""
    plans = Plans()
    texts: list[str] = []

    def listen(notice: psycopg.errors.Diagnostic) -> None:
        texts.append(notice.message_primary or "")

    connection.execute("LOAD 'auto_explain'")
    for name, value in SETTINGS.items():
        connection.execute("SELECT set_config(%s, %s, false)", (name, value))
    connection.add_notice_handler(listen)
    try:
        yield plans
    finally:
        connection.remove_notice_handler(listen)
        connection.execute("SET client_min_messages = notice")
        connection.execute("SET auto_explain.log_min_duration = -1")
    for text in texts:
        _, _, document = text.partition("plan:\n")
        if document:
            plan = json.loads(document)
            plans.scans.extend(_scans(plan["Plan"], " ".join(plan["Query Text"].split())))


def _scans(node: dict[str, Any], statement: str) -> Iterator[Scan]:
    if "Relation Name" in node and "Scan" in node["Node Type"]:
        looked_at = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        yield Scan(
            node["Node Type"],
            node["Relation Name"],
            node.get("Index Name"),
            node.get("Index Cond") or node.get("TID Cond"),
            round(looked_at * node["Actual Loops"]),
            statement,
        )
    for child in node.get("Plans", ()):
        yield from _scans(child, statement)
