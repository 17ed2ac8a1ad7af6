"""Bodies of JSON, read as pydantic models."""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from forbear.api import invalid


def parse_body[M: BaseModel](model: type[M], body: bytes) -> M:
    """Validate a JSON body.

    Raises:
        Problem: 400 if it is not JSON, 422 with the fields at fault if it is not what the model wants.
    """
    try:
        return model.model_validate_json(body or b"{}")
    except ValidationError as error:
        raise invalid(error) from error
