"""The custom headers of an endpoint: what an owner may add to every request that goes there.

Owns the rules for names and values and the list of names that are not the owner's to set. It does not know what the
sender adds itself beyond those names.
"""

import re
from collections.abc import Mapping
from typing import Final

# Bounds of ours. Servers refuse requests whose headers are too large (8 KiB in all is the smallest usual default), so
# an endpoint must not be given headers that its receiver could never take. A bearer token of 2,000 characters fits.
MAX_HEADERS: Final = 20
MAX_NAME_CHARS: Final = 100
MAX_VALUE_CHARS: Final = 2000
MAX_TOTAL_CHARS: Final = 6000

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # RFC 9110 section 5.6.2
# RFC 9110 section 5.5 without obs-text: visible ASCII, with spaces and tabs inside only. An empty value is legal.
_VALUE: Final = re.compile(r"(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?")

_SET_BY_HTTP: Final = frozenset(
    {
        # Framing and routing of the message (RFC 9112 sections 3.2 and 6): a second opinion here is request smuggling.
        "host",
        "content-length",
        "transfer-encoding",
        "trailer",
        "te",
        # The connection's, not the request's (RFC 9110 section 7.6.1).
        "connection",
        "keep-alive",
        "upgrade",
        "http2-settings",
        "expect",
        # The body's: it goes out as it came in, and answers are not decoded.
        "content-type",
        "content-encoding",
        "accept-encoding",
    }
)
_SET_BY_FORBEAR: Final = frozenset({"idempotency-key", "user-agent", "traceparent", "tracestate"})
_RESERVED_PREFIXES: Final = {"proxy-": "HTTP", "webhook-": "Forbear", "forbear-": "Forbear"}


class InvalidHeader(ValueError):
    """A custom header that cannot be sent; the message says which one and why, never its value."""


def validate(headers: Mapping[str, str]) -> tuple[tuple[bytes, bytes], ...]:
    """Check an endpoint's custom headers and turn them into what the sender takes.

    Args:
        headers: Names to values. At most 20, of at most 6,000 characters in all; an empty mapping is the same as none.

    Returns:
        Names and values as bytes, in the order given, spelled as given.

    Raises:
        InvalidHeader: Too many or too long; a name that is no token (RFC 9110 section 5.6.2), is reserved, or comes
            twice in different case; a value that is not printable ASCII (RFC 9110 section 5.5).
    """
    if len(headers) > MAX_HEADERS:
        raise InvalidHeader(f"an endpoint has at most {MAX_HEADERS} custom headers; got {len(headers)}")
    seen: set[str] = set()
    for name, value in headers.items():
        _check_name(name)
        if name.lower() in seen:
            raise InvalidHeader(f"the header {name} is there twice; names do not differ by case")
        seen.add(name.lower())
        _check_value(name, value)
    total = sum(len(name) + len(value) for name, value in headers.items())
    if total > MAX_TOTAL_CHARS:
        raise InvalidHeader(f"custom headers have at most {MAX_TOTAL_CHARS} characters in all; got {total}")
    return tuple((name.encode("ascii"), value.encode("ascii")) for name, value in headers.items())


def _check_name(name: str) -> None:
    if len(name) > MAX_NAME_CHARS:
        raise InvalidHeader(f"a header's name has at most {MAX_NAME_CHARS} characters; got {len(name)}: {name[:60]!r}…")
    if not _TOKEN.fullmatch(name):
        raise InvalidHeader(f"a header's name is made of ASCII letters, digits and - (RFC 9110 token); got {name!r}")
    owner = _owner(name.lower())
    if owner is not None:
        raise InvalidHeader(f"the header {name} is set by {owner}; remove it")


def _owner(lower_name: str) -> str | None:
    """Say who sets a reserved header; None if the name is free."""
    if lower_name in _SET_BY_HTTP:
        return "HTTP"
    if lower_name in _SET_BY_FORBEAR:
        return "Forbear"
    return next((owner for prefix, owner in _RESERVED_PREFIXES.items() if lower_name.startswith(prefix)), None)


def _check_value(name: str, value: str) -> None:
    if len(value) > MAX_VALUE_CHARS:
        raise InvalidHeader(f"a header's value has at most {MAX_VALUE_CHARS} characters; {name} has {len(value)}")
    if not _VALUE.fullmatch(value):
        raise InvalidHeader(
            f"the value of {name} must be printable ASCII without line ends, NUL or other control characters, "
            "and without spaces or tabs at either end"
        )
