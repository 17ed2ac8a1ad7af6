"""Reads a template: its resources by type, and a role's rights, with references written short."""

from __future__ import annotations

from typing import Any

from aws_cdk.assertions import Template

FUNCTIONS = ("ingest", "manage", "replay", "claimer", "maintain", "migrate")


def resources(template: Template, of_type: str) -> dict[str, dict[str, Any]]:
    """The properties of the resources of a type, by logical id."""
    return {
        name: resource.get("Properties", {}) for name, resource in template.find_resources(f"AWS::{of_type}").items()
    }


def functions(template: Template) -> dict[str, dict[str, Any]]:
    """The properties of the functions, by the name of their file."""
    found = {props["Handler"].partition(".")[0]: props for props in resources(template, "Lambda::Function").values()}
    assert set(found) == set(FUNCTIONS)
    return found


def settings(template: Template, function: str) -> dict[str, str]:
    """A function's settings, by their names without FORBEAR_."""
    variables = functions(template)[function]["Environment"]["Variables"]
    return {
        name.removeprefix("FORBEAR_"): written(value)
        for name, value in variables.items()
        if name.startswith("FORBEAR_")
    }


def written(value: Any) -> str:
    """A value as text: references as `<logical id>` or `<logical id.attribute>`, joined as they will be."""
    match value:
        case {"Ref": name}:
            return f"<{name}>"
        case {"Fn::GetAtt": [name, attribute]}:
            return f"<{name}.{attribute}>"
        case {"Fn::Join": [between, parts]}:
            return str(between).join(written(part) for part in parts)
        case _:
            return str(value)


def rights(template: Template, role: str) -> list[tuple[str, str]]:
    """What a role is allowed: (action, resource), sorted.

    Args:
        template: The template.
        role: What the role's logical id begins with.
    """
    return sorted(
        (action, written(resource))
        for statement in statements(template, role)
        if statement["Effect"] == "Allow"
        for action in _several(statement["Action"])
        for resource in _several(statement["Resource"])
    )


def statements(template: Template, role: str) -> list[dict[str, Any]]:
    """The statements of the policies that are attached to a role."""
    return [
        statement
        for policy in resources(template, "IAM::Policy").values()
        if any(written(attached).startswith(f"<{role}") for attached in policy["Roles"])
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
