"""Presets for the API: listed, and as what an endpoint's policy begins with.

Owns how a preset's name and parts of a policy make one. Knows no rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import ValidationError

from forbear.api import ApiRequest, ApiResponse
from forbear.manage.asking import field_problem, read_query
from forbear.manage.backend import Backend
from forbear.models.endpoints import EndpointIn, EndpointPatch
from forbear.models.policies import PresetList, PresetOut
from forbear.models.queries import Nothing
from forbear.policy.model import Policy
from forbear.policy.presets import DEFAULT, Preset


def list_all(backend: Backend, request: ApiRequest) -> ApiResponse:
    """Every preset, the stack's own ones too."""
    read_query(Nothing, request)
    items = [
        PresetOut(
            name=preset.name,
            summary=preset.summary,
            source=preset.source,
            policy=preset.policy,
            from_default=list(preset.from_default),
        )
        for preset in backend.presets.values()
    ]
    return ApiResponse(200, PresetList(items=items))


def policy_of(given: EndpointIn | EndpointPatch, stored: Policy, known: Mapping[str, Preset]) -> Policy:
    """The policy that a request makes: it begins as a preset or as what is stored, and the parts given replace parts.

    Args:
        given: The request. A preset of null is the default one; so is a policy of null, unless a preset is named.
        stored: The policy as it is.
        known: The presets.

    Raises:
        Problem: 422, there is no such preset, or the parts do not go together.
    """
    fields = given.model_fields_set
    if "preset" in fields or ("policy" in fields and given.policy is None):
        name = DEFAULT if given.preset is None else given.preset
        if name not in known:
            raise field_problem("preset", f"there is no preset {name!r}: name one of {', '.join(known)}")
        stored = known[name].policy
    parts = given.policy
    if parts is None:
        return stored
    try:
        return Policy(
            **{name: getattr(parts if name in parts.model_fields_set else stored, name) for name in Policy.model_fields}
        )
    except ValidationError as error:
        raise field_problem("policy", error.errors()[0]["msg"].removeprefix("Value error, ")) from None
