"""What callers say besides the body: ids and tenants in paths, and query parameters.

Owns the problems that these can be. Knows no operation.
"""

from __future__ import annotations

from uuid import UUID

from pydantic import BaseModel, ValidationError

from forbear import tenants
from forbear.api import ApiRequest, Problem, invalid
from forbear.ids import InvalidId, Prefix, decode


def path_id(request: ApiRequest, prefix: Prefix) -> UUID:
    """The id in the path.

    Raises:
        Problem: 404, it is no such id.
    """
    try:
        return decode(prefix, request.path["id"])
    except InvalidId as error:
        raise Problem(404, str(error)) from None


def path_tenant(request: ApiRequest) -> str:
    """The tenant in the path.

    Raises:
        Problem: 422, no tenant has such a name.
    """
    try:
        return tenants.validate(request.path["tenant"])
    except tenants.InvalidTenant as error:
        raise field_problem("tenant", str(error)) from None


def read_query[M: BaseModel](model: type[M], request: ApiRequest) -> M:
    """The query parameters.

    Raises:
        Problem: 422 with the parameters at fault.
    """
    try:
        return model.model_validate(dict(request.query))
    except ValidationError as error:
        raise invalid(error) from None


def field_problem(field: str, message: str) -> Problem:
    """The problem with one field, in the form that the models' own problems have: 422."""
    return Problem(422, f"{field}: {message}", errors=[{"field": field, "message": message}])
