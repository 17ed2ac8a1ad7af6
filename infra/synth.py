"""The gate for the template: synthesizes it with every check on, and says where it is.

`cdk-synth`, with the options that `cdk` takes: `-c profile=production`, `-o folder`. Checks are the CDK's own rules and
cdk-nag's AwsSolutions and Serverless packs at synthesis, then cfn-lint; a warning fails as an error does. Needs the
development dependencies; `cdk deploy` does not.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import infra.node  # noqa: F401 - chooses the Node that the next import starts

# isort: split
import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks, ServerlessChecks
from cfnlint.api import lint_file
from cfnlint.config import ManualArgs

from infra.bundling import BundlingError, alone
from infra.config import InvalidConfig, StackConfig
from infra.stack import ForbearStack

ROOT = Path(__file__).parent.parent
"""Where app.py and cdk.json stand."""

IGNORED = ("W3005",)
"""What cfn-lint need not say: W3005 is about a dependency that a reference implies already; the CDK writes those."""


class Failed(Exception):
    """A check found something; the message says what."""


def main() -> None:
    """Synthesize, check, and exit with 0, or with 1 and what was found."""
    parser = argparse.ArgumentParser(prog="cdk-synth", description="Synthesize and check the template.")
    parser.add_argument("-c", "--context", action="append", default=[], metavar="KEY=VALUE", help="as of cdk")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "cdk.out", metavar="FOLDER", help="as of cdk")
    chosen = parser.parse_args()
    check(dict(pair.partition("=")[::2] for pair in chosen.context), chosen.output)


def check(context: dict[str, Any], output: Path) -> None:
    """Synthesize, check, and say where the template is and how large, or exit with what was found.

    Args:
        context: What stands in the app's context besides cdk.json's.
        output: The folder of the assembly.
    """
    try:
        with alone(output):
            template = synthesize(context, output)
        lint(template)
    except (InvalidConfig, BundlingError, Failed) as error:
        sys.exit(f"cdk-synth: {error}")
    size, resources = template.stat().st_size, len(json.loads(template.read_text(encoding="utf-8"))["Resources"])
    print(f"{template}: {resources} resources of 500, {size / 1024:.0f} KiB of 1,024 that CloudFormation takes")


def synthesize(context: dict[str, Any], output: Path) -> Path:
    """Write the cloud assembly with every check on.

    Args:
        context: What stands in the app's context besides cdk.json's.
        output: The folder of the assembly.

    Returns:
        The template's file.

    Raises:
        InvalidConfig: A knob is wrong.
        Failed: A check found something.
    """
    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    app = cdk.App(context={**flags, **context}, outdir=str(output))
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app), ServerlessChecks(app))
    stack = ForbearStack(app, config=StackConfig.read(app.node.get_all_context(), ROOT))
    try:
        assembly = app.synth()
    except RuntimeError as error:
        raise Failed(str(error)) from error
    artifact = assembly.get_stack_by_name(stack.stack_name)
    warnings = [f"{message.id}: {message.entry.data}" for message in artifact.messages]
    if warnings:
        raise Failed("\n".join(warnings))
    return Path(artifact.template_full_path)


def lint(template: Path) -> None:
    """Run cfn-lint over a template.

    Raises:
        Failed: It found something.
    """
    found = lint_file(template, ManualArgs(ignore_checks=list(IGNORED)))
    if found:
        raise Failed(
            "cfn-lint:\n" + "\n".join(f"{each.rule.id} line {each.linenumber}: {each.message}" for each in found)
        )


if __name__ == "__main__":
    main()
