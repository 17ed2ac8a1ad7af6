"""Names of tenants: whose endpoints and events something is.

Owns that grammar, nothing else. A name stands in paths, queries and logs as it is, hence the few characters.
"""

import re
from typing import Final

MAX_LENGTH: Final = 128
"""The most characters that a tenant's name may have."""

# The first character is a letter or digit: so a name is never `.` or `..`, which vanish from paths.
PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9._:@+|=-]{0,127}"
"""The grammar of a name, as a regular expression (Python's and ECMA's alike)."""

_NAME: Final = re.compile(PATTERN)
_SHOWN_CHARS: Final = 60


class InvalidTenant(ValueError):
    """A text that is not a tenant's name; the message says what is expected."""


def validate(name: str) -> str:
    """Check the name of a tenant.

    Args:
        name: The name as somebody wrote it.

    Returns:
        The same name.

    Raises:
        InvalidTenant: It does not begin with a letter or digit, has other characters than letters, digits and
            ``. _ : @ + | = -``, or is longer than 128 characters.
    """
    if not _NAME.fullmatch(name):
        shown = name if len(name) <= _SHOWN_CHARS else f"{name[:_SHOWN_CHARS]}…"
        raise InvalidTenant(
            f"a tenant's name has 1 to {MAX_LENGTH} characters, letters, digits and . _ : @ + | = -, the first a letter"
            f" or digit; got {shown!r}"
        )
    return name
