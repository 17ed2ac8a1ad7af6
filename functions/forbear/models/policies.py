"""Policies in requests: parts of them, and presets, the policies that go by a name."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forbear.models.fields import without_defaults
from forbear.policy.model import Policy

PresetName = Annotated[str, Field(examples=["repost"])]


class PolicyParts(Policy):
    """Parts of a policy. Each that is given replaces that part as a whole: what it leaves out has its default."""

    model_config = ConfigDict(json_schema_extra=without_defaults)

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        """What must hold between parts is looked at when they stand together."""
        return self


class PresetOut(BaseModel):
    """A named policy."""

    name: PresetName
    summary: Annotated[str, Field(description="What it is, in a sentence.")]
    source: Annotated[str, Field(description="Where its figures were published.")]
    policy: Policy
    from_default: Annotated[
        list[str],
        Field(
            description="What of the policy the source leaves open, so that it is the default's: whole parts "
            "(`budget`) and fields of parts (`verdicts.gone`)."
        ),
    ]


class PresetList(BaseModel):
    """Every preset: the default first, then the other built-in ones, then the stack's own."""

    items: list[PresetOut]
