"""A handler of a kind that Lambda's Python runtime does not know."""

from typing import Any


async def handler(_event: Any, _context: Any) -> Any:
    return "never"
