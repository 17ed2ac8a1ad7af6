"""What a knob of the stack is: a field that says what it does, its default in each profile, its unit and its price.

Owns how knobs are declared and how they are listed. Knows no knob.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo

_UNSET: Final = object()


@dataclass(frozen=True, slots=True)
class Knob:
    """One setting of the stack.

    Attributes:
        key: Its name as it is given, such as `database.max_acu`.
        about: What it does.
        small: Its default in the profile `small`.
        production: Its default in the profile `production`.
        unit: What its number counts, or nothing.
        price: What it costs, us-east-1, or nothing.
    """

    key: str
    about: str
    small: Any
    production: Any
    unit: str
    price: str

    @property
    def takes(self) -> str:
        """What an error says about the value: what the knob does and the unit, if any, without a full stop."""
        about = self.about.rstrip(".")
        return f"{about} ({self.unit})" if self.unit else about


def knob(
    default: Any,
    about: str,
    *,
    production: Any = _UNSET,
    unit: str = "",
    price: str = "",
    pattern: str | None = None,
    **bounds: Any,
) -> Any:
    """Declare a knob as a field of a frozen model.

    Args:
        default: Its default, in both profiles unless `production` is given.
        about: What it does, in a sentence.
        production: Its default in the profile `production`.
        unit: What its number counts.
        price: What it costs, us-east-1.
        pattern: What the whole of a text must match.
        bounds: What pydantic's `Field` takes besides: ge, le and so on.
    """
    told = {"unit": unit, "price": price} | ({} if production is _UNSET else {"production": production})
    whole = pattern and rf"\A(?:{pattern})\Z"
    return Field(default, description=about, json_schema_extra=told, validate_default=True, pattern=whole, **bounds)


def group(model: type[BaseModel], about: str) -> Any:
    """Declare a field that holds the knobs of one capability."""
    return Field(default_factory=model, description=about)


def knobs(model: type[BaseModel], prefix: str = "") -> Iterator[Knob]:
    """The knobs of a model and of the models in it, in the order of their declaration.

    Args:
        model: A model whose fields were declared by `knob` and `group`.
        prefix: What its keys begin with, such as `database.`.
    """
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from knobs(inner, f"{prefix}{name}.")
        else:
            yield _knob(prefix + name, field)


def _knob(key: str, field: FieldInfo) -> Knob:
    told = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    return Knob(
        key=key,
        about=field.description or "",
        small=field.default,
        production=told.get("production", field.default),
        unit=str(told.get("unit", "")),
        price=str(told.get("price", "")),
    )


def as_markdown(model: type[BaseModel]) -> str:
    """The knobs of a model as a table for the documentation."""
    rows = [
        f"| `{one.key}` | {_shown(one.small)} | {_shown(one.production)} | {one.unit} | {one.about} | {one.price} |"
        for one in knobs(model)
    ]
    head = ["| knob | `small` | `production` | unit | effect | price |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *rows]) + "\n"


def _shown(value: Any) -> str:
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
