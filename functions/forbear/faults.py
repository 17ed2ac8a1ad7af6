"""What is wrong with a document, told to who wrote it: pydantic's errors as fields and sentences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # ingest has faults to tell, and does without pydantic
    from pydantic import ValidationError

MISSING: Final = "it is missing: add it"

# Where the validator's message speaks of itself and does not say what to do.
_REWORDED = {
    "extra_forbidden": "there is no such field: correct its name or remove it",
    "missing": MISSING,
    "union_tag_not_found": "its `kind` is missing: add it",
}
# Parts of a location that are no part of the document: the kinds of a union that were gone into.
_KINDS = {
    *(("schedule", kind) for kind in ("exponential", "ladder", "two_phase")),
    *(("jitter", kind) for kind in ("full", "equal", "proportional", "additive", "none")),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. `field`: where, as `policy.schedule.base_s`; empty: in the document as a whole."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def faults(error: ValidationError) -> list[Fault]:
    """All that is wrong, in the order in which it was found; never none."""
    return [
        Fault(_field(one["loc"]), _REWORDED.get(one["type"], one["msg"].removeprefix("Value error, ")))
        for one in error.errors(include_url=False, include_context=False, include_input=False)
    ]


def _field(location: tuple[int | str, ...]) -> str:
    parents = (None, *location)
    return ".".join(str(part) for part, parent in zip(location, parents, strict=False) if (parent, part) not in _KINDS)
