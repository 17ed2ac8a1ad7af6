"""The template as a reviewer can read it: a line for each property, references as places in the stack.

`python -m tests.infra.aws.snapshot` writes `snapshots/small.txt`, and to `snapshots/production.txt` what differs there.
What every edit of the code changes (hashes of assets and migrations) and what only software reads is left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import infra.node  # noqa: F401 - chooses the Node that the next import starts

# isort: split
from aws_cdk.assertions import Template

from infra.config import StackConfig
from tests.infra.aws.conftest import synthesized
from tests.infra.aws.reading import written

FOLDER = Path(__file__).parent / "snapshots"
_HASH = re.compile(r"[0-9a-f]{64}")
_LEFT_OUT = {"ApiId", "DashboardBody", "PolicyName", "Tags", "Version"}


def snapshots() -> dict[str, str]:
    """The files as they should be: their text by name."""
    small, production = (_read(profile) for profile in ("small", "production"))
    differs = {name: _difference(small.get(name, []), production.get(name, [])) for name in small | production}
    return {
        "small.txt": _text(small),
        "production.txt": _text({name: lines for name, lines in differs.items() if lines}),
    }


def _difference(old: list[str], new: list[str]) -> list[str]:
    return [f"  - {line.strip()}" for line in old if line not in new] + [
        f"  + {line.strip()}" for line in new if line not in old
    ]


def _read(profile: str) -> dict[str, list[str]]:
    config = StackConfig.read({"profile": profile}, FOLDER)
    return readable(synthesized(config, {"aws:cdk:enable-path-metadata": True}))


def readable(template: Template) -> dict[str, list[str]]:
    """The resources of a template that was made with path metadata, and its outputs: lines by place."""
    document = template.to_json()
    places = {name: _place(name, resource) for name, resource in document["Resources"].items()}
    found = {
        f"{places[name]} ({resource['Type'].removeprefix('AWS::')})": [f"    {line}" for line in _lines(told(resource))]
        for name, resource in document["Resources"].items()
    }
    found["Outputs"] = [f"    {line}" for line in _lines({k: v["Value"] for k, v in document["Outputs"].items()})]
    return {_shorter(name, places): [_shorter(line, places) for line in lines] for name, lines in found.items()}


def _place(name: str, resource: dict[str, Any]) -> str:
    """Where in the stack a resource stands, such as Network/Vpc/PublicSubnet1/EIP."""
    path = str(resource.get("Metadata", {}).get("aws:cdk:path", name))
    return path.partition("/")[2].removesuffix("/Resource").removesuffix("/Default")


def told(resource: dict[str, Any]) -> dict[str, Any]:
    """What is said of a resource besides its type: properties, and what becomes of it in the end."""
    properties: dict[str, Any] = resource.get("Properties", {})
    kept = resource.get("DeletionPolicy", "Delete")
    return properties if kept == "Delete" else properties | {"DeletionPolicy": kept}


def _lines(value: Any, key: str = "") -> Iterator[str]:
    """A line for each leaf, with the keys that lead to it; a statement of a policy is a leaf."""
    match value:
        case {"Effect": effect, "Action": action, **rest}:
            yield f"{effect} {_leaf(action)}{''.join(f' | {each}' for each in _lines(rest))}"
        case {"Fn::Sub": inner} | {"Fn::Base64": inner}:
            yield from _lines(inner, key)
        case dict() if value and not value.keys() & {"Ref", "Fn::GetAtt", "Fn::Join", "Fn::Select"}:
            for inner_key, inner in value.items():
                if inner_key not in _LEFT_OUT:
                    yield from _lines(inner, f"{key}.{inner_key}" if key else inner_key)
        case [dict() as first, *_] if not isinstance(_leaf(first), str) or "Effect" in first or len(first) > 1:
            for inner in value:
                yield from _lines(inner, f"{key}[]")
        case _:
            yield f"{key}: {_leaf(value)}"


def _leaf(value: Any) -> str:
    match value:
        case list():
            return ", ".join(_leaf(each) for each in value)
        case {"Fn::Select": [index, {"Fn::GetAZs": ""}]}:
            return f"zone {index}"
    return written(value).strip().replace("\n", "; ")


def _shorter(line: str, places: dict[str, str]) -> str:
    """A line with places for logical ids, and without hashes."""
    return re.sub(r"<(\w+)", lambda found: f"<{places.get(found[1], found[1])}", _HASH.sub("…", line)).rstrip()


def _text(found: dict[str, list[str]]) -> str:
    return "\n".join(line for name, lines in sorted(found.items()) for line in (name, *lines, ""))


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, text in snapshots().items():
        (FOLDER / file).write_text(text, encoding="utf-8")
        sys.stdout.write(f"{FOLDER / file}\n")
