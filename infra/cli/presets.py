"""`forbear presets`: the named policies, as a list or one in full. Needs no stack: they are data of this package.

Owns how a preset looks. One in full is printed as it could stand in a file of one's own, what its source leaves open
marked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.cli import durations
from infra.cli.command import Session
from infra.cli.errors import UsageError
from infra.cli.output import Columns, Document, counted

if TYPE_CHECKING:
    from forbear.policy.presets import Preset

File = Annotated[
    str | None,
    typer.Option(
        "--presets", metavar="FILE", envvar="FORBEAR_PRESETS", help="A file of own presets (TOML).", show_default=False
    ),
]

MARK = "  # from default"

LIST: Columns = {
    "name": "name",
    "attempts": "attempts",
    "gives up after": lambda preset: durations.written(preset["gives_up_s"]),
    "summary": "summary",
}


def presets(
    session: Session,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Only this one, in full.")] = None,
    file: File = None,
) -> None:
    """List the presets, or show one. An endpoint's policy can begin as one: endpoints add URL --preset NAME."""
    known = read(file)
    if name is None:
        session.output.items(map(_document, known.values()), LIST, "there is no preset")
    elif session.output.as_json:
        session.output.document(_document(named(name, known)))
    else:
        for line in _lines(named(name, known)):
            session.output.line(line)


def read(file: str | None) -> Mapping[str, Preset]:
    """The built-in presets by name, and those of a file.

    Raises:
        UsageError: The file cannot be read or used.
    """
    from forbear.policy.presets import InvalidPresets, with_own  # noqa: PLC0415 - pydantic takes 0.2 s

    try:
        return with_own(None if file is None else Path(file))
    except InvalidPresets as error:
        raise UsageError(f"--presets: {error}") from error


def named(name: str, known: Mapping[str, Preset]) -> Preset:
    """The preset of a name.

    Raises:
        UsageError: There is none.
    """
    if name not in known:
        raise UsageError(f"there is no preset {name!r}: name one of {', '.join(known)}")
    return known[name]


def _document(preset: Preset) -> Document:
    """A preset as the API shows it, and what its schedule comes to without jitter."""
    from forbear.policy.plan import plan  # noqa: PLC0415

    end = plan(preset.policy, limit=1).on_paper
    return {
        "name": preset.name,
        "summary": preset.summary,
        "source": preset.source,
        "attempts": end.attempts,
        "gives_up_s": end.elapsed_s,
        "policy": preset.policy.model_dump(mode="json"),
        "from_default": list(preset.from_default),
    }


def _lines(preset: Preset) -> Iterator[str]:
    document = _document(preset)
    policy: dict[str, Any] = document["policy"]
    left_open = frozenset(preset.from_default)
    end = durations.written(document["gives_up_s"])
    yield f"# {counted(document['attempts'], 'attempt')}; gives up after {end}, before jitter"
    yield f"[{preset.name}]"
    yield f"summary = {_toml(preset.summary)}"
    yield f"source = {_toml(preset.source)}"
    # In TOML, what stands below a part's heading belongs to the part, so single values come first.
    for part, value in policy.items():
        if not isinstance(value, dict):
            yield f"{part} = {_toml(value)}{MARK if part in left_open else ''}"
    for part, value in policy.items():
        if isinstance(value, dict):
            yield ""
            yield f"[{preset.name}.{part}]{MARK if part in left_open else ''}"
            for field, inner in sorted(value.items(), key=lambda item: item[0] != "kind"):
                yield f"{field} = {_toml(inner)}{MARK if f'{part}.{field}' in left_open else ''}"


def _toml(value: Any) -> str:
    """A policy's value as TOML; null as files of presets write it."""
    match value:
        case None:
            return '"null"'
        case float() if value.is_integer():
            return str(int(value))
        case list():
            return f"[{', '.join(map(_toml, value))}]"
        case dict():
            return f"{{ {', '.join(f'{name} = {_toml(inner)}' for name, inner in value.items())} }}"
        case _:
            return json.dumps(value, ensure_ascii=False)
