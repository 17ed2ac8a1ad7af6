"""Presets: named policies, read from data files.

Owns the form of such a file (its top says how it is read, `presets.toml`), what a preset takes from the default policy,
and the errors of a file. Knows no endpoint. Reading takes some milliseconds and imports what ingest and the claimer do
without: they see policies as they are stored, and must not import this.
"""

import re
import tomllib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from pydantic import ValidationError

from forbear.faults import faults
from forbear.policy.model import Policy

DEFAULT: Final = "default"
"""The preset that others take from what their source leaves open."""

_NULL: Final = "null"
_ABOUT: Final = ("summary", "source")
# A schedule's other fields make sense together only.
_OPEN_IN_A_SCHEDULE: Final = ("jitter",)
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")


class InvalidPresets(ValueError):
    """A file of presets cannot be used; the message names file, preset and field, and says what to do."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A named policy.

    Attributes:
        name: What requests call it.
        summary: What it is, in a sentence.
        source: Where its figures were published.
        policy: The whole policy.
        from_default: What of it the source leaves open, so that it is the default's: whole parts (`budget`) and fields
            of parts (`verdicts.gone`), in the policy's order.
    """

    name: str
    summary: str
    source: str
    policy: Policy
    from_default: tuple[str, ...]


@cache
def presets() -> Mapping[str, Preset]:
    """The built-in presets by name, the default first."""
    text = (files("forbear") / "policy" / "presets.toml").read_text(encoding="utf-8")
    return MappingProxyType(_read(text, "presets.toml", taken=()))


def load(text: str, file: str = "the file of presets") -> Mapping[str, Preset]:
    """The presets of a file of one's own.

    Args:
        text: What is in it.
        file: What errors call it.

    Raises:
        InvalidPresets: It is no such file, or one of its presets has a built-in one's name.
    """
    return MappingProxyType(_read(text, file, taken=presets()))


def with_own(path: Path | None) -> Mapping[str, Preset]:
    """The built-in presets and, behind them, those of a file of one's own, if there is one.

    Raises:
        InvalidPresets: The file cannot be read or used.
    """
    if path is None:
        return presets()
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidPresets(f"{path} cannot be read ({error.strerror}): name a file of presets, or none") from error
    except ValueError as error:  # no UTF-8, or a path with a null character
        raise InvalidPresets(f"{path} cannot be read ({error}): name a TOML file in UTF-8") from error
    return MappingProxyType({**presets(), **load(text, str(path))})


def name_of(policy: Policy, known: Mapping[str, Preset]) -> str | None:
    """The name of the first preset whose policy this is; None if it is none's."""
    return next((preset.name for preset in known.values() if preset.policy == policy), None)


def _read(text: str, file: str, taken: Container[str]) -> dict[str, Preset]:
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # TOML's own errors, numbers of too many digits, brackets without end
        raise InvalidPresets(f"{file} is not TOML: {error}") from error
    found = {}
    for name, table in document.items():
        where = f"{file}: preset {name!r}"
        if not isinstance(table, dict):
            raise InvalidPresets(f"{where}: it is no table: write its fields below [{name}]")
        if not _NAME.fullmatch(name):
            raise InvalidPresets(f"{where}: a name is up to 64 lower-case letters, digits and hyphens: choose another")
        if name in taken:
            raise InvalidPresets(f"{where}: there is a built-in preset of this name: choose another")
        found[name] = _preset(name, table, where)
    return found


def _preset(name: str, table: Mapping[str, Any], where: str) -> Preset:
    for field in _ABOUT:
        if not isinstance(table.get(field), str) or not table[field].strip():
            raise InvalidPresets(f"{where}: {field}: it is missing or no text: add a line of text")
    given = {part: _with_nulls(value) for part, value in table.items() if part not in _ABOUT}
    default = Policy().model_dump()
    try:
        policy = Policy.model_validate({**default, **{part: _completed(part, given[part], default) for part in given}})
    except ValidationError as error:
        raise InvalidPresets(f"{where}: {'; '.join(map(str, faults(error)))}") from error
    open_fields = () if name == DEFAULT else tuple(_left_open(given, default))
    return Preset(name, table["summary"], table["source"], policy, open_fields)


def _with_nulls(value: Any) -> Any:
    """A part as it is written, with null where the file says so."""
    if isinstance(value, dict):
        return {field: None if inner == _NULL else inner for field, inner in value.items()}
    return None if value == _NULL else value


def _completed(part: str, value: Any, default: Mapping[str, Any]) -> Any:
    """A part with the default's fields where the file names none; what is no part is left to the model to refuse."""
    if not isinstance(value, dict) or part not in default:
        return value
    return {**{field: default[part][field] for field in _open_fields(part, value, default)}, **value}


def _left_open(given: Mapping[str, Any], default: Mapping[str, Any]) -> Iterator[str]:
    for part in default:
        if part not in given:
            yield part
        elif isinstance(given[part], dict):
            yield from (f"{part}.{field}" for field in _open_fields(part, given[part], default))


def _open_fields(part: str, value: Mapping[str, Any], default: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of a part that the file does not name and the default fills."""
    fields = default[part] if isinstance(default[part], dict) else ()
    return tuple(
        field for field in fields if field not in value and (part != "schedule" or field in _OPEN_IN_A_SCHEDULE)
    )
