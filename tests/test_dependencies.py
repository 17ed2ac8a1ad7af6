"""Every dependency's licence is known and allowed, and the page says so."""

from __future__ import annotations

from tests.audit import read, verdict
from tests.dependencies import EXCEPTIONS, PURPOSES, ROOT, dependencies, page


def test_every_licence_is_one_that_apache_2_may_depend_on() -> None:
    assert {
        name: one.licence for name, one in dependencies().items() if not one.allowed and name not in EXCEPTIONS
    } == {}


def test_every_exception_is_needed() -> None:
    assert {name for name, one in dependencies().items() if not one.allowed} == set(EXCEPTIONS)


def test_forbear_says_why_it_asks_for_what_it_asks_for() -> None:
    assert {name for name, one in dependencies().items() if not one.needed_by} <= set(PURPOSES)
    assert set(PURPOSES) <= set(dependencies())


def test_the_page_on_dependencies_is_as_it_is_generated() -> None:
    assert (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8") == page(), (
        "run python -m tests.dependencies > docs/dependencies.md"
    )


def one(name: str, *ids: str) -> dict[str, object]:
    return {"name": name, "version": "1", "vulns": [{"id": id_} for id_ in ids]}


UNKNOWN = {"name": "c", "skip_reason": "not found"}


def test_the_audit_fails_on_what_is_known_and_on_nothing_else() -> None:
    assert verdict([read({"dependencies": [one("a"), one("b", "CVE-1", "CVE-2"), UNKNOWN]})]) == (
        1,
        "KNOWN VULNERABILITIES: take a version without them, see pyproject.toml.\n  b 1: CVE-1, CVE-2",
    )
    assert verdict([read({"dependencies": [one("a"), one("b")]})])[0] == 0


def test_what_was_not_audited_is_said() -> None:
    """A registry that knows nothing of vulnerabilities answers, too, and would pass for one that knows none."""
    for audits in ([], [read({"dependencies": [UNKNOWN, UNKNOWN]})]):
        code, text = verdict(audits)
        assert code == 0
        assert text.startswith("NOT AUDITED")
    code, text = verdict([read({"dependencies": [one("a"), UNKNOWN]})])
    assert (code, text) == (0, "No vulnerabilities are known of 1 distributions, NOT AUDITED: c.")
