"""The URL of an endpoint: parsed once, strictly, so that nothing downstream can read it in two ways.

What is ambiguous between URL parsers (user info, backslashes, control characters, missing slashes, numbers that are
addresses in disguise) is refused with advice. Path and query are never touched. This module owns syntax only: which
hosts may be connected to is the address guard's matter.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

MAX_LENGTH: Final = 2048
"""The most characters that a URL may have."""

_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_MAX_PORT: Final = 65535
_MAX_HOST_CHARS: Final = 253  # RFC 1035 section 2.3.4 in text form, without the root's dot

# Spaces and controls; then the rest of the URL standard's query percent-encode set (url.spec.whatwg.org, section 1.3),
# which no client sends as it is; then the backslash, which half of all parsers read as a slash.
_NEVER_RAW: Final = re.compile(r'[\x00-\x20\x7f-\x9f"<>\\]')
_AUTHORITY_END: Final = re.compile("[/?]")
# Underscores and leading or trailing hyphens are no host names by RFC 952, but DNS has them and resolvers find them.
_LABEL: Final = re.compile("[a-z0-9_-]{1,63}")
_NUMBER: Final = re.compile("[0-9]+|0x[0-9a-f]*")
_PORT: Final = re.compile("[0-9]{1,5}")


class InvalidUrl(ValueError):
    """A URL that an endpoint cannot have; the message says what to do about it and never repeats credentials."""


@dataclass(frozen=True, slots=True)
class Url:
    """A URL, taken apart for a request.

    Attributes:
        scheme: ``https`` or ``http``.
        host: In ASCII and lower case: a name (IDNA-encoded, without a trailing dot), an IPv4 address, or an IPv6
            address without brackets.
        port: To connect to.
        target: Path and query, byte for byte as given; starts with ``/``.
        authority: The Host header's value: the port left out if it is the scheme's own, IPv6 in brackets.
    """

    scheme: str
    host: str
    port: int
    target: bytes
    authority: str

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target.decode('ascii')}"


def parse(text: str, *, allow_http: bool, ports: frozenset[int] | None = None) -> Url:
    """Take an endpoint's URL apart.

    Args:
        text: The URL as somebody wrote it.
        allow_http: Whether ``http`` is allowed beside ``https``.
        ports: The ports that are allowed; None for all.

    Returns:
        The parts. ``parse(str(url))`` gives the same again.

    Raises:
        InvalidUrl: It is not absolute, not http or https, has user info, a fragment, a character that must be
            percent-encoded, a host or port that cannot be, or more than 2,048 characters.
    """
    if len(text) > MAX_LENGTH:
        raise InvalidUrl(f"the URL has {len(text)} characters; at most {MAX_LENGTH} are allowed")
    _check_characters(text)
    scheme, rest = _split_scheme(text)
    end = _AUTHORITY_END.search(rest)
    authority, target = (rest[: end.start()], rest[end.start() :]) if end else (rest, "")
    if "@" in authority:
        raise InvalidUrl("user name and password do not belong into the URL: use a custom header Authorization instead")
    if not target.isascii():
        raise InvalidUrl("path and query must be ASCII: percent-encode the other characters (é is %C3%A9)")
    host, port = _split_authority(authority)
    if port is None:
        port = _DEFAULT_PORTS[scheme]
    refusal = refusal_of_service(scheme, port, allow_http=allow_http, ports=ports)
    if refusal is not None:
        raise InvalidUrl(refusal)
    shown_host = f"[{host}]" if ":" in host else host
    return Url(
        scheme=scheme,
        host=host,
        port=port,
        target=(target if target.startswith("/") else f"/{target}").encode("ascii"),
        authority=shown_host if port == _DEFAULT_PORTS[scheme] else f"{shown_host}:{port}",
    )


def refusal_of_service(scheme: str, port: int, *, allow_http: bool, ports: frozenset[int] | None) -> str | None:
    """Judge scheme and port: when the URL is set, and again when something is sent, for a setting may have changed.

    Args:
        scheme: ``https`` or ``http``.
        port: To connect to.
        allow_http: Whether ``http`` is allowed beside ``https``.
        ports: The ports that are allowed; None for all.

    Returns:
        Why not, and what is allowed instead; None if they may be used.
    """
    if scheme == "http" and not allow_http:
        return "http is not allowed here: use https"
    if ports is not None and port not in ports:
        return f"port {port} is not allowed here; allowed: {', '.join(map(str, sorted(ports)))}"
    return None


def _check_characters(text: str) -> None:
    found = _NEVER_RAW.search(text)
    if found:
        char, place = found[0], found.start() + 1
        if char == "\\":
            raise InvalidUrl(f"the URL has a backslash (character {place}): write /, or %5C if it is meant")
        if char == " ":
            raise InvalidUrl(f"the URL has a space (character {place}): remove it, or write %20 if it is meant")
        if char in '"<>':
            raise InvalidUrl(f"the URL has a {char} (character {place}): remove it, or write %{ord(char):02X}")
        raise InvalidUrl(f"the URL has a control character (U+{ord(char):04X}, character {place}): remove it")
    if "#" in text:
        raise InvalidUrl("the URL has a fragment (#…), which is never sent: remove it, or write %23 if it is meant")


def _split_scheme(text: str) -> tuple[str, str]:
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator or not re.fullmatch("[a-z][a-z0-9+.-]*", scheme):
        raise InvalidUrl("the URL is not absolute: write it in whole, such as https://example.com/webhooks")
    if scheme not in _DEFAULT_PORTS:
        raise InvalidUrl(f"webhooks cannot be sent by {scheme[:20]}: use https")
    return scheme, rest


def _split_authority(authority: str) -> tuple[str, int | None]:
    """Split host and port; the port is None if there is none."""
    if authority.startswith("["):
        literal, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise InvalidUrl(
                "an IPv6 address is written in brackets, then the port if any: https://[2001:db8::1]:8443/"
            )
        host, colon, port = _ipv6(literal), rest[:1], rest[1:]
    else:
        name, colon, port = authority.partition(":")
        if ":" in port:
            raise InvalidUrl(
                "the host has several colons: an IPv6 address is written in brackets, https://[2001:db8::1]/"
            )
        host = _name(name)
    return host, _port(port) if colon else None


def _port(text: str) -> int:
    if not _PORT.fullmatch(text) or not 1 <= int(text) <= _MAX_PORT:
        raise InvalidUrl(f"a port is a number from 1 to {_MAX_PORT}, or left out together with its colon")
    return int(text)


def _ipv6(literal: str) -> str:
    if "%" in literal:
        raise InvalidUrl("the IPv6 address has a zone (%…), which means something on one machine only: remove it")
    try:
        return str(IPv6Address(literal))
    except ValueError:
        raise InvalidUrl("what stands in brackets is not an IPv6 address") from None


def _name(name: str) -> str:
    """Check a host that is a name or an IPv4 address, and give it in ASCII, lower case and without a trailing dot.

    The dot at the end says that a name is complete, which every name here is taken to be; in a Host header or in TLS it
    is out of place (RFC 6066 section 3).
    """
    labels = (name.lower() if name.isascii() else _mapped(name)).removesuffix(".").split(".")
    labels = [label if label.isascii() else _a_label(label) for label in labels]
    host = ".".join(labels)
    if not host:
        raise InvalidUrl("the URL has no host: write it in whole, such as https://example.com/webhooks")
    if len(host) > _MAX_HOST_CHARS or not all(_LABEL.fullmatch(label) for label in labels):
        raise InvalidUrl(
            "the host is not a valid name: dot-separated labels of 1 to 63 letters, digits, - and _, "
            f"{_MAX_HOST_CHARS} characters in all"
        )
    if _NUMBER.fullmatch(labels[-1]):
        _check_ipv4(host)
    return host


def _check_ipv4(host: str) -> None:
    """Refuse short, octal, hexadecimal and single-number spellings: no top-level domain is a number (RFC 3696, 2)."""
    try:
        IPv4Address(host)
    except ValueError:
        raise InvalidUrl(
            "the host ends in a number, so it must be an IPv4 address: "
            "write four decimal numbers without leading zeros, such as 192.0.2.1"
        ) from None


def _mapped(name: str) -> str:
    """Apply the mapping of UTS 46 (lower case, full-width forms, ideographic full stops …) to a non-ASCII name."""
    import idna  # noqa: PLC0415 - its tables take 25 ms to load, and nearly all hosts are ASCII

    try:
        # Not its ASCII rules: they would refuse underscores; our own check of the labels comes later.
        return idna.uts46_remap(name, std3_rules=False)
    except UnicodeError:
        raise _not_a_name() from None


def _a_label(label: str) -> str:
    import idna  # noqa: PLC0415 - as above

    try:
        return idna.alabel(label).decode("ascii")
    except UnicodeError:
        raise _not_a_name() from None


def _not_a_name() -> InvalidUrl:
    return InvalidUrl(
        "the host is not a valid internationalised name (IDNA 2008): write it in its xn-- form if it has one"
    )
