"""Asks whether vulnerabilities of what is installed are known: `python -m tests.audit`, a step of the gate.

Fails only when some are. When nobody can be asked (no network, a mirror without that service), it says so loudly and
lets the gate go on: a build must not depend on somebody else's service, and must not pass for audited when it was not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

SERVICES: Final = ("pypi", "osv")
PATIENCE_S: Final = 120


@dataclass(frozen=True, slots=True)
class Audit:
    """What a service knows: vulnerabilities by distribution, and the distributions that it does not know."""

    vulnerable: dict[str, list[str]]
    unknown: list[str]
    asked: int


def read(report: dict[str, Any]) -> Audit:
    """Read a report of pip-audit's (format json).

    Args:
        report: `dependencies`, each with a name and either `vulns` or a `skip_reason`.
    """
    found = report["dependencies"]
    return Audit(
        vulnerable={
            f"{one['name']} {one['version']}": [vuln["id"] for vuln in one["vulns"]]
            for one in found
            if one.get("vulns")
        },
        unknown=[one["name"] for one in found if "skip_reason" in one],
        asked=len(found),
    )


def verdict(audits: Sequence[Audit]) -> tuple[int, str]:
    """The exit code and what to say.

    Args:
        audits: one for each service that answered.
    """
    vulnerable = {name: ids for audit in audits for name, ids in audit.vulnerable.items()}
    if vulnerable:
        lines = [f"  {name}: {', '.join(ids)}" for name, ids in sorted(vulnerable.items())]
        return 1, "\n".join(["KNOWN VULNERABILITIES: take a version without them, see pyproject.toml.", *lines])
    if not any(len(audit.unknown) < audit.asked for audit in audits):
        return 0, "NOT AUDITED: no service that knows vulnerabilities could be asked. Run this again where one can be."
    audit = min(audits, key=lambda one: len(one.unknown))
    left = f", NOT AUDITED: {', '.join(audit.unknown)}" if audit.unknown else ""
    return 0, f"No vulnerabilities are known of {audit.asked - len(audit.unknown)} distributions{left}."


def ask(service: str) -> Audit | None:
    """Ask a service; None if it cannot be."""
    command = [sys.executable, "-m", "pip_audit", "--vulnerability-service", service, "--format", "json"]
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and arguments
            [*command, "--progress-spinner", "off", "--skip-editable", "--timeout", "10"],
            capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        return read(json.loads(done.stdout))
    except (subprocess.TimeoutExpired, ValueError, KeyError):
        return None


def main() -> int:
    """Ask one service after the other until one knows something."""
    audits = []
    for service in SERVICES:
        audit = ask(service)
        if audit is not None:
            audits.append(audit)
            if len(audit.unknown) < audit.asked / 2:
                break
    code, text = verdict(audits)
    sys.stdout.write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
