"""Policies as people name them on the command line: presets, JSON files, standard input.

Imports the policy's model, so commands import this when they run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from forbear.faults import faults
from forbear.policy.model import Policy
from forbear.policy.presets import Preset
from infra.cli.errors import UsageError


def chosen(names: Iterable[str], presets: Mapping[str, Preset]) -> list[Preset]:
    """What was named, in order.

    Args:
        names: Each is a preset's name, a JSON file with a policy or with a schedule alone, or `-` for standard input.
        presets: The presets that there are; a file of the same name is `./name`.

    Returns:
        Presets; a file's is called as the file was named, and has neither summary nor source.

    Raises:
        UsageError: A name is neither, or a file does not hold a policy.
    """
    return [presets[name] if name in presets else _from_file(name, presets) for name in names]


def _from_file(name: str, presets: Mapping[str, Preset]) -> Preset:
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except FileNotFoundError:
        raise UsageError(
            f"{name!r} is neither a preset nor a file: name one of {', '.join(presets)}, or a JSON file with a policy"
        ) from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{name!r} cannot be read: {error}") from error
    where = "standard input" if name == "-" else name
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not JSON: {error}") from error
    # A schedule says its kind, which no policy has.
    if isinstance(document, dict) and "kind" in document:
        document = {"schedule": document}
    try:
        policy = Policy.model_validate(document)
    except ValidationError as error:
        raise UsageError(f"{where} holds no policy: {'; '.join(map(str, faults(error)))}") from error
    return Preset(where, "", "", policy, tuple(_left_open(policy)))


def _left_open(policy: Policy) -> Iterator[str]:
    """What of a policy was not said and is therefore the default's, as presets tell it."""
    for part in Policy.model_fields:
        value = getattr(policy, part)
        if part not in policy.model_fields_set:
            yield part
        elif isinstance(value, BaseModel):
            # Of a schedule, only the jitter is filled in; what else is missing is no part of it.
            fields = ("jitter",) if part == "schedule" else tuple(type(value).model_fields)
            yield from (f"{part}.{field}" for field in fields if field not in value.model_fields_set)
