"""The stack as a template, made once for each profile and test process, without bundling and without validation."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import infra.node  # noqa: F401 - chooses the Node that the next import starts

# Read when Node starts. The validator costs seconds a template; the gate has it on.
os.environ["CDK_VALIDATION"] = "false"

# isort: split
import aws_cdk as cdk
from aws_cdk.assertions import Template

from infra.config import StackConfig
from infra.stack import ForbearStack

ROOT = Path(__file__).parents[3]

type Configure = Callable[..., StackConfig]
type Synthesize = Callable[..., Template]


def _config(profile: str = "small", **overrides: Any) -> StackConfig:
    # Not from app.py's folder: what somebody has chosen there in forbear.toml is no test's.
    return StackConfig.read({"profile": profile, **overrides}, Path(__file__).parent)


def synthesized(config: StackConfig, context: Mapping[str, Any] | None = None) -> Template:
    """The template of a stack, with the flags of cdk.json; assets are not bundled."""
    flags = json.loads((ROOT / "cdk.json").read_text(encoding="utf-8"))["context"]
    with TemporaryDirectory(prefix="forbear-cdk-") as folder:
        app = cdk.App(outdir=folder, context={**flags, "aws:cdk:bundling-stacks": [], **(context or {})})
        return Template.from_stack(ForbearStack(app, config=config))


@cache
def _template(profile: str) -> Template:
    return synthesized(_config(profile))


@pytest.fixture(scope="session")
def config() -> Configure:
    """What was chosen: `config("production", **{"database.max_acu": 8})`."""
    return _config


@pytest.fixture(scope="session")
def template() -> Synthesize:
    """The stack's template: `template("small")`, made once; with overrides, made anew."""

    def make(profile: str = "small", **overrides: Any) -> Template:
        return synthesized(_config(profile, **overrides)) if overrides else _template(profile)

    return make
