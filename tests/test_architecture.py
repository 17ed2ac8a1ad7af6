"""Which way imports may point, and what the pages say about the code."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

from forbear.policy.plan import plan
from forbear.policy.presets import presets
from forbear.settings import PREFIX, Settings
from forbear.states import as_markdown
from infra.cli.durations import written

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "functions" / "forbear"
PURE = sorted(
    [
        *(LIBRARY / "policy").glob("*.py"),
        *(
            LIBRARY / f"{name}.py"
            for name in (
                "ids",
                "signing",
                "jsonspan",
                "urls",
                "guard",
                "headers",
                "event_types",
                "states",
                "tenants",
                "faults",
                "heads",
                "rfc3339",
            )
        ),
    ]
)
# What a decision must not know: the database, the network, AWS, processes, time passing.
IMPURE = {
    *("psycopg", "boto3", "botocore", "aws_lambda_powertools", "httptools", "uvloop"),
    *("asyncio", "os", "time", "logging"),
}


def imports(path: Path) -> set[str]:
    """The modules that a file imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return found


@pytest.mark.parametrize("path", PURE, ids=lambda path: path.stem)
def test_decisions_know_no_store_no_sender_and_no_aws(path: Path) -> None:
    seen = imports(path)
    assert not {name for name in seen if name.partition(".")[0] in IMPURE}
    pure = {f"forbear.{one.relative_to(LIBRARY).with_suffix('').as_posix().replace('/', '.')}" for one in PURE}
    ours = {
        name for name in seen if name.startswith("forbear.") and (LIBRARY / f"{name[8:].replace('.', '/')}.py").exists()
    }
    assert ours <= pure


@pytest.mark.parametrize(
    "path", sorted((ROOT / "functions").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT / "functions"))
)
def test_what_runs_in_lambda_knows_nothing_of_where_it_runs(path: Path) -> None:
    assert not {name for name in imports(path) if name.partition(".")[0] in {"infra", "tests"}}


def test_nothing_but_the_sender_connects_to_where_somebody_says() -> None:
    """So its guard stands on every way out: test events and backfills go through the queue like any other.

    The custom resource answers CloudFormation, where that says. PostgreSQL and AWS are reached by their own clients.
    """
    connecting = {
        "socket",
        "ssl",
        "http.client",
        "urllib.request",
        "httpx",
        "requests",
        "urllib3",
        "aiohttp",
        "smtplib",
    }
    found = {path.relative_to(LIBRARY).as_posix() for path in LIBRARY.rglob("*.py") if imports(path) & connecting}
    assert {name for name in found if not name.startswith("sender/")} == {"custom_resource.py"}
    entries = [path.name for path in (ROOT / "functions").glob("*.py") if imports(path) & connecting]
    assert entries == []


def test_only_the_settings_read_the_environment() -> None:
    readers = [path.name for path in LIBRARY.rglob("*.py") if "os.environ" in path.read_text(encoding="utf-8")]
    assert readers == ["settings.py"]


def test_the_readme_names_every_setting() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [one.name for one in fields(Settings) if f"`{PREFIX}{one.name.upper()}`" not in readme] == []


def test_the_readme_draws_the_life_of_a_delivery_as_the_code_does() -> None:
    assert as_markdown().strip() in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_page_on_policies_lists_every_preset_as_it_is() -> None:
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    for preset in presets().values():
        end = plan(preset.policy).on_paper
        row = f"| `{preset.name}` | {end.attempts:,} | {written(end.elapsed_s)} | {preset.summary} |"
        assert row in page
